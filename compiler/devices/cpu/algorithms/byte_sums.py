"""Sums of bytes over a window, channel by channel, that end in bytes: average pools between two QDQ pairs.

    y = maps of  sum over taps of scale * (x - zero)  =  scale * (sum over taps of x - taps * zero)

The channel is contiguous in operand and results. Bytes are added in 16 bits, a whole vector of them at a time: first
those of each column, which the windows of a row share, then the columns of each window. Sums are whole numbers, and
exact, and what follows them runs in fp32 on every fourth channel at a time. A task has one row of outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from compiler.codegen.expressions import Emitter
from compiler.codegen.functions import decode
from compiler.codegen.task_grid import TaskGrid, one_by_one
from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.quarters import QUARTERS, ByteVector, replaced
from compiler.devices.cpu.codegen.trimming import Trimming
from compiler.devices.cpu.model import CALL_NS, read_rate
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.byte_maps import are_byte_maps, lies_along
from compiler.forms.contraction import output_strides
from compiler.forms.dequantised import Dequantised, dequantised
from compiler.forms.groups import LANE_BYTES
from compiler.forms.normal_form import Slots, in_normal_form, reduces_then_maps
from compiler.forms.windowed import Sweep, as_image
from compiler.ir.expr import Apply, Const, Expr, Load, Where, conjuncts
from compiler.ir.index import Axis
from compiler.ir.kernel import Block, Kernel
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

MOST_TAPS = 257
"""Of bytes whose sum is below 2**16."""
MOST_COLUMNS = 128
"""Of an operand's row, whose sums lie in the first-level cache meanwhile."""
STEP_NS = 0.4
"""A vector of bytes loaded and added."""
RESULT_NS = 4.0
"""A vector of bytes made of sums."""


@dataclass(frozen=True)
class ByteSums:
    """A kernel of this form, in normal form, and its slots.

    byte     what is summed, over the position of `columns` in place of its output and tap
    guards   conditions under which it counts: each of that position, or of `row` and outer axes
    channel  the axis of vectors
    columns  the side of the window that lies nearest in memory
    row      the tap of its other side; None where there is none
    outer    the other shared axes, in the order of their places in memory
    maps     what follows the sum
    """

    kernel: Kernel
    slots: Slots
    byte: Dequantised
    guards: tuple[Expr, ...]
    channel: Axis
    columns: Sweep
    row: Axis | None
    outer: tuple[Axis, ...]

    @property
    def rows(self) -> int:
        """Rows of the window."""
        return self.row.extent if self.row else 1

    @property
    def maps(self) -> tuple[Block, ...]:
        """What follows the sum."""
        return self.kernel.blocks[1:]

    @property
    def taps(self) -> int:
        """Bytes of a sum."""
        return self.rows * self.columns.tap.extent


def byte_sums_of(workload: Workload) -> ByteSums | None:
    """The form of a kernel, None where it has another."""
    found = in_normal_form(workload, _has_form)
    if found is None:
        return None
    kernel, slots = found
    block, *maps = kernel.blocks
    strides = output_strides(kernel, slots)
    *outer, nearest, channel = sorted(kernel.shared, key=lambda axis: -strides[axis])
    image = as_image(block.values[0], [nearest], block.reduction)
    if image is None or not image.sweeps:
        return None
    (columns,), value, guards = image.sweeps, image.value, list[Expr]()
    while isinstance(value, Where) and value.otherwise == Const(0.0, DType.F32):
        guards += conjuncts(value.condition)
        value = value.then
    byte, rows = dequantised(value), [axis for axis in block.reduction if axis != columns.tap]
    if byte is None or len(rows) > 1 or not lies_along(byte.load, channel, slots):
        return None
    form = ByteSums(kernel, slots, byte, tuple(guards), channel, columns, rows[0] if rows else None, tuple(outer))
    sides = {columns.position}, {*rows, *outer}
    if form.taps > MOST_TAPS or not all(any(guard.axes <= side for side in sides) for guard in guards):
        return None
    if any(guard.loads for guard in guards) or block.stores[0].slot in slots.buffers:
        return None
    return form if are_byte_maps(maps, channel, slots) else None


def _has_form(kernel: Kernel) -> bool:
    if not reduces_then_maps(kernel) or len(kernel.shared) < 2:
        return False
    return kernel.blocks[0].monoid == "sum" and kernel.blocks[0].accumulator is DType.F32


def byte_sum_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The one tile there is; empty for another kernel, and for one of fewer channels than a vector of floats has."""
    form = byte_sums_of(workload)
    if form is None or form.channel.extent < target.vector_floats:
        return []
    vectors = -(-form.channel.extent // (LANE_BYTES * target.vector_floats))
    columns = form.columns.output.extent
    steps = columns * form.columns.stride * form.rows + columns * form.columns.tap.extent
    rows = prod(axis.extent for axis in form.outer)
    compute = rows * vectors * (STEP_NS * steps + RESULT_NS * columns)
    moved = sum(buffer.type.bytes for buffer in (*workload.inputs, *workload.outputs))
    return [Proposal(Tile("byte_sums"), 1e-9 * (CALL_NS + max(compute, moved / read_rate(moved, target))))]


def byte_sums(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `byte_sums_of` accepts."""
    form = byte_sums_of(workload)
    assert form is not None, "the tile stage offers `byte_sums` only to kernels of that form"
    return ByteSumsLowering(name, workload, form, target)


@dataclass
class ByteSumsLowering(Lowering):
    """One lowering."""

    name: str
    workload: Workload
    form: ByteSums
    target: CpuTarget

    def __post_init__(self) -> None:
        self.writer = Writer()
        self.byte, self.columns = self.form.byte, self.form.columns
        self.emitter = Emitter(self.writer, self.form.slots.address, numerics=self.form.slots.numerics)
        self.bias = 128 if self.byte.load.type is DType.I8 else 0
        """What is added to each byte, so that it is unsigned."""
        self.zero = self.byte.zero + self.bias
        self.reach = (self.columns.tap.extent - 1) * self.columns.dilation + 1
        """Columns from the first of a window to its last."""
        most = max((MOST_COLUMNS - self.reach) // self.columns.stride + 1, 1)
        self.outputs = min(self.columns.output.extent, most)
        """Of a row, whose columns are summed before the windows are."""

    @property
    def grid(self) -> TaskGrid:
        """A task for each row of outputs."""
        return TaskGrid(self.form.kernel, one_by_one(self.form.outer))

    def lower(self) -> Lowered:
        """The C function."""
        writer, channel = self.writer, self.form.channel
        width = LANE_BYTES * self.target.vector_floats
        whole, rest = channel.extent // width * width, channel.extent % width
        trimming = Trimming(writer, self.form.kernel, self.form.slots, self.target.vector_floats)
        with kernel_function(writer, self.name, self.workload), trimming.tasks(self.grid):
            decode(writer, self.form.outer, "tile")
            self._rows_inside()
            if whole:
                with writer.block(f"for (long {channel} = 0; {channel} < {whole}; {channel} += {width})"):
                    self._row("")
            if rest:
                with writer.block(""):
                    writer.line(f"const long {channel} = {whole};")
                    self._row(str(rest))
        return Lowered(self.name, writer.text(), self.tasks, grid=self.grid, headers=frozenset(writer.headers))

    @property
    def _row_guards(self) -> list[Expr]:
        return [guard for guard in self.form.guards if self.columns.position not in guard.axes]

    def _rows_inside(self) -> None:
        """Declares the first row of the window that lies inside of the operand, and the one past the last."""
        writer, row = self.writer, self.form.row
        if row is None or not self._row_guards:
            writer.line(f"const long first = 0, past = {self.form.rows};")
            return
        writer.line(f"long first = {row.extent}, past = 0;")
        with ExitStack() as inside:
            inside.enter_context(writer.block(f"for (long {row} = 0; {row} < {row.extent}; {row}++)"))
            inside.enter_context(self.emitter.scope())
            inside.enter_context(writer.block(f"if ({self._all(self._row_guards)})"))
            writer.line(f"first = first < {row} ? first : {row};")
            writer.line(f"past = {row} + 1;")

    def _all(self, guards: Sequence[Expr]) -> str:
        return " && ".join(map(self.emitter.scalar, guards))

    def _row(self, count: str) -> None:
        """One row of outputs at one vector of channels, of which `count` are there; empty for all."""
        writer, output = self.writer, self.columns.output
        vector = ByteVector(writer, self.form.slots, self.form.channel, count)
        if self.zero:
            each = self.columns.tap.extent * self.zero
            writer.line(f"const vi below = tw_splat_i((int32_t)(past - first) * {each});")
        with writer.block(f"for (long begin = 0; begin < {output.extent}; begin += {self.outputs})"):
            writer.line(f"const long end = tw_least_of(begin + {self.outputs}, {output.extent});")
            writer.include("tw_quarters.h")
            writer.line(f"tw_quarter_sums sums[{(self.outputs - 1) * self.columns.stride + self.reach}];")
            if self._row_guards and self.form.row:
                with writer.block(f"if (past - first == {self.form.rows})"):
                    self._columns(vector, "0", str(self.form.rows))
                with writer.block("else"):
                    self._columns(vector, "first", "past")
            else:
                self._columns(vector, "0", str(self.form.rows))
            with writer.block(f"for (long {output} = begin; {output} < end; {output}++)"):
                self._window(vector)

    def _columns(self, vector: ByteVector, first: str, past: str) -> None:
        """The sums of each column that outputs from `begin` to `end` read, over the rows from `first` on."""
        writer, position = self.writer, self.columns.position
        start = f"begin * {self.columns.stride}"
        ends = f"{position} < (end - 1) * {self.columns.stride} + {self.reach}"
        with writer.block(f"for (long {position} = {start}; {ends}; {position}++)"), self.emitter.scope():
            writer.line("tw_quarter_sums sum = {{0}, {0}};")
            guards = [guard for guard in self.form.guards if position in guard.axes]
            with ExitStack() as inside:
                if guards:
                    inside.enter_context(writer.block(f"if ({self._all(guards)})"))
                if self.form.row:
                    row = self.form.row
                    inside.enter_context(writer.block(f"for (long {row} = {first}; {row} < {past}; {row}++)"))
                loaded = vector.loaded(self.byte.load.slot, self.byte.load.index)
                writer.include("tw_bytes.h")
                writer.line(f"const tw_bytes x = {loaded}{' ^ tw_splat_bytes(128)' if self.bias else ''};")
                writer.line("tw_quarter_add(&sum, x);")
            if guards and self.zero:
                with writer.block("else"):
                    writer.line(f"sum = tw_quarter_times((int)({past} - {first}), {self.zero});")
            writer.line(f"sums[{position} - {start}] = sum;")

    def _window(self, vector: ByteVector) -> None:
        """The results of one window."""
        writer, (store,) = self.writer, self.form.kernel.blocks[0].stores
        at = f"({self.columns.output} - begin) * {self.columns.stride}"
        writer.line(f"tw_quarter_sums sum = sums[{at}];")
        for tap in range(1, self.columns.tap.extent):
            writer.line(f"tw_quarter_join(&sum, &sums[{at} + {tap * self.columns.dilation}]);")
        parts = []
        for quarter in range(QUARTERS):
            whole = f"tw_quarter_total(sum, {quarter})"
            parts.append(writer.name("total"))
            taken = f"tw_sub_i({whole}, below)" if self.zero else whole
            writer.line(f"const vf {parts[-1]} = tw_float_of({taken});")
        total = Load(store.slot, store.index, DType.F32)
        scaled = Apply("mul", (total, Const(self.byte.scale, DType.F32)))
        vector.finish(total, parts, replaced(self.form.maps, total, scaled))


BYTE_SUMS = Algorithm(("byte_sums",), byte_sum_tiles, byte_sums)
