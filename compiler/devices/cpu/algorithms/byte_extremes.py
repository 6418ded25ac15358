"""The greatest or the least byte of a window, channel by channel: four times as many bytes in a vector as floats.

The channel is contiguous in operand and result. A task has one row of outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from compiler.codegen.expressions import INTEGERS, Emitter
from compiler.codegen.functions import decode
from compiler.codegen.scalars import literal
from compiler.codegen.task_grid import TaskGrid, one_by_one
from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.algorithms.model import CALL_NS, read_rate
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.trimming import Trimming
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.contraction import output_strides
from compiler.forms.groups import LANE_BYTES
from compiler.forms.normal_form import Slots, in_normal_form, reduces_then_maps
from compiler.ir.arithmetic import bounds
from compiler.ir.expr import Const, Expr, Load, Where, conjuncts
from compiler.ir.index import Axis
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

STEP_NS = 0.3
"""A vector of bytes loaded and compared."""


@dataclass(frozen=True)
class Extremes:
    """What a kernel finds the extremes of: `load`, where all of `guards` hold, along `channel` and at `outputs`.

    Outputs are in the order of their places in memory, the nearest last.
    """

    kernel: Kernel
    slots: Slots
    load: Load
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
    low, high = bounds(block.values[0].dtype)
    value, guards = block.values[0], list[Expr]()
    while isinstance(value, Where) and value.otherwise == Const(low if block.monoid == "max" else high, value.dtype):
        guards += conjuncts(value.condition)
        value = value.then
    if not isinstance(value, Load) or any(guard.loads for guard in guards):
        return None
    read, written = (slots.address(one.slot, one.index)[1] for one in (value, block.stores[0]))
    for channel in kernel.shared:
        if read.coefficient(channel) == written.coefficient(channel) == 1:
            strides = output_strides(kernel, slots)
            others = sorted((axis for axis in kernel.shared if axis != channel), key=lambda axis: -strides[axis])
            is_guarded = any(channel in guard.axes for guard in guards)
            return None if is_guarded else Extremes(kernel, slots, value, tuple(guards), channel, tuple(others))
    return None


def _has_form(kernel: Kernel) -> bool:
    if not reduces_then_maps(kernel) or len(kernel.blocks) > 1:
        return False
    (block,) = kernel.blocks
    return block.monoid in ("max", "min") and block.accumulator in (DType.U8, DType.I8)


def extreme_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The one tile there is; empty for another kernel, and for one of fewer channels than a vector of floats has."""
    form = extremes_of(workload)
    if form is None or form.channel.extent < target.vector_floats:
        return []
    vectors = -(-form.channel.extent // (LANE_BYTES * target.vector_floats))
    taps = prod(axis.extent for axis in form.kernel.blocks[0].reduction)
    compute = STEP_NS * vectors * taps * prod(axis.extent for axis in form.outputs)
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
        self.emitter = Emitter(self.writer, self.form.slots.address)

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
        return Lowered(self.name, writer.text(), self.tasks, grid=self.grid)

    def _vector(self, count: str) -> None:
        """One vector of channels, of which `count` are there; empty for all."""
        block = self.form.kernel.blocks[0]
        low, high = bounds(self.form.load.type)
        identity = literal(low if block.monoid == "max" else high, DType.I32)
        with self.emitter.scope():
            self.writer.line(f"tw_bytes best = tw_splat_bytes({identity});")
            self._taps(block.reduction, self.form.guards, count)
            slot, offset = self.form.slots.address(block.stores[0].slot, block.stores[0].index)
            place = f"{slot} + {self.emitter.index(offset)}"
            self.writer.line(
                f"tw_store_bytes_n({place}, best, {count});" if count else f"tw_store_bytes({place}, best);"
            )

    def _taps(self, taps: Sequence[Axis], guards: Sequence[Expr], count: str) -> None:
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
                self._taps(taps[1:], waiting, count)
                return
            slot, offset = form.slots.address(form.load.slot, form.load.index)
            place = f"{slot} + {self.emitter.index(offset)}"
            loaded = f"tw_load_bytes_n({place}, {count})" if count else f"tw_load_bytes({place})"
            function = f"tw_{form.kernel.blocks[0].monoid}_{INTEGERS[form.load.type]}"
            writer.line(f"best = {function}(best, {loaded});")


BYTE_EXTREMES = Algorithm(("byte_extremes",), extreme_tiles, byte_extremes)
