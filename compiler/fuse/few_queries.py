"""Attention of few queries: products, the softmax between them and what says which keys count, made one call.

One token of a decoder multiplies each element of its cache with as many queries as share a head, so that three kernels
read little and wait for each other, and a mask of all keys is computed to say where the cache ends. Few rows do not
repay packing keys (`compiler.fuse.attention`); the joined call pays where keys and values are read where they lie,
which costs say.

A mask that a map makes of the places of keys is put into the call where it then says where keys end
(`compiler.forms.key_bounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.forms.attention import as_few_queries, softmax_axis, stored
from compiler.forms.bounds import Bound
from compiler.forms.key_bounds import key_bounds
from compiler.fuse.attention import (
    Kept,
    Trio,
    fitted,
    joined,
    kept_below,
    kept_under,
    product_of,
    without_choices,
)
from compiler.fuse.between import needed_elsewhere
from compiler.fuse.draft import Op, bind, only_block, store_axes
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot
from compiler.ir.tensor import DType


def few_query_attentions(kernels: KernelGraph) -> tuple[tuple[tuple[int, ...], Call], ...]:
    """Every three calls that may be joined so, and every call of attention that may make its mask itself.

    Each with the call that they become.
    """
    found: list[tuple[tuple[int, ...], Call]] = []
    for position, call in enumerate(kernels.calls):
        readers = kernels.readers[call.outputs[0]] if call.outputs else ()
        first = kernels.writer.get(call.inputs[0]) if call.inputs else None
        if first is not None and len(readers) == 1 and _softmax(call) is not None:
            whole = join_few_queries(kernels, first, position, readers[0])
            if isinstance(whole, Call):
                found.append(((first, position, readers[0]), whole))
        elif as_few_queries(call.kernel) is not None:
            own = _op(call)
            whole_op = with_own_mask(own, kernels)
            if whole_op is not own:
                found.append(((position,), _call(whole_op)))
    return tuple(found)


def join_few_queries(kernels: KernelGraph, first: int, softmax: int, second: int) -> Call | str:
    """One call that does all three, to stand where the second product stood, or the reason why not."""
    scores, over, mixed = (kernels.calls[at] for at in (first, softmax, second))
    found = _softmax(over)
    if found is None:
        return "it is no softmax in fp32"
    for call, reader in ((scores, softmax), (over, second)):
        if reason := needed_elsewhere(kernels, call, reader):
            return reason
    trio = Trio(_op(scores), found.plain, found.own, _op(mixed))
    if product_of(trio.scores) is None or product_of(trio.mixed) is None:
        return "what comes before or after it is no product"
    types = {id: kernels.buffers[id].type for call in (scores, over, mixed) for id in (*call.inputs, *call.outputs)}
    placed = fitted(trio, types)
    if isinstance(placed, str):
        return placed
    whole = kept_below(joined(placed, types), Kept(placed, found.op, found.kept))
    if whole is None:
        return "beyond a size of keys its argument is not -infinity"
    whole = _with_dropped_rows(whole, placed, found)
    if as_few_queries(whole.kernel) is None:
        return "together they are not in the form of attention, or have too many rows"
    return _call(with_own_mask(whole, kernels))


def _with_dropped_rows(whole: Op, trio: Trio, softmax: _Softmax) -> Op:
    """Attention whose results are 0 in rows that the softmax made 0."""
    kernel, own = whole.kernel, softmax.op.kernel
    assert isinstance(kernel, Kernel)
    assert isinstance(own, Kernel)
    if softmax.drops is None:
        return whole
    names = {slot.name: f"drops_{slot.name}" for slot in own.inputs}
    places = dict(zip(own.shared, map(Index.of, trio.axes), strict=False))
    drops = softmax.drops.substitute(places).transform(_renamed(names))
    read = {load.slot for load in drops.loads}
    more = [
        (replace(slot, name=names[slot.name]), value)
        for slot, value in zip(own.inputs, softmax.op.inputs, strict=True)
        if names[slot.name] in read
    ]
    longer = replace(kernel, inputs=(*kernel.inputs, *(slot for slot, _ in more)))
    op = replace(whole, kernel=longer, inputs=(*whole.inputs, *(value for _, value in more)))
    return kept_under(op, longer, [Apply("not", (drops,))])


def ends_keys(call: Call) -> bool:
    """Whether attention of few queries leaves out keys by their places."""
    return _count_bounds(_op(call)) > 0


def with_own_mask(op: Op, kernels: KernelGraph) -> Op:
    """Attention that computes, of what maps make for it, the conditions that say where keys end.

    The same where there is none such.
    """
    placed = _with_places(op, kernels.constants)
    found = placed if _count_bounds(placed) > _count_bounds(op) else op
    for value in op.inputs:
        at = kernels.writer.get(value)
        if at is None or kernels.buffers[value].dtype not in (DType.BOOL, DType.F32):
            continue
        taken = _with_map(found, value, _op(kernels.calls[at]))
        if taken is None:
            continue
        taken = _with_places(taken, kernels.constants)
        if _count_bounds(taken) > _count_bounds(found):
            return with_own_mask(taken, kernels)
    return found


def _count_bounds(op: Op) -> int:
    view = as_few_queries(op.kernel)
    return 0 if view is None else len(key_bounds(view).bounds)


def _with_map(op: Op, value: int, producer: Op) -> Op | None:
    """An op with a map's expression in the place of its result; None where what makes it is no map."""
    block, kernel, made = only_block(producer), op.kernel, producer.kernel
    if block is None or not isinstance(kernel, Kernel) or not isinstance(made, Kernel):
        return None
    axes = store_axes(block.stores[0], made.outputs[0].type.dims)
    slot = next(slot.name for slot, bound in zip(kernel.inputs, op.inputs, strict=True) if bound == value)
    if axes is None:
        return None
    inner = {one.name: f"made_{one.name}" for one in made.inputs}
    taken = block.values[0].transform(_renamed(inner))

    def put(expr: Expr) -> Expr:
        if not isinstance(expr, Load) or expr.slot != slot:
            return expr
        return taken.substitute({axis: at for axis, at in zip(axes, expr.index, strict=True) if axis is not None})

    blocks = tuple(replace(b, values=tuple(each.transform(put) for each in b.values)) for b in kernel.blocks)
    slots = tuple(replace(one, name=inner[one.name]) for one in made.inputs)
    whole = replace(kernel, inputs=(*kernel.inputs, *slots), blocks=blocks)
    inputs = dict(zip((one.name for one in whole.inputs), (*op.inputs, *producer.inputs), strict=True))
    outputs = dict(zip((one.name for one in kernel.outputs), op.outputs, strict=True))
    return bind(whole, inputs, outputs, op.sources)


def _with_places(op: Op, constants: Mapping[int, np.ndarray]) -> Op:
    """Constants that count up by one along their one long axis, written as the places that they are."""
    kernel = op.kernel
    assert isinstance(kernel, Kernel)
    counts = {
        slot.name: start
        for slot, value in zip(kernel.inputs, op.inputs, strict=True)
        if value in constants and (start := _start(constants[value])) is not None
    }
    if not counts:
        return op

    def place(expr: Expr) -> Expr:
        if not isinstance(expr, Load) or expr.slot not in counts:
            return expr
        (index,) = [at for at in expr.index if at != Index.of(0)] or [Index.of(0)]
        return Position(index + counts[expr.slot], expr.type)

    blocks = tuple(replace(b, values=tuple(each.transform(place) for each in b.values)) for b in kernel.blocks)
    inputs, outputs = (
        dict(zip((slot.name for slot in slots), values, strict=True))
        for slots, values in ((kernel.inputs, op.inputs), (kernel.outputs, op.outputs))
    )
    return bind(replace(kernel, blocks=blocks), inputs, outputs, op.sources)


def _start(array: np.ndarray) -> int | None:
    """The first of integers that count up by one; None for any other array."""
    flat = array.reshape(-1)
    if array.dtype not in (np.int32, np.int64) or array.size < 2 or max(array.shape) != array.size:
        return None
    return int(flat[0]) if bool((np.diff(flat) == 1).all()) else None


@dataclass(frozen=True)
class _Softmax:
    """A softmax along the axis `own` as `plain`, of a call that makes some of its results 0.

    kept   the sizes below which results are kept, with the values that they are
    drops  where rows are 0, if there are any
    """

    op: Op
    plain: Op
    own: Axis
    kept: tuple[tuple[Bound, int], ...] = ()
    drops: Expr | None = None


def _softmax(call: Call) -> _Softmax | None:
    """A call as a softmax and no more, but for results that it makes 0; None for any other call."""
    op, kernel = _op(call), call.kernel
    if not isinstance(kernel, Kernel):
        return None
    below, kept_sizes = without_choices(op)
    own = softmax_axis(below.kernel) if isinstance(below.kernel, Kernel) else None
    if own is not None:
        return _Softmax(op, below, own, kept_sizes)
    *before, last = kernel.blocks
    if len(before) < 3 or last.monoid or len(last.values) != 1 or len(kernel.outputs) != 1:
        return None
    (value,), zero = last.values, Const(0.0, DType.F32)
    if not isinstance(value, Where) or zero not in (value.then, value.otherwise):
        return None
    kept, condition = value.otherwise, value.condition
    if kept == zero:
        kept, condition = value.then, Apply("not", (condition,))
    if isinstance(kept, Load) and kept == stored(before[-1]) and last.stores[0].index == kept.index:
        last = before.pop()
        kept = last.values[0]
    blocks = (*before, replace(last, values=(kept,), stores=kernel.blocks[-1].stores))
    plain = replace(kernel, blocks=blocks, temps=tuple(slot for slot in kernel.temps if _is_used(slot, blocks)))
    inputs, outputs = (
        dict(zip((slot.name for slot in slots), values, strict=True))
        for slots, values in ((kernel.inputs, op.inputs), (kernel.outputs, op.outputs))
    )
    alone = bind(plain, inputs, outputs, op.sources)
    own = softmax_axis(alone.kernel) if isinstance(alone.kernel, Kernel) else None
    if own is None or any(axis in condition.axes for axis in last.axes):
        return None
    return _Softmax(op, alone, own, drops=condition)


def _is_used(slot: Slot, blocks: Sequence[Block]) -> bool:
    return any(slot.name in block.writes for block in blocks)


def _renamed(names: Mapping[str, str]) -> Callable[[Expr], Expr]:
    """Loads of slots under other names."""
    return lambda expr: replace(expr, slot=names[expr.slot]) if isinstance(expr, Load) else expr


def _op(call: Call) -> Op:
    return Op(call.kernel, call.inputs, call.outputs, call.sources)


def _call(op: Op) -> Call:
    return Call(op.kernel, op.inputs, op.outputs, (), op.sources)
