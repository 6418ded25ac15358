"""Kernels that reduce over a window channel by channel: depthwise convolution, pooling, sums and extremes over space.

    y[.., row, column, c] = maps of  monoid over taps, others .
        value(row * stride + tap * dilation, column * .. , others, c) [* weight(taps, others, c)]

Channels may also come in groups of as many outputs as inputs, all of which an output sums: then a vector holds whole
groups, and the members of a channel's group are its neighbours.

The channel is contiguous in operand and results, so that vectors lie along it. Where an output axis is swept by a small
window (`ir.windowed`), a register tile of several outputs loads each swept position once for all windows that look at
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product as product_of
from math import prod

from compiler.forms.bounds import bound_of
from compiler.forms.contraction import is_constant, output_strides
from compiler.forms.exact_floats import GREATEST, in_floats
from compiler.forms.normal_form import (
    Slots,
    block_positions,
    in_normal_form,
    join_shared,
    reduces_then_maps,
    substitute,
)
from compiler.forms.windowed import Sweep, as_image
from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Where, conjuncts
from compiler.ir.index import Axis, Index, flatten
from compiler.ir.kernel import Block, Kernel
from compiler.ir.machine import Workload
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

IDENTITIES: Mapping[str, float] = {"sum": 0.0, "max": float("-inf"), "min": float("inf")}
"""The monoids of such a kernel; what a guard keeps out counts as their identity."""
MOST_TAPS = 121
"""Of a window that is unrolled; larger ones are loops."""


@dataclass(frozen=True)
class Side:
    """An output axis along which a register tile has several outputs: o reads positions o * stride + tap * dilation."""

    output: Axis
    position: Axis
    stride: int = 1
    tap: Axis | None = None
    dilation: int = 1

    @property
    def taps(self) -> int:
        """Positions of the window along this axis; 1 without a window."""
        return self.tap.extent if self.tap else 1

    def readers(self, outputs: int) -> Mapping[int, tuple[tuple[int, int], ...]]:
        """The (output, tap) pairs that read each position, of those that `outputs` neighbours read, from 0 on."""
        found: dict[int, list[tuple[int, int]]] = {}
        for output in range(outputs):
            for tap in range(self.taps):
                found.setdefault(output * self.stride + tap * self.dilation, []).append((output, tap))
        return {position: tuple(found[position]) for position in sorted(found)}


NO_SIDE = Side(Axis("none", 1), Axis("none", 1))
"""Stands for a side where a kernel has fewer than two."""


@dataclass(frozen=True)
class ChannelWindow:
    """A kernel of this form.

    value     what is reduced, without its weight and guards, over the sides' positions in place of their outputs and
              taps
    guards    conditions under which a position counts, over the same axes, none of them depending on the channel or on
              data
    weight    a factor that all outputs share, over taps, `loops` and the channel
    channel   the axis of vectors
    rows, columns  the sides, columns nearer in memory; either may be NO_SIDE
    outer     the other shared axes
    loops     reduction axes that no side sweeps, outermost first
    ends      sizes at which some of `loops` end
    members   of a group: which one `value` at a channel stands for; the weight depends on it. None where a channel is
              on its own
    epilogue  maps applied to each result
    """

    kernel: Kernel
    product: Block
    value: Expr
    guards: tuple[Expr, ...]
    weight: Expr | None
    channel: Axis
    rows: Side
    columns: Side
    outer: tuple[Axis, ...]
    loops: tuple[Axis, ...]
    members: Axis | None
    epilogue: tuple[Block, ...]
    ends: tuple[tuple[Axis, Load], ...] = ()

    @property
    def monoid(self) -> str:
        """What taps are reduced by, as `Block.monoid` names it."""
        return self.product.monoid

    @property
    def taps(self) -> int:
        """Taps of the unrolled window."""
        return self.rows.taps * self.columns.taps

    @property
    def group(self) -> int:
        """Channels that one output sums."""
        return self.members.extent if self.members else 1

    @property
    def depth(self) -> int:
        """Points of the loops over what is not unrolled."""
        return prod(axis.extent for axis in self.loops)


def as_channel_window(workload: Workload, results: Sequence[DType] = (DType.F32,)) -> ChannelWindow | None:
    """The form of a kernel, whose maps give what is of `results`, or None when it has another."""
    found = in_normal_form(workload, lambda kernel: _has_form(kernel, results))
    if found is None:
        return None
    kernel, slots = found
    kernel, members = _grouped(_in_memory_order(kernel, slots))
    product = kernel.blocks[0]
    channel = _channel(kernel, slots, workload)
    if channel is None:
        return None
    outputs = tuple(axis for axis in kernel.shared if axis != channel)
    guarded, weight = _without_weight(product, frozenset(outputs))
    taps = tuple(axis for axis in product.reduction if axis != members)
    value, rows, columns = _swept(guarded, outputs, taps, kernel, slots)
    value, guards = _without_guard(value, IDENTITIES[product.monoid])
    swept = {rows.output, columns.output, rows.tap, columns.tap}
    loops = tuple(axis for axis in taps if axis not in swept)
    guards, ends = _without_ends(guards, loops, kernel)
    if any(guard.loads or channel in guard.axes or {rows.position, columns.position} <= guard.axes for guard in guards):
        return None
    outer = tuple(axis for axis in outputs if axis not in swept)
    epilogue = kernel.blocks[1:]
    view = ChannelWindow(
        kernel, product, value, guards, weight, channel, rows, columns, outer, loops, members, epilogue, ends
    )
    return view if members is None or weights_of(view, workload, 1) else None


def _in_memory_order(kernel: Kernel, slots: Slots) -> Kernel:
    """Shared axes by falling stride of the result, reduction axes by falling stride of what is read.

    Shared axes are joined where addresses permit.
    """
    strides = output_strides(kernel, slots)

    def address(slot: str, index: tuple[Index, ...]) -> tuple[str, Index]:
        return slots.address(slot, index) if slot in slots.buffers else (slot, Index.of(0))

    ordered = replace(kernel, shared=tuple(sorted(kernel.shared, key=lambda axis: -strides[axis])))
    joined = join_shared(ordered, address)
    product = joined.blocks[0]
    offsets = block_positions(product, address)

    def step(axis: Axis) -> int:
        return max(abs(offset.coefficient(axis) or 0) for offset in offsets)

    reduction = tuple(sorted(product.reduction, key=step, reverse=True))
    return replace(joined, blocks=(replace(product, reduction=reduction), *joined.blocks[1:]))


def _grouped(kernel: Kernel) -> tuple[Kernel, Axis | None]:
    """A convolution in groups of g outputs and g inputs, over channels that groups and their outputs make up together.

    The operand at channel c stands for those of c's group, over which `members`, the axis returned, still runs in the
    weight. Any other kernel as it is.
    """
    product = kernel.blocks[0]
    data, weight = _without_weight(product, frozenset())
    if weight is None:
        return kernel, None
    shared = frozenset(kernel.shared)
    if len(data.axes & shared) < len(weight.axes & shared):
        data, weight = weight, data
    for groups, outputs, members in product_of(kernel.shared, kernel.shared, product.reduction):
        image = as_image(data, [groups], [members])
        if image is None or not image.sweeps or outputs.extent != members.extent or outputs in data.axes:
            continue
        sweep = image.sweeps[0]
        if outputs != groups and (sweep.stride, sweep.dilation) == (members.extent, 1):
            channel = Axis(f"{groups.name}{outputs.name}", groups.extent * outputs.extent)
            whole = Index.of(channel)
            mapping = {groups: whole // outputs.extent, outputs: whole % outputs.extent}
            first, *rest = (substitute(block, mapping) for block in kernel.blocks)
            value = Apply("mul", (image.value.substitute({sweep.position: whole}), weight.substitute(mapping)))
            others = tuple(axis for axis in kernel.shared if axis not in mapping)
            return replace(kernel, shared=(*others, channel), blocks=(replace(first, values=(value,)), *rest)), members
    return kernel, None


def as_byte_window(workload: Workload) -> ChannelWindow | None:
    """The form of a window of floats, or of bytes whose sums fp32 holds exactly; its maps may give bytes."""
    floats = in_floats(workload)
    return as_channel_window(floats or workload, (DType.F32, DType.U8, DType.I8))


def _has_form(kernel: Kernel, results: Sequence[DType]) -> bool:
    if not reduces_then_maps(kernel):
        return False
    first = kernel.blocks[0]
    if first.monoid not in IDENTITIES or first.accumulator is not DType.F32:
        return False
    stored = [
        (kernel.slots[store.slot].type.dtype, value.dtype)
        for block in kernel.blocks
        for store, value in zip(block.stores, block.values, strict=True)
    ]
    return first.values[0].dtype is DType.F32 and all(slot is value and value in results for slot, value in stored)


def _channel(kernel: Kernel, slots: Slots, workload: Workload) -> Axis | None:
    """The shared axis along which every result, and what is reduced, is contiguous."""
    product = kernel.blocks[0]
    stores = [
        slots.address(store.slot, store.index)[1]
        for block in kernel.blocks
        for store in block.stores
        if store.slot in slots.buffers
    ]
    for axis in kernel.shared:
        steps = {
            slots.address(load.slot, load.index)[1].coefficient(axis)
            for load in product.values[0].loads
            if not is_constant(workload, load.slot)
        }
        if 1 in steps and steps <= {0, 1} and all(offset.coefficient(axis) == 1 for offset in stores):
            return axis
    return None


def _without_weight(product: Block, outputs: frozenset[Axis]) -> tuple[Expr, Expr | None]:
    """Splits off a factor that is the same for all outputs, leaving guards with what remains."""
    value = product.values[0]
    if product.monoid != "sum":
        return value, None
    inner, guards = _without_guard(value, 0.0)
    if not isinstance(inner, Apply) or inner.function != "mul":
        return value, None
    for weight, other in (inner.args[::-1], inner.args):
        if not weight.axes & outputs and weight.loads and other.loads:
            for guard in reversed(guards):
                other = Where(guard, other, Const(0.0, DType.F32))
            return other, weight
    return value, None


def _without_guard(value: Expr, identity: float) -> tuple[Expr, tuple[Expr, ...]]:
    """Splits conditions off, whose other branch counts for nothing."""
    guards: list[Expr] = []
    while isinstance(value, Where) and isinstance(value.otherwise, Const) and value.otherwise.value == identity:
        guards += conjuncts(value.condition)
        value = value.then
    return value, tuple(guards)


def _without_ends(
    guards: Sequence[Expr], loops: Sequence[Axis], kernel: Kernel
) -> tuple[tuple[Expr, ...], tuple[tuple[Axis, Load], ...]]:
    """Splits off the guards that say at which size a loop ends."""
    inputs = frozenset(slot.name for slot in kernel.inputs)
    kept: list[Expr] = []
    ends: list[tuple[Axis, Load]] = []
    for guard in guards:
        bound = bound_of(guard, inputs)
        axis = next((axis for axis in loops if bound and bound.place == Index.of(axis)), None)
        if bound is None or axis is None:
            kept.append(guard)
        else:
            ends.append((axis, bound.size))
    return tuple(kept), tuple(ends)


def _swept(
    value: Expr, outputs: Sequence[Axis], taps: Sequence[Axis], kernel: Kernel, slots: Slots
) -> tuple[Expr, Side, Side]:
    """The value over swept positions, and the two sides whose outputs are nearest in memory.

    A window must sweep at least one of them.
    """
    strides = output_strides(kernel, slots)
    nearest = sorted(outputs, key=lambda axis: strides[axis])[:2]
    image = as_image(value, outputs, taps)
    sweeps = [sweep for sweep in image.sweeps if sweep.output in nearest] if image else []
    while prod(sweep.tap.extent for sweep in sweeps) > MOST_TAPS:
        sweeps.remove(max(sweeps, key=lambda sweep: sweep.tap.extent))
    chosen = as_image(value, [sweep.output for sweep in sweeps], [sweep.tap for sweep in sweeps])
    if chosen is None or not sweeps:
        return value, NO_SIDE, NO_SIDE
    swept = {sweep.output: sweep for sweep in chosen.sweeps}
    columns, rows = [*(_side(axis, swept.get(axis)) for axis in nearest), NO_SIDE][:2]
    return chosen.value, rows, columns


def _side(output: Axis, sweep: Sweep | None) -> Side:
    if sweep is None:
        return Side(output, output)
    return Side(output, sweep.position, sweep.stride, sweep.tap, sweep.dilation)


def weights_of(view: ChannelWindow, workload: Workload, lanes: int) -> tuple[int, Panels] | None:
    """How the weight is packed ahead of time, with its input position.

    For each vector of channels: all members, loops, taps.

    Bytes are packed as fp32. None when it is not a constant read at affine positions.
    """
    weight = view.weight
    if isinstance(weight, Cast) and weight.type is DType.F32 and weight.arg.dtype in GREATEST:
        weight = weight.arg
    if not isinstance(weight, Load) or not is_constant(workload, weight.slot):
        return None
    position = [slot.name for slot in workload.kernel.inputs].index(weight.slot)
    flat = flatten(weight.index, workload.kernel.inputs[position].type.dims)
    members, taps = [view.members], [view.rows.tap, view.columns.tap]
    axes = [axis for axis in (*members, *view.loops, *taps, view.channel) if axis]
    strides = [flat.coefficient(axis) for axis in axes]
    if any(stride is None for stride in strides) or flat.axes - set(axes):
        return None
    source = tuple((axis.extent, stride or 0) for axis, stride in zip(axes, strides, strict=True))
    return position, Panels((flat.const,), view.depth * view.group * view.taps, view.channel.extent, lanes, source)
