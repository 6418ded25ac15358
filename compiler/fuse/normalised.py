"""A normalisation of rows and a product that reads them, made one call.

The product's kernel normalises the rows that it multiplies: `compiler.forms.normalised` is the form. Where others read
the normalised rows too, as a residual does, they are a result of the joined kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.forms.contraction import sums_products
from compiler.forms.normal_form import contract_temps, rename_axes, rename_slots, substitute, without_unit_axes
from compiler.forms.normalised import as_normalised
from compiler.fuse.between import still_in_place
from compiler.fuse.draft import bind, joined_family
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.expr import Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Kernel, Slot, Store
from compiler.ir.tensor import DType


def normalisations(kernels: KernelGraph) -> tuple[tuple[tuple[int, ...], Call], ...]:
    """Every pair of calls that may be joined so, with the call that it becomes."""
    rows = {at for at, call in enumerate(kernels.calls) if _reduces_rows(call.kernel)}
    pairs = [
        (kernels.writer[id], position)
        for position, call in enumerate(kernels.calls)
        for id in dict.fromkeys(call.inputs)
        if kernels.writer.get(id) in rows
    ]
    joined = [(pair, join_normalised(kernels, *pair)) for pair in dict.fromkeys(pairs)]
    return tuple((pair, call) for pair, call in joined if isinstance(call, Call))


def _reduces_rows(kernel: object) -> bool:
    """Whether a kernel may be a normalisation: reductions at each point, then a map over an axis of its own."""
    if not isinstance(kernel, Kernel) or kernel.sequential or len(kernel.blocks) < 2:
        return False
    *statistics, row = kernel.blocks
    return any(block.monoid for block in statistics) and not row.monoid and bool(row.axes) and len(kernel.outputs) == 1


def join_normalised(kernels: KernelGraph, producer: int, consumer: int) -> Call | str:
    """One call that does both, to stand where the consumer stood, or the reason why not."""
    first, second = kernels.calls[producer], kernels.calls[consumer]
    if not isinstance(first.kernel, Kernel) or not isinstance(second.kernel, Kernel):
        return "one of them is no loop nest"
    if len(first.outputs) != 1 or not sums_products(contract_temps(second.kernel), DType.F32):
        return "the second is no sum of products"
    (between,) = first.outputs
    if kernels.lying_in[kernels.buffers[between].storage] != (between,):
        return "another buffer lies in the memory of the result between them"
    others = [reader for reader in kernels.readers[between] if reader != consumer]
    if not _all_after(kernels, consumer, others):
        return "the rows are read by what does not wait for the product"
    is_kept = bool(others) or between in kernels.outputs
    return _joined(kernels, first, second, is_kept=is_kept)


def _all_after(kernels: KernelGraph, first: int, others: list[int]) -> bool:
    """Whether calls come after another and depend on it, so that nothing waits that did not wait before."""
    made = {kernels.buffers[id].storage for id in kernels.calls[first].outputs}
    reached = {first}
    for at in range(first + 1, max(others, default=first) + 1):
        call = kernels.calls[at]
        if any(kernels.buffers[id].storage in made for id in call.inputs):
            reached.add(at)
            made |= {kernels.buffers[id].storage for id in call.outputs}
    return reached >= {*others}


def _joined(kernels: KernelGraph, first: Call, second: Call, *, is_kept: bool) -> Call | str:
    """Both, over the rows; slots and axes of the normalisation's kernel are called w_.., but for axes of the rows."""
    assert isinstance(first.kernel, Kernel)
    assert isinstance(second.kernel, Kernel)
    (between,) = first.outputs
    before = rename_axes(without_unit_axes(contract_temps(first.kernel)), lambda name: f"w_{name}")
    product = without_unit_axes(second.kernel)
    names = {slot.name: f"w_{slot.name}" for slot in (*before.inputs, *before.temps)}
    read = next(slot.name for slot, id in zip(product.inputs, second.inputs, strict=True) if id == between)
    names[before.outputs[0].name] = read
    before = rename_slots(before, names)
    stores = [store for block in before.blocks for store in block.stores if store.slot == read]
    loads = {load for block in product.blocks for value in block.values for load in value.loads if load.slot == read}
    if len(stores) != 1 or len(loads) != 1 or len(product.blocks[0].reduction) != 1:
        return "the product does not read the rows one by one"
    (channel,) = product.blocks[0].reduction
    axes = _rows_of(before, stores[0], loads.pop(), channel)
    columns = [axis for axis in product.shared if Index.of(axis) not in axes.values()]
    if set(axes) != set(before.shared) or len(columns) != 1:
        return "the product is not over the normalised rows, for one axis of columns"
    row = Slot(read, kernels.buffers[between].type)
    whole = Kernel(
        joined_family(first.kernel.family, second.kernel.family),
        (*before.inputs, *(slot for slot in product.inputs if slot.name != read)),
        (*product.outputs, *([row] if is_kept else [])),
        (
            *(substitute(block, axes) for block in before.blocks),
            *(replace(block, axes=(columns[0],)) for block in product.blocks),
        ),
        (*before.temps, *([] if is_kept else [row]), *product.temps),
        tuple(axis for axis in product.shared if axis != columns[0]),
    )
    inputs = dict(zip((slot.name for slot in before.inputs), first.inputs, strict=True))
    inputs |= dict(zip((slot.name for slot in product.inputs), second.inputs, strict=True))
    outputs = dict(zip((slot.name for slot in product.outputs), second.outputs, strict=True))
    outputs |= {read: between} if is_kept else {}
    op = bind(contract_temps(whole), inputs, outputs, (*first.sources, *second.sources))
    call = Call(op.kernel, op.inputs, op.outputs, still_in_place(kernels, first, second, op.inputs), op.sources)
    return call if as_normalised(call.kernel) else "together they are not in the form of a product of normalised rows"


def _rows_of(before: Kernel, store: Store, load: Load, channel: Axis) -> Mapping[Axis, Index]:
    """For each axis of the normalisation's rows that of the product; none where they do not correspond."""
    axes: dict[Axis, Index] = {}
    (own,) = before.blocks[-1].axes if len(before.blocks[-1].axes) == 1 else (None,)
    for stored, read in zip(store.index, load.index, strict=True):
        if read == Index.of(channel) and own is not None and stored == Index.of(own):
            continue
        if stored == read and not read.axes:
            continue
        if len(stored.axes) != 1 or len(read.axes) != 1:
            return {}
        (one,), (other,) = stored.axes, read.axes
        if (stored, read) != (Index.of(one), Index.of(other)) or one.extent != other.extent or one in axes:
            return {}
        axes[one] = read
    return axes
