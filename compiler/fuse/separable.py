"""A window channel by channel and the pointwise product that alone reads it, made one call.

What the window computes at a pixel becomes a row of the joined kernel: `compiler.forms.separable` is the form, and says
what may be made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from compiler.forms.contraction import sums_products
from compiler.forms.normal_form import contract_temps, reduces_then_maps, rename_slots, substitute, without_unit_axes
from compiler.forms.separable import WINDOWS, as_separable
from compiler.fuse.between import needed_elsewhere, still_in_place
from compiler.fuse.draft import bind, joined_family
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.expr import Apply, Expr, Load
from compiler.ir.index import Axis, Index, row_major
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType


def separables(kernels: KernelGraph) -> tuple[tuple[tuple[int, ...], Call], ...]:
    """Every pair of calls that may be joined so, with the call that it becomes."""
    pairs = [
        (kernels.writer[id], position)
        for position, call in enumerate(kernels.calls)
        for id in dict.fromkeys(call.inputs)
        if id in kernels.writer
    ]
    joined = [(pair, join_separable(kernels, *pair)) for pair in dict.fromkeys(pairs)]
    return tuple((pair, call) for pair, call in joined if isinstance(call, Call))


@dataclass(frozen=True)
class _Parts:
    """Both kernels without axes of extent 1, the slots that connect them, and how their axes correspond.

    axes      of the joined kernel, for each axis of the window's kernel but its channels
    channels  axes of the window's kernel that become its blocks' own
    channel   the axis of the product's kernel that it sums over
    column    the axis of the product's kernel that becomes its blocks' own
    """

    window: Kernel
    product: Kernel
    made: str
    read: str
    axes: Mapping[Axis, Index]
    channels: tuple[Axis, ...]
    channel: Axis
    column: Axis


def join_separable(kernels: KernelGraph, producer: int, consumer: int) -> Call | str:
    """One call that does both, to stand where the consumer stood, or the reason why not."""
    first, second = kernels.calls[producer], kernels.calls[consumer]
    if reason := needed_elsewhere(kernels, first, consumer):
        return reason
    parts = _parts(first, second)
    if isinstance(parts, str):
        return parts
    call = _joined(parts, kernels, first, second)
    if as_separable(call.kernel) is None:
        return "together they are not in the form of a separable convolution"
    return call


def _parts(first: Call, second: Call) -> _Parts | str:
    """How two kernels fit, or why they do not."""
    window, product = first.kernel, second.kernel
    (between,) = first.outputs
    if not isinstance(window, Kernel) or not isinstance(product, Kernel):
        return "one of them is no loop nest"
    if not reduces_then_maps(contract_temps(window)) or window.blocks[0].monoid not in WINDOWS:
        return "the first is no window"
    if not sums_products(contract_temps(product), DType.F32):
        return "the second is no sum of products"
    window, product = without_unit_axes(window), without_unit_axes(product)
    made = window.outputs[0].name
    read = next(slot.name for slot, id in zip(product.inputs, second.inputs, strict=True) if id == between)
    stores = [store for block in window.blocks for store in block.stores if store.slot == made]
    loads = {load for block in product.blocks for value in block.values for load in value.loads if load.slot == read}
    if len(stores) != 1 or len(loads) != 1 or len(product.blocks[0].reduction) != 1:
        return "the product does not read the window's result pixel by pixel"
    return _fitted(window, product, stores[0], loads.pop())


def _fitted(window: Kernel, product: Kernel, store: Store, load: Load) -> _Parts | str:
    """The axes that correspond, where the product reads one row of channels at each pixel."""
    (channel,) = product.blocks[0].reduction
    axes: dict[Axis, Index] = {}
    channels: tuple[Axis, ...] = ()
    for stored, read in zip(store.index, load.index, strict=True):
        if read == Index.of(channel):
            channels = tuple(axis for axis in window.shared if axis in stored.axes)
        elif len(read.axes) == len(stored.axes) == 1 and read == _only(read) and stored == _only(stored):
            (pixel,), (own,) = read.axes, stored.axes
            if pixel.extent != own.extent or own in axes:
                return "the product reads other pixels than the window stores"
            axes[own] = read
        elif read != stored or read.axes:
            return "the product does not read the window's result pixel by pixel"
    columns = [axis for axis in product.shared if Index.of(axis) not in axes.values()]
    if not channels or len(columns) != 1 or {*axes, *channels} != {*window.shared}:
        return "the product is not over the window's channels, for one axis of columns"
    data = [one for one in window.blocks[0].values[0].loads if {*axes} & one.axes]
    if not all({*channels} & one.axes for one in data):
        return "the window sums over all channels"
    return _Parts(window, product, store.slot, load.slot, axes, channels, channel, columns[0])


def _only(index: Index) -> Index:
    """The one axis of an index, alone."""
    (axis,) = index.axes
    return Index.of(axis)


def _joined(parts: _Parts, kernels: KernelGraph, first: Call, second: Call) -> Call:
    """Both, over the pixels; slots and axes of the window's kernel are called w_.., but for axes of the product."""
    names = {slot.name: f"w_{slot.name}" for slot in (*parts.window.inputs, *parts.window.temps, *parts.window.outputs)}
    names[parts.made] = parts.read
    before = rename_slots(parts.window, names)
    single = {axis: Index.of(parts.channel) for axis in parts.channels if len(parts.channels) == 1}
    loops = {*parts.channels, *(axis for block in before.blocks for axis in block.reduction)} - {*single}
    apart = {axis: Axis(f"w_{axis.name}", axis.extent) for axis in loops}
    mapping = {**parts.axes, **single, **{old: Index.of(new) for old, new in apart.items()}}
    own = (parts.channel,) if single else tuple(apart[axis] for axis in parts.channels)
    windows = tuple(
        replace(substitute(block, mapping), axes=own, reduction=tuple(apart[axis] for axis in block.reduction))
        for block in before.blocks
    )
    products = tuple(replace(block, axes=(parts.column,)) for block in parts.product.blocks)
    between = kernels.buffers[first.outputs[0]].type
    turned, products = _with_plain_row(parts, products, own)
    whole = Kernel(
        joined_family(parts.window.family, parts.product.family),
        (*before.inputs, *(slot for slot in parts.product.inputs if slot.name != parts.read)),
        parts.product.outputs,
        (*windows, *turned, *products),
        (*before.temps, Slot(parts.read, between), *(Slot(TURNED, between) for _ in turned), *parts.product.temps),
        tuple(axis for axis in parts.product.shared if axis != parts.column),
    )
    inputs = {names[slot.name]: id for slot, id in zip(parts.window.inputs, first.inputs, strict=True)}
    pairs = zip(parts.product.inputs, second.inputs, strict=True)
    inputs |= {slot.name: id for slot, id in pairs if slot.name != parts.read}
    outputs = {slot.name: id for slot, id in zip(parts.product.outputs, second.outputs, strict=True)}
    op = bind(contract_temps(whole), inputs, outputs, (*first.sources, *second.sources))
    return Call(op.kernel, op.inputs, op.outputs, still_in_place(kernels, first, second, op.inputs), op.sources)


TURNED = "turned"
"""The row after what the product's kernel does to each element before it multiplies."""


def _with_plain_row(
    parts: _Parts, blocks: tuple[Block, ...], own: tuple[Axis, ...]
) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """What the product does to the elements it reads as a map of its own, and the blocks that read its result."""
    product, *rest = blocks
    factor = next(value for value in product.values[0].children if parts.read in {load.slot for load in value.loads})
    load = next(load for load in factor.loads if load.slot == parts.read)
    if factor == load or parts.column in factor.axes:
        return (), blocks

    def plain(value: Expr) -> Expr:
        return Load(TURNED, load.index, DType.F32) if value == factor else value

    turned = substitute(Block(own, (factor,), (Store(TURNED, load.index),)), {parts.channel: row_major(own)})
    value = Apply("mul", tuple(map(plain, product.values[0].children)))
    return (turned,), (replace(product, values=(value,)), *rest)
