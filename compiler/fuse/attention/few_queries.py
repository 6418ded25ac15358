"""Attention of few queries: products, the softmax between them and what says which keys count, made one call.

One token of a decoder multiplies each element of its cache with as many queries as share a head, so that three kernels
read little and wait for each other, and a mask of all keys is computed to say where the cache ends. Few rows do not
repay packing keys (`compiler.fuse.attention.floats`); the joined call pays where keys and values are read where they
lie, which costs say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.forms.attention import as_few_queries, softmax_axis, stored
from compiler.forms.bounds import Bound
from compiler.fuse.attention.floats import (
    Kept,
    Trio,
    fitted,
    joined,
    kept_below,
    kept_under,
    product_of,
    without_choices,
)
from compiler.fuse.attention.key_ends import call_of, op_of, renamed, with_own_mask
from compiler.fuse.between import needed_elsewhere
from compiler.fuse.draft import Op, bind
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.expr import Apply, Const, Expr, Load, Where
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot
from compiler.ir.tensor import DType


def few_query_attentions(kernels: KernelGraph) -> tuple[tuple[tuple[int, ...], Call], ...]:
    """Every three calls that may be joined so, with the call that they become."""
    found: list[tuple[tuple[int, ...], Call]] = []
    for position, call in enumerate(kernels.calls):
        readers = kernels.readers[call.outputs[0]] if call.outputs else ()
        first = kernels.writer.get(call.inputs[0]) if call.inputs else None
        if first is not None and len(readers) == 1 and _softmax(call) is not None:
            whole = join_few_queries(kernels, first, position, readers[0])
            if isinstance(whole, Call):
                found.append(((first, position, readers[0]), whole))
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
    trio = Trio(op_of(scores), found.plain, found.own, op_of(mixed))
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
    return call_of(with_own_mask(whole, kernels))


def _with_dropped_rows(whole: Op, trio: Trio, softmax: _Softmax) -> Op:
    """Attention whose results are 0 in rows that the softmax made 0."""
    kernel, own = whole.kernel, softmax.op.kernel
    assert isinstance(kernel, Kernel)
    assert isinstance(own, Kernel)
    if softmax.drops is None:
        return whole
    names = {slot.name: f"drops_{slot.name}" for slot in own.inputs}
    places = dict(zip(own.shared, map(Index.of, trio.axes), strict=False))
    drops = softmax.drops.substitute(places).transform(renamed(names))
    read = {load.slot for load in drops.loads}
    more = [
        (replace(slot, name=names[slot.name]), value)
        for slot, value in zip(own.inputs, softmax.op.inputs, strict=True)
        if names[slot.name] in read
    ]
    longer = replace(kernel, inputs=(*kernel.inputs, *(slot for slot, _ in more)))
    op = replace(whole, kernel=longer, inputs=(*whole.inputs, *(value for _, value in more)))
    return kept_under(op, longer, [Apply("not", (drops,))])


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
    op, kernel = op_of(call), call.kernel
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
