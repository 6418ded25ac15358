"""A mean over positions and the two small products that follow it, made one call: squeeze and excitation.

Each is a launch of its own otherwise, and none has work for more than a fraction of it. `compiler.forms.excitation` is
the form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from compiler.forms.contraction import sums_products
from compiler.forms.excitation import as_excitation
from compiler.forms.normal_form import (
    accesses,
    contract_temps,
    reduces_then_maps,
    rename_axes,
    rename_slots,
    substitute,
    without_unit_axes,
)
from compiler.fuse.between import needed_elsewhere
from compiler.fuse.draft import bind, joined_family
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot
from compiler.ir.tensor import DType

LETTERS = ("s", "h", "e")
"""What names of the squeeze, the hidden and the excited kernel begin with while they are put together."""


MOST_IMAGES = 64
"""More of them are the pixels of a pool, and the products after it have rows enough to be worth a launch."""


def join_excitation(kernels: KernelGraph, at: Sequence[int]) -> Call | str:
    """One call that does all three at ascending positions, to stand where the last stood, or the reason why not."""
    calls = [kernels.calls[position] for position in at]
    for call, position in zip(calls, at[1:], strict=False):
        if reason := needed_elsewhere(kernels, call, position):
            return reason
    parts = [_part(call, letter) for call, letter in zip(calls, LETTERS, strict=True)]
    squeeze, *products = [part for part in parts if part is not None]
    if len(products) != 2 or not all(sums_products(contract_temps(part), DType.F32) for part in products):
        return "they are not a sum over positions and two products"
    if len(dict.fromkeys(squeeze.blocks[0].values[0].loads)) != 1:
        return "the first of them sums products too"
    joined = _joined(squeeze, products, calls)
    if isinstance(joined, str):
        return joined
    inputs = {
        f"{letter}_{slot.name}": id
        for call, letter in zip(calls, LETTERS, strict=True)
        for slot, id in zip(call.kernel.inputs, call.inputs, strict=True)
    }
    last = calls[-1]
    outputs = {f"{LETTERS[-1]}_{slot.name}": id for slot, id in zip(last.kernel.outputs, last.outputs, strict=True)}
    op = bind(contract_temps(joined), inputs, outputs, tuple(source for call in calls for source in call.sources))
    if as_excitation(op.kernel) is None:
        return "together they are not in the form of squeeze and excitation"
    return Call(op.kernel, op.inputs, op.outputs, (), op.sources)


def _part(call: Call, letter: str) -> Kernel | None:
    """A kernel that reduces at each point of its shared axes, its names distinct from those of others."""
    if not isinstance(call.kernel, Kernel) or not reduces_then_maps(contract_temps(call.kernel)):
        return None
    kernel = rename_axes(without_unit_axes(call.kernel), lambda name: f"{letter}_{name}")
    slots = (*kernel.inputs, *kernel.temps, *kernel.outputs)
    return rename_slots(kernel, {slot.name: f"{letter}_{slot.name}" for slot in slots})


def _joined(squeeze: Kernel, products: Sequence[Kernel], calls: Sequence[Call]) -> Kernel | str:
    """All blocks over the images, each on its own channels, hidden units or columns."""
    hidden, excited = products
    parts = [squeeze, hidden, excited]
    for at in (0, 1):
        before, after = parts[at : at + 2]
        made = before.outputs[0].name
        read = next(
            f"{LETTERS[at + 1]}_{slot.name}"
            for slot, id in zip(calls[at + 1].kernel.inputs, calls[at + 1].inputs, strict=True)
            if id == calls[at].outputs[0]
        )
        axes = _axes_between(before, made, after, read)
        if isinstance(axes, str):
            return axes
        parts[at + 1] = rename_slots(replace(_over(after, axes), inputs=_without(after, read)), {read: made})
    images = tuple(axis for axis in parts[0].shared if axis in parts[-1].shared)
    blocks: list[Block] = []
    for part in parts:
        own = tuple(axis for axis in part.shared if axis not in images)
        if len(own) != 1 or not {*images} <= {*part.shared}:
            return "they are not over the same images, each for one axis of its own"
        blocks += [replace(block, axes=own) for block in part.blocks]
    if prod(axis.extent for axis in images) > MOST_IMAGES:
        return "there are too many images"
    family = joined_family(joined_family(squeeze.family, hidden.family), excited.family)
    return Kernel(
        family,
        tuple(slot for part in parts for slot in part.inputs),
        excited.outputs,
        tuple(blocks),
        tuple(slot for part in parts for slot in (*part.temps, *part.outputs) if slot not in excited.outputs),
        images,
    )


def _without(kernel: Kernel, slot: str) -> tuple[Slot, ...]:
    """A kernel's inputs but for one."""
    return tuple(one for one in kernel.inputs if one.name != slot)


def _axes_between(before: Kernel, made: str, after: Kernel, read: str) -> Mapping[Axis, Index] | str:
    """For the reader's axes of images those of the kernel before it.

    The reader must sum over what that kernel stores along its other axis.
    """
    stored, loads = {*accesses(before, made)}, {*accesses(after, read)}
    if len(stored) != 1 or len(loads) != 1 or len(after.blocks[0].reduction) != 1:
        return "a product does not read one result for each of its terms"
    (over,) = after.blocks[0].reduction
    found: dict[Axis, Index] = {}
    for at, (store, load) in enumerate(zip(stored.pop(), loads.pop(), strict=True)):
        if load == store and not load.axes:
            continue
        if len(load.axes) != 1 or len(store.axes) != 1:
            return "a product does not read the results one by one"
        (one,), (other,) = load.axes, store.axes
        if (load, store) != (Index.of(one), Index.of(other)) or one.extent != other.extent:
            return f"a product reads other results than are stored along dimension {at}"
        if one != over:
            found[one] = Index.of(other)
    return found


def _over(kernel: Kernel, axes: Mapping[Axis, Index]) -> Kernel:
    """A kernel over other axes, of the same extents."""
    shared = tuple(next(iter(axes[axis].axes)) if axis in axes else axis for axis in kernel.shared)
    return replace(kernel, shared=shared, blocks=tuple(substitute(block, axes) for block in kernel.blocks))


def excitations(kernels: KernelGraph) -> tuple[tuple[tuple[int, ...], Call], ...]:
    """Every chain of three calls that may be joined so, with the call that it becomes."""
    forms = [contract_temps(call.kernel) if isinstance(call.kernel, Kernel) else None for call in kernels.calls]
    squeezes = {at for at, form in enumerate(forms) if form and _sums_one_operand(form)}
    products = {at for at, form in enumerate(forms) if form and sums_products(form, DType.F32)}
    chains = [
        (squeeze, hidden, position)
        for position in sorted(products)
        for hidden in _producers(kernels, position)
        if hidden in products
        for squeeze in _producers(kernels, hidden)
        if squeeze in squeezes
    ]
    joined = [(chain, join_excitation(kernels, chain)) for chain in chains]
    return tuple((chain, call) for chain, call in joined if isinstance(call, Call))


def _sums_one_operand(kernel: Kernel) -> bool:
    return reduces_then_maps(kernel) and len(dict.fromkeys(kernel.blocks[0].values[0].loads)) == 1


def _producers(kernels: KernelGraph, call: int) -> tuple[int, ...]:
    inputs = kernels.calls[call].inputs
    return tuple(dict.fromkeys(kernels.writer[id] for id in inputs if id in kernels.writer))
