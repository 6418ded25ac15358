"""Attention: a product, the softmax of its rows, and the product of those with values, made one kernel.

The three share the axes of their batches and of the queries; what they do along the keys becomes loops of their own
blocks. So the scores, which grow with the product of both lengths, are never stored whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from compiler.forms.attention import MIN_QUERIES, as_attention, as_few_queries, softmax_axis
from compiler.forms.bounds import Bound, bound_of, neutral_from
from compiler.forms.normal_form import rename_slots, substitute
from compiler.fuse.draft import Draft, Op, bind, is_copy, joined_family, store_axes
from compiler.fuse.epilogue import join
from compiler.fuse.refusal import Refusal, name_of
from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where, conjunction
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType

UNPLACED = Axis("e", 1)
"""Stands for the columns of a trio of which it is not known yet whether they may be joined."""


@dataclass(frozen=True)
class Trio:
    """Products before and after a softmax, and the joined kernel's axes: the scores' and the values' columns.

    scores  the first product; the softmax reads its only result as its first input
    over    the softmax, perhaps with maps around it, along the axis `own`
    mixed   the product with the values, whose sum is in the dtype `total`
    """

    scores: Op
    over: Op
    own: Axis
    mixed: Op
    total: DType = DType.F32
    axes: tuple[Axis, ...] = ()
    columns: Axis = UNPLACED


@dataclass(frozen=True)
class Kept:
    """Sizes below which the softmax of `trio` keeps its result, with the values that they are.

    softmax  the op before it lost these choices
    """

    trio: Trio
    softmax: Op
    kept: tuple[tuple[Bound, int], ...]


def join_attention(draft: Draft, refusals: list[Refusal]) -> None:
    """Makes one op of every score product, softmax and value product that may be one, with the copy that follows it."""
    for op in list(draft.ops):
        plain, kept = without_choices(op)
        own = softmax_axis(plain.kernel) if isinstance(plain.kernel, Kernel) else None
        if own is not None:
            trio = _trio(op, plain, own, draft)
            if isinstance(trio, str):
                refusals.append(_refusal(op, trio))
                continue
            whole = kept_below(joined(trio, draft.types), Kept(trio, op, kept))
            if whole is None:
                refusals.append(_refusal(op, "beyond a size of keys its argument is not -infinity"))
                continue
            found = as_attention(whole.kernel)
            if found is None:
                alone = draft.types[op.inputs[0]].dims[-2] == 1
                form = "together with the products it is not in the form of attention"
                refusals.append(_refusal(op, "one row does not repay packing the keys" if alone else form))
                continue
            if found.queries < MIN_QUERIES:
                refusals.append(_refusal(op, f"{found.queries} rows do not repay packing the keys"))
                continue
            draft.ops.replace([trio.scores, op, trio.mixed], whole, trio.mixed)
            _take_copy(whole, draft)


def _refusal(softmax: Op, reason: str) -> Refusal:
    family = softmax.kernel.family
    return Refusal("attention", family, name_of(softmax.sources, family), reason, softmax.outputs[0])


def _take_copy(op: Op, draft: Draft) -> None:
    """A transpose of the result is left to its stores."""
    readers = draft.ops.readers(op.outputs[0])
    if len(readers) == 1 and is_copy(readers[0]) and op.outputs[0] not in draft.kept:
        place = draft.place_of_both(op, readers[0])
        both = join(op, readers[0], draft)
        if place is not None and isinstance(both, Op):
            draft.ops.replace([op, readers[0]], both, place)


def without_choices(op: Op) -> tuple[Op, tuple[tuple[Bound, int], ...]]:
    """A kernel whose last result is kept below sizes, and 0 beyond, as one that keeps all of it; the bounds.

    Each comes with the value that its size is.
    """
    kernel = op.kernel
    if not isinstance(kernel, Kernel) or kernel.blocks[-1].monoid or len(kernel.blocks[-1].values) > 1:
        return op, ()
    inputs, kept = frozenset(slot.name for slot in kernel.inputs), []
    (value,) = kernel.blocks[-1].values
    while isinstance(value, Where) and value.otherwise == Const(0.0, value.dtype):
        bound = bound_of(value.condition, inputs)
        if bound is None:
            break
        kept.append((bound, _value(op, bound.size.slot)))
        value = value.then
    if not kept:
        return op, ()
    plain = replace(kernel, blocks=(*kernel.blocks[:-1], replace(kernel.blocks[-1], values=(value,))))
    bound_inputs = {slot.name: value for slot, value in zip(kernel.inputs, op.inputs, strict=True)}
    outputs = {slot.name: value for slot, value in zip(kernel.outputs, op.outputs, strict=True)}
    return bind(plain, bound_inputs, outputs, op.sources), tuple(kept)


def _value(op: Op, slot: str) -> int:
    return next(value for one, value in zip(op.kernel.inputs, op.inputs, strict=True) if one.name == slot)


def kept_below(whole: Op, parts: Kept) -> Op | None:
    """The joined kernel with its product with the values kept where the softmax was, and 0 elsewhere.

    Weights of keys beyond a size are 0 because their scores are -infinity; where there is no key at all they are not
    numbers, and the result is 0. None where scores beyond such a size are anything else.
    """
    kernel = whole.kernel
    view = as_attention(kernel) or as_few_queries(kernel)
    if not parts.kept or view is None or not isinstance(kernel, Kernel):
        return whole
    over, own = parts.trio.over.kernel, parts.trio.own
    assert isinstance(over, Kernel)
    by_place = dict(zip(over.shared, map(Index.of, parts.trio.axes), strict=False))
    ends = neutral_from(
        (view.scores, *view.maps)[-1].values[0], view.keys, float("-inf"), frozenset(s.name for s in kernel.inputs)
    )
    conditions: list[Expr] = []
    for bound, value in parts.kept:
        at = whole.inputs.index(value) if value in whole.inputs else None
        size = None if at is None else Load(kernel.inputs[at].name, (), bound.size.dtype)
        if size is None or (own in bound.place.axes and (bound.place != Index.of(own) or size not in ends)):
            return None
        place = Index.of(0) if own in bound.place.axes else bound.place.substitute(by_place)
        conditions.append(Apply("lt", (Position(place), size)))
    return kept_under(whole, kernel, conditions)


def kept_under(whole: Op, kernel: Kernel, conditions: list[Expr]) -> Op:
    """The product with the values, the last sum of a kernel, kept under conditions, and 0 elsewhere.

    `kernel` is that of `whole`, perhaps with slots for the last of its inputs that conditions read.
    """
    at = max(place for place, block in enumerate(kernel.blocks) if block.monoid)
    product, condition = kernel.blocks[at], conjunction(conditions)
    (store,) = product.stores
    assert condition is not None
    kept = Where(condition, Load("kept", store.index, DType.F32), Const(0.0, DType.F32))
    blocks = (
        *kernel.blocks[:at],
        replace(product, stores=(Store("kept", store.index),)),
        Block(product.axes, (kept,), (store,)),
        *kernel.blocks[at + 1 :],
    )
    temps = (*kernel.temps, Slot("kept", kernel.slots[store.slot].type))
    inputs = {slot.name: value for slot, value in zip(kernel.inputs, whole.inputs, strict=True)}
    outputs = {slot.name: value for slot, value in zip(kernel.outputs, whole.outputs, strict=True)}
    return bind(replace(kernel, blocks=blocks, temps=temps), inputs, outputs, whole.sources)


def _trio(softmax: Op, plain: Op, own: Axis, draft: Draft) -> Trio | str:
    """The products before and after a softmax, or why they are not joined with it."""
    into, out = plain.inputs[0], plain.outputs[0]
    scores, followers = draft.ops.maker(into), draft.ops.readers(out)
    if scores is None or product_of(scores) is None:
        return "its argument is no sum of products"
    if len(followers) != 1 or product_of(followers[0]) is None:
        return "its result is not the operand of one product"
    mixed = followers[0]
    if into in draft.kept or out in draft.kept or len(draft.ops.readers(into)) != 1 or len(scores.outputs) != 1:
        return "what lies between it and the products is needed elsewhere"
    if draft.place_of_both(scores, softmax) is not softmax or draft.place_of_both(softmax, mixed) is not mixed:
        return "another kernel needs a value in between"
    return fitted(Trio(scores, plain, own, mixed), draft.types)


def product_of(op: Op, total: DType = DType.F32) -> Block | None:
    """The first block of a product, summed in a dtype, followed by maps, all at the points of the shared axes."""
    kernel = op.kernel
    if not isinstance(kernel, Kernel) or kernel.sequential or any(block.axes for block in kernel.blocks):
        return None
    first, *rest = kernel.blocks
    value = first.values[0]
    if first.monoid != "sum" or first.accumulator is not total or any(block.monoid for block in rest):
        return None
    return first if isinstance(value, Apply) and value.function == "mul" and first.reduction else None


def fitted(trio: Trio, types: Mapping[int, TensorType]) -> Trio | str:
    """The same with the joined kernel's axes, where all three run over the same points; else why not."""
    scores, softmax, mixed = trio.scores, trio.over, trio.mixed
    over, dims = softmax.kernel, types[softmax.inputs[0]].dims
    product = product_of(mixed, trio.total)
    assert isinstance(over, Kernel)
    assert product is not None
    if over.slots[over.inputs[0].name].type.dims != dims or len(dims) < 2 or trio.own.extent != dims[-1]:
        return "it normalises another axis than the last"
    slot = _slot(mixed, softmax.outputs[0])
    loads = [load for value in product.values for load in value.loads if load.slot == slot]
    if len(loads) != 1 or len(product.reduction) != 1:
        return "the product that follows reads it in another way"
    (weights,) = loads
    shared = tuple(Axis(f"i{place}", extent) for place, extent in enumerate(dims[:-1]))
    axes = (*shared, Axis("j", dims[-1]))
    columns = [axis for axis in mixed.kernel.shared if axis not in weights.axes]  # type: ignore[union-attr]
    columns = [axis for axis in columns if axis.extent > 1]
    stored = {*(axis for index in weights.index for axis in index.axes)}
    wanted = tuple(Index.of(axis) for axis in weights.index[-1].axes)
    if weights.index[-1:] != wanted or not {*product.reduction} <= stored or len(columns) != 1:
        return "the product that follows reads it in another way"
    if _mapping(weights.index, axes) is None:
        return "the product that follows does not read it row by row"
    if _mapping_of_scores(scores, axes, types) is None:
        return "the scores are not stored in order"
    return replace(trio, axes=axes, columns=Axis("e", columns[0].extent))


def _slot(op: Op, value: int) -> str:
    return next(slot.name for slot, bound in zip(op.kernel.inputs, op.inputs, strict=True) if bound == value)


def _mapping(index: tuple[Index, ...], axes: tuple[Axis, ...]) -> dict[Axis, Index] | None:
    """Which axis of `axes` each axis of an index is, where the index covers their points in order."""
    mapping: dict[Axis, Index] = {}
    for position, axis in zip(index, axes, strict=True):
        if axis.extent == 1 and position == Index.of(0):
            continue
        old = next(iter(position.axes), None)
        if old is None or position != Index.of(old) or old.extent != axis.extent or old in mapping:
            return None
        mapping[old] = Index.of(axis)
    return mapping


def _mapping_of_scores(op: Op, axes: tuple[Axis, ...], types: Mapping[int, TensorType]) -> dict[Axis, Index] | None:
    kernel = op.kernel
    assert isinstance(kernel, Kernel)
    store = next(store for store in kernel.blocks[-1].stores)
    if store.slot != kernel.outputs[0].name or store_axes(store, types[op.outputs[0]].dims) is None:
        return None
    return _mapping(store.index, axes)


def joined(trio: Trio, types: Mapping[int, TensorType]) -> Op:
    """One op over the axes of batches and queries."""
    *shared, keys = trio.axes
    first = _moved(trio.scores, "s", _mapping_of_scores(trio.scores, trio.axes, types) or {}, (keys,))
    over, own = trio.over.kernel, trio.own
    assert isinstance(over, Kernel)
    by_place = dict(zip((*over.shared, own), map(Index.of, trio.axes), strict=True))
    second = _moved(trio.over, "p", by_place, ())
    second = replace(
        second,
        blocks=tuple(
            replace(block, axes=_renamed(block.axes, own, keys), reduction=_renamed(block.reduction, own, keys))
            for block in second.blocks
        ),
    )
    third = _third(trio, (*shared, keys))
    between = {trio.over.inputs[0]: "scores", trio.over.outputs[0]: "weights"}
    ops = (trio.scores, trio.over, trio.mixed)
    inputs: dict[str, int] = {}
    slots: list[Slot] = []
    kernels = []
    for letter, op, kernel in zip("spm", ops, (first, second, third), strict=True):
        bound = {f"{letter}_{slot.name}": value for slot, value in zip(op.kernel.inputs, op.inputs, strict=True)}
        made = {f"{letter}_{slot.name}": value for slot, value in zip(op.kernel.outputs, op.outputs, strict=True)}
        inner = {name: between[value] for name, value in {**bound, **made}.items() if value in between}
        kernels.append(rename_slots(kernel, inner))
        inputs |= {name: value for name, value in bound.items() if name not in inner}
        slots += [slot for slot in kernel.inputs if slot.name not in inner]
    temps = [slot for kernel in kernels for slot in kernel.temps]
    temps += [Slot(name, types[value]) for value, name in between.items()]
    kernel = Kernel(
        joined_family(joined_family(trio.scores.kernel.family, over.family), trio.mixed.kernel.family),
        tuple(slots),
        kernels[2].outputs,
        tuple(block for kernel in kernels for block in kernel.blocks),
        tuple(temps),
        tuple(shared),
    )
    outputs = dict(zip((slot.name for slot in kernel.outputs), trio.mixed.outputs, strict=True))
    return bind(kernel, inputs, outputs, tuple(source for op in ops for source in op.sources))


def _renamed(axes: tuple[Axis, ...], old: Axis, new: Axis) -> tuple[Axis, ...]:
    return tuple(new if axis == old else axis for axis in axes)


def _moved(op: Op, letter: str, mapping: Mapping[Axis, Index], own: tuple[Axis, ...]) -> Kernel:
    """A kernel's blocks at other axes, each with `own` axes; a letter makes slots and reduction axes distinct."""
    kernel = op.kernel
    assert isinstance(kernel, Kernel)
    names = {slot.name: f"{letter}_{slot.name}" for slot in (*kernel.inputs, *kernel.temps, *kernel.outputs)}
    blocks = []
    for block in rename_slots(kernel, names).blocks:
        depth = {axis: Axis(f"{letter}_{axis.name}", axis.extent) for axis in block.reduction if axis not in mapping}
        moved = substitute(block, {**mapping, **{old: Index.of(new) for old, new in depth.items()}})
        reduction = tuple(depth.get(axis, axis) for axis in block.reduction)
        blocks.append(replace(moved, axes=(*block.axes, *own), reduction=reduction))
    return replace(rename_slots(kernel, names), blocks=tuple(blocks), shared=())


def _third(trio: Trio, axes: tuple[Axis, ...]) -> Kernel:
    """The product with the values: its reduction is over the keys, its columns are axes of its own blocks."""
    product = product_of(trio.mixed, trio.total)
    kernel = trio.mixed.kernel
    assert isinstance(kernel, Kernel)
    assert product is not None
    slot = _slot(trio.mixed, trio.over.outputs[0])
    weights = next(load for load in product.values[0].loads if load.slot == slot)
    mapping = _mapping(weights.index, axes) or {}
    columns = next(axis for axis in kernel.shared if axis not in weights.axes and axis.extent > 1)
    moved = _moved(trio.mixed, "m", {**mapping, columns: Index.of(trio.columns)}, (trio.columns,))
    return replace(
        moved,
        blocks=tuple(replace(block, reduction=(axes[-1],) if block.reduction else ()) for block in moved.blocks),
    )
