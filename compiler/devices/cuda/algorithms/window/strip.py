"""What the lowerings of windows share: strips of outputs, vectors along the channel, values at positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from compiler.codegen.functions import decode
from compiler.codegen.reductions import single_step
from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.lane_columns import LANE_BYTES, RoundedPanels
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, CudaEmitter, convert, literal
from compiler.forms.channelwise import IDENTITIES, ChannelWindow, weights_of
from compiler.forms.factors import by_multiplication
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Expr, Load, certain_loads
from compiler.ir.index import Axis, Index
from compiler.ir.interval import Limits, settle
from compiler.ir.kernel import Block, Kernel
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile


@dataclass(frozen=True)
class Strip:
    """The outputs of a thread, and the axes of strips, the last one fastest."""

    view: ChannelWindow
    rows: int
    columns: int
    channels: int

    @staticmethod
    def of(view: ChannelWindow, tile: Tile) -> Strip:
        """The strip that a tile says; one row, column or channel where it does not."""
        return Strip(view, *(tile.extent("thread", axis, 1) for axis in ("rows", "columns", "channels")))

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Axes whose points are strips: those of `places` before they are multiplied by a strip's size."""
        view = self.view
        sizes = ((view.rows.output, self.rows), (view.columns.output, self.columns), (view.channel, self.channels))
        strips = [Axis(f"{axis.name}Strip", -(-axis.extent // size)) for axis, size in sizes if axis.extent > 1]
        return (*view.outer, *strips)

    @property
    def count(self) -> int:
        """How many strips there are."""
        return prod(axis.extent for axis in self.axes)

    @property
    def limits(self) -> Limits:
        """Where strips begin."""
        sides = ((self.view.rows.output, self.rows), (self.view.columns.output, self.columns))
        return {axis: (0, (axis.extent - 1) // size * size) for axis, size in sides}

    def declare(self, writer: Writer, strip: str) -> None:
        """The axes of a strip's first output, given the strip's number."""
        decode(writer, self.axes, strip, "int")
        view = self.view
        sizes = {view.rows.output: self.rows, view.columns.output: self.columns, view.channel: self.channels}
        for axis, size in sizes.items():
            if axis.extent > 1:
                writer.line(f"const int {axis} = {axis.name}Strip * {size};")


@dataclass
class StripText:
    """What both forms of the lowering write: loads of whole vectors, values at positions, steps of the reduction."""

    name: str
    workload: Workload
    view: ChannelWindow
    strip: Strip
    tile: Tile

    def __post_init__(self) -> None:
        kernel = self.workload.kernel
        assert isinstance(kernel, Kernel)
        self.writer = Writer()
        self.slots = Slots(self.workload)
        self.width = self.strip.channels
        self.elements = {slot: buffer.dtype for slot, buffer in self.slots.buffers.items()}
        self.emitter = CudaEmitter(self.writer, self.slots.address, self.elements)
        self.inputs = {slot.name for slot in kernel.inputs}
        self.constants = {
            slot.name for slot, constant in zip(kernel.inputs, self.workload.constant, strict=True) if constant
        }
        self.raw: dict[Load, str] = {}
        self.packing: tuple[int, RoundedPanels] | None = None
        weights = weights_of(self.view, self.workload, self.view.channel.extent)
        if weights:
            position, panels = weights
            self.packing = position, RoundedPanels(panels, self.workload.inputs[position].dtype)

    @property
    def packings(self) -> Mapping[int, Packing]:
        """By input, how constants are packed: the weights, where they are."""
        return dict([self.packing]) if self.packing else {}

    @property
    def notes(self) -> Sequence[str]:
        """What stands in the comment above the kernel, line by line."""
        view, strip = self.view, self.strip
        taps = f"{view.rows.taps} x {view.columns.taps} taps, stride {view.rows.stride} x {view.columns.stride}"
        return [f"{taps}; a thread has {strip.rows} x {strip.columns} outputs at {strip.channels} channels"]

    # Vectors along the channel

    @property
    def even(self) -> int:
        """The largest power of two that divides a vector."""
        return self.width & -self.width

    def access_bytes(self, slot: str, index: tuple[Index, ...]) -> int:
        """The widest access to `width` channels from a multiple of it on; 0 where they do not lie side by side."""
        buffer = self.slots.buffers[slot]
        offset = self.slots.address(slot, index)[1]
        if offset.coefficient(self.view.channel) != 1:
            return 0
        others = [factor for atom, factor in offset.terms if atom != self.view.channel]
        count = self.even
        while any(number % count for number in (*others, offset.const + buffer.offset)):
            count //= 2
        return min(count * buffer.dtype.bytes, LANE_BYTES)

    def vectors(self, exprs: Sequence[Expr]) -> list[Load]:
        """The loads, whatever conditions say, that are vectors along the channel."""
        found = dict.fromkeys(load for expr in exprs for load in certain_loads(expr))
        return [load for load in found if load.slot in self.inputs and self.access_bytes(load.slot, load.index)]

    def read(self, load: Load, inside: str = "", otherwise: float = 0.0, *, early: bool = False) -> str:
        """Declares the elements of a vector, as they lie in memory.

        Those not `inside` are a number. `early`: before the wait.
        """
        dtype, nbytes = self.elements[load.slot], self.access_bytes(load.slot, load.index)
        name = self.writer.name(load.slot)
        place = f"{load.slot} + {self.emitter.index(self.slots.address(load.slot, load.index)[1])}"
        place = f"tw_early({place})" if early else place
        self.writer.line(f"{CUDA_TYPES[dtype]} {name}[{self.width}];")
        if inside:
            self.writer.line(f"tw_read_or<{nbytes}>({name}, {place}, {inside}, {literal(otherwise, dtype)});")
        else:
            self.writer.line(f"tw_read<{nbytes}>({name}, {place});")
        self.raw[load] = name
        return name

    def hold(self, loads: Sequence[Load], element: str = "part") -> None:
        """Declares one element of each vector in the dtype of the arithmetic.

        The emitter finds it for its load.
        """
        for load in dict.fromkeys(loads):
            if load in self.raw:
                name = self.writer.name("v")
                text = convert(f"{self.raw[load]}[{element}]", self.elements[load.slot], load.dtype)
                self.writer.line(f"const {CUDA_TYPES[load.dtype]} {name} = {text};")
                self.emitter.held[load] = name

    def per_channel(self, stack: ExitStack, element: str = "part") -> None:
        """Enters an unrolled loop over a vector's channels; what is held inside is forgotten after it."""
        held, names = dict(self.emitter.held), dict(self.emitter.names)
        self.writer.line("#pragma unroll")
        stack.enter_context(self.writer.block(f"for (int part = 0; part < {self.width}; part++)"))
        stack.enter_context(self.emitter.scope())
        channel = self.emitter.names.get(self.view.channel, self.view.channel.name)
        self.emitter.names[self.view.channel] = f"({channel} + {element})"

        def restore() -> None:
            self.emitter.held, self.emitter.names = held, names

        stack.callback(restore)

    # The reduction

    @property
    def identity(self) -> float:
        """The value with which a reduction begins."""
        return IDENTITIES[self.view.monoid]

    @property
    def element(self) -> str:
        """Which element of a vector stands for a channel: the group's member in question."""
        group = self.view.group
        return "part" if group == 1 else f"part / {group} * {group} + {self.view.members}"

    def step(self, total: str, value: str) -> None:
        """Writes that `total` becomes its combination with `value`."""
        self.writer.line(single_step(self.view.monoid, total, value, DType.F32, wide=False))

    def value_at(self, row: int, column: int) -> Expr:
        """What is reduced, at a position counted from the strip's first."""
        rows, columns = self.view.rows, self.view.columns
        place = {
            rows.position: Index.of(rows.output) * rows.stride + row,
            columns.position: Index.of(columns.output) * columns.stride + column,
        }
        return settle(self.view.value.substitute(place), self.strip.limits)

    def weight_place(self, place: Index, tap: int) -> str:
        """Where the packed weights of a tap lie; `place` counts the points of members and loops."""
        assert self.packing
        step = (place * self.view.taps + tap) * self.view.channel.extent + Index.of(self.view.channel)
        return f"{self.weight_slot} + {self.emitter.index(step)}"

    @property
    def weight_slot(self) -> str:
        """The name of the packed weights' slot."""
        assert self.packing
        return self.workload.kernel.inputs[self.packing[0]].name

    def weight_vector(self, place: Index, tap: int, *, early: bool = False) -> str:
        """Declares the packed weights of one tap. `early`: before the wait."""
        assert self.packing
        dtype, name = self.packing[1].dtype, self.writer.name("weight")
        nbytes = min(self.even * dtype.bytes, LANE_BYTES)
        self.writer.line(f"{CUDA_TYPES[dtype]} {name}[{self.width}];")
        text = self.weight_place(place, tap)
        self.writer.line(f"tw_read<{nbytes}>({name}, {f'tw_early({text})' if early else text});")
        return name

    def settled(self, block: Block, limits: Limits) -> Block:
        """A map with all decided that the places of strips decide."""
        values = tuple(settle(value.transform(by_multiplication), limits) for value in block.values)
        return Block(block.axes, values, block.stores)

    def is_early(self, load: Load) -> bool:
        """Whether a vector is a constant's, the same for all outputs of a strip: it may be read before the wait."""
        view = self.view
        moving = {*view.loops, *(axis for side in (view.rows, view.columns) for axis in (side.output, side.position))}
        return load.slot in self.constants and not load.axes & moving
