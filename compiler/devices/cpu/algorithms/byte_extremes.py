"""The greatest or the least byte of a window, channel by channel: four times as many bytes in a vector as floats.

The channel is contiguous in operand and results. A task has one row of outputs. Bytes may be compared as the floats
that they stand for, and maps to bytes may follow: they run on every fourth channel at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from math import prod

from compiler.codegen.expressions import INTEGERS, Emitter
from compiler.codegen.functions import decode
from compiler.codegen.scalars import literal
from compiler.codegen.task_grid import TaskGrid, one_by_one
from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.quarters import QUARTERS, ByteVector, quarter_of, replaced
from compiler.devices.cpu.codegen.trimming import Trimming
from compiler.devices.cpu.model import CALL_NS, read_rate
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.byte_maps import are_byte_maps, lies_along
from compiler.forms.contraction import output_strides
from compiler.forms.dequantised import BYTES, Dequantised, dequantised
from compiler.forms.groups import LANE_BYTES
from compiler.forms.normal_form import Slots, in_normal_form, reduces_then_maps
from compiler.ir.arithmetic import bounds
from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Where, conjuncts
from compiler.ir.index import Axis
from compiler.ir.interval import decided
from compiler.ir.kernel import Block, Kernel
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

STEP_NS = 0.3
"""A vector of bytes loaded and compared."""
RESULT_NS = 3.0
"""A vector of bytes made of the extremes by maps."""


@dataclass(frozen=True)
class Extremes:
    """What a kernel finds the extremes of: `byte`, where all of `guards` hold, along `channel` and at `outputs`.

    Outputs are in the order of their places in memory, the nearest last.
    """

    kernel: Kernel
    slots: Slots
    byte: Dequantised
    guards: tuple[Expr, ...]
    channel: Axis
    outputs: tuple[Axis, ...]


def extremes_of(workload: Workload) -> Extremes | None:
    """The form of a kernel, None where it has another."""
    found = in_normal_form(workload, _has_form)
    if found is None:
        return None
    kernel, slots = found
    block = kernel.blocks[0]
    value, guards = block.values[0], list[Expr]()
    while isinstance(value, Where) and value.otherwise == _identity(block):
        guards += conjuncts(value.condition)
        value = value.then
    byte = Dequantised(value, 0, 1.0) if isinstance(value, Load) else dequantised(value)
    if byte is None or byte.load.type not in BYTES or byte.scale <= 0 or any(guard.loads for guard in guards):
        return None
    if value.dtype is DType.F32 and not _sees_something(kernel.shared, block.reduction, guards):
        return None
    read = slots.address(byte.load.slot, byte.load.index)[1]
    for channel in kernel.shared:
        if read.coefficient(channel) == 1 and _stays_bytes(kernel, slots, channel):
            strides = output_strides(kernel, slots)
            others = sorted((axis for axis in kernel.shared if axis != channel), key=lambda axis: -strides[axis])
            is_guarded = any(channel in guard.axes for guard in guards)
            return None if is_guarded else Extremes(kernel, slots, byte, tuple(guards), channel, tuple(others))
    return None


def _sees_something(outputs: Sequence[Axis], taps: Sequence[Axis], guards: Sequence[Expr]) -> bool:
    """Whether each output has a tap inside of the operand; no byte stands for the extreme of nothing."""
    for output in outputs:
        own = [guard for guard in guards if output in guard.axes]
        if any(guard.axes - {*taps, output} for guard in own):
            return False
        among = [tap for tap in taps if any(tap in guard.axes for guard in own)]
        choices = [dict(zip(among, places, strict=True)) for places in product(*(range(tap.extent) for tap in among))]
        for place in range(output.extent):
            limits = [{axis: (at, at) for axis, at in {**choice, output: place}.items()} for choice in choices]
            if not any(all(decided(guard, one) for guard in own) for one in limits):
                return False
    return True


def _identity(block: Block) -> Const:
    """What counts for nothing among the values of which a block finds the extreme."""
    dtype = block.values[0].dtype
    low, high = (-math.inf, math.inf) if dtype is DType.F32 else bounds(dtype)
    return Const(low if block.monoid == "max" else high, dtype)


def _stays_bytes(kernel: Kernel, slots: Slots, channel: Axis) -> bool:
    """Whether all that is stored is bytes along the channel; extremes of floats are stored nowhere."""
    first, *maps = kernel.blocks
    (store,) = first.stores
    stored = Load(store.slot, store.index, first.values[0].dtype)
    may_be_stored = store.slot not in slots.buffers or lies_along(stored, channel, slots)
    return may_be_stored and are_byte_maps(maps, channel, slots)


def _has_form(kernel: Kernel) -> bool:
    if not reduces_then_maps(kernel):
        return False
    first = kernel.blocks[0]
    return first.monoid in ("max", "min") and first.accumulator in (DType.U8, DType.I8, DType.F32)


def extreme_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The one tile there is; empty for another kernel, and for one of fewer channels than a vector of floats has."""
    form = extremes_of(workload)
    if form is None or form.channel.extent < target.vector_floats:
        return []
    vectors = -(-form.channel.extent // (LANE_BYTES * target.vector_floats))
    taps = prod(axis.extent for axis in form.kernel.blocks[0].reduction)
    each = STEP_NS * taps + (RESULT_NS if len(form.kernel.blocks) > 1 else 0.0)
    compute = each * vectors * prod(axis.extent for axis in form.outputs)
    moved = sum(buffer.type.bytes for buffer in (*workload.inputs, *workload.outputs))
    return [Proposal(Tile("byte_extremes"), 1e-9 * (CALL_NS + max(compute, moved / read_rate(moved, target))))]


def byte_extremes(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `extremes_of` accepts."""
    form = extremes_of(workload)
    assert form is not None, "the tile stage offers `byte_extremes` only to kernels of that form"
    return ByteExtremes(name, workload, form, target)


@dataclass
class ByteExtremes(Lowering):
    """One lowering."""

    name: str
    workload: Workload
    form: Extremes
    target: CpuTarget

    def __post_init__(self) -> None:
        self.writer = Writer()
        self.emitter = Emitter(self.writer, self.form.slots.address, numerics=self.form.slots.numerics)

    @property
    def grid(self) -> TaskGrid:
        """A task for each row of outputs."""
        return TaskGrid(self.form.kernel, one_by_one(self.form.outputs[:-1]))

    def lower(self) -> Lowered:
        """The C function."""
        writer, form, channel = self.writer, self.form, self.form.channel
        width = LANE_BYTES * self.target.vector_floats
        whole, rest = channel.extent // width * width, channel.extent % width
        with (
            kernel_function(writer, self.name, self.workload),
            Trimming(writer, form.kernel, form.slots, self.target.vector_floats).tasks(self.grid),
            ExitStack() as inner,
        ):
            decode(writer, form.outputs[:-1], "tile")
            for axis in form.outputs[-1:]:
                inner.enter_context(writer.block(f"for (long {axis} = 0; {axis} < {axis.extent}; {axis}++)"))
            if whole:
                with writer.block(f"for (long {channel} = 0; {channel} < {whole}; {channel} += {width})"):
                    self._vector("")
            if rest:
                with writer.block(""):
                    writer.line(f"const long {channel} = {whole};")
                    self._vector(str(rest))
        return Lowered(self.name, writer.text(), self.tasks, grid=self.grid, headers=frozenset(writer.headers))

    def _vector(self, count: str) -> None:
        """One vector of channels, of which `count` are there; empty for all."""
        block, *maps = self.form.kernel.blocks
        (store,), dtype = block.stores, self.form.byte.load.type
        low, high = bounds(dtype)
        vector = ByteVector(self.writer, self.form.slots, self.form.channel, count)
        with self.emitter.scope():
            least = literal(low if block.monoid == "max" else high, DType.I32)
            self.writer.include("tw_bytes.h")
            self.writer.line(f"tw_bytes best = tw_splat_bytes({least});")
            self._taps(block.reduction, self.form.guards, vector)
            if store.slot in self.form.slots.buffers:
                vector.store(store.slot, store.index, "best")
            if maps:
                self._maps(vector, Load(store.slot, store.index, block.values[0].dtype), maps)

    def _maps(self, vector: ByteVector, best: Load, maps: Sequence[Block]) -> None:
        """Maps of the extremes, which are bytes, or the floats that these stand for."""
        byte, parts = self.form.byte, list[str]()
        for quarter in range(QUARTERS):
            parts.append(self.writer.name("best"))
            self.writer.line(f"const vi {parts[-1]} = {quarter_of(self.writer, 'best', quarter, byte.load.type)};")
        held = Load(best.slot, best.index, byte.load.type)
        if best.dtype is DType.F32:
            difference = Apply("sub", (Cast(held, DType.I32), Const(byte.zero, DType.I32)))
            maps = replaced(maps, best, Apply("mul", (Cast(difference, DType.F32), Const(byte.scale, DType.F32))))
        vector.finish(held, parts, maps)

    def _taps(self, taps: Sequence[Axis], guards: Sequence[Expr], vector: ByteVector) -> None:
        """Loops over the window, with each guard tested as soon as its axes are known."""
        writer, form = self.writer, self.form
        ready = [guard for guard in guards if not guard.axes & {*taps}]
        waiting = [guard for guard in guards if guard not in ready]
        with ExitStack() as stack, self.emitter.scope():
            if ready:
                tests = " && ".join(self.emitter.scalar(guard) for guard in ready)
                stack.enter_context(writer.block(f"if ({tests})"))
                stack.enter_context(self.emitter.scope())
            if taps:
                axis = taps[0]
                stack.enter_context(writer.block(f"for (long {axis} = 0; {axis} < {axis.extent}; {axis}++)"))
                self._taps(taps[1:], waiting, vector)
                return
            function = f"tw_{form.kernel.blocks[0].monoid}_{INTEGERS[form.byte.load.type]}"
            writer.line(f"best = {function}(best, {vector.loaded(form.byte.load.slot, form.byte.load.index)});")


BYTE_EXTREMES = Algorithm(("byte_extremes",), extreme_tiles, byte_extremes)
