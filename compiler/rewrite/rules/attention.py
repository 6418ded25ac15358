"""Attention written out: the products, the mask and the softmax between them get one shape, for fusion to join.

Exporters merge batch and heads for the products and take them apart for the mask (Keras, fairseq), transpose the scores
after the product (einsum of Keras), or repeat the heads of keys and values that several heads of queries share
(PyTorch's grouped queries: Expand between two Reshapes). Seen on g2p_bert and tiny_llama.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np

from compiler.ir.graph import Node
from compiler.rewrite.rounding import rounded
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.view import Draft, No, Rewrite, View

MAPS = ("Add", "Sub", "Mul", "Div", "Tanh", "Where", "PadBeyond", "PadOutside")
"""What may stand between the products: scales, caps, masks, and ends of rows and columns."""
PADS = ("PadBeyond", "PadOutside")
LENGTH = 12
"""Nodes between the products, at most."""

Dims = tuple[int, ...]


@dataclass(frozen=True)
class _Operand:
    """A tensor whose last two dimensions are a matrix.

    own, local  its batch dimensions, and those of the node that reads it: each is 1 or the same
    swap        whether the matrix is to be transposed
    factor      what it is to be multiplied with
    """

    value: int
    own: Dims
    local: Dims
    swap: bool = False
    factor: float = 1.0


@dataclass(frozen=True)
class _Chain:
    """What computes the weights of attention: the product of queries and keys, then `steps`, in order.

    Each step is a map with the position of the chain in its inputs, or the Softmax. `views` are the nodes that only
    change the shape.
    """

    scores: Node
    transposed: bool
    steps: tuple[tuple[Node, int], ...]
    views: tuple[Node, ...]


def attention_in_one_shape(view: View, node: Node) -> Rewrite | No | None:
    """softmax(reshape(q repeat(k)^T) + m) repeat(v) = reshape(softmax(q k^T + m) v),
    all over the same batch dimensions.
    """
    chain = _chain(view, node.used[0], LENGTH)
    if chain is None or sum(step.op == "Softmax" for step, _ in chain.steps) != 1:
        return None
    local = _batch(view, chain.scores.outputs[0])
    queries, keys = chain.scores.used[::-1] if chain.transposed else chain.scores.used
    q = _operand(view, queries, local, swap=chain.transposed, repeated=True)
    k = _operand(view, keys, local, swap=chain.transposed)
    v = _operand(view, node.used[1], _batch(view, node.outputs[0]))
    if q is None or k is None or v is None:
        return None
    if not chain.views and all(one.value in (*chain.scores.used, node.used[1]) for one in (q, k, v)):
        return None
    parts = _parts(view, node, chain, (q, k, v))
    if parts is None:
        return No("the batches of the products and of what is between them have no common form")
    batches = zip(_in_parts(q.own, q.local, parts), _in_parts(k.own, k.local, parts), strict=True)
    if tuple(max(pair) for pair in batches) != parts:
        return No("neither queries nor keys have the whole batch, if keys are not repeated")
    swallowed = [chain.scores, *chain.views, *(step for step, _ in chain.steps)]
    if (refusal := view.enclosed(node, swallowed)) is not None:
        return refusal
    return _written(view, node, chain, (q, k, v), parts)


def _batch(view: View, value: int) -> Dims:
    return view.dims(value)[:-2]


def _chain(view: View, value: int, length: int) -> _Chain | None:
    """The way from a value up to a product of two tensors."""
    node = view.producer(value, "MatMul", "Softmax", "Reshape", "Transpose", *MAPS)
    if node is None or not length or len(view.dims(value)) < 2:
        return None
    dims = view.dims(value)
    if node.op == "MatMul":
        known = any(read in view.constants or len(view.dims(read)) < 3 for read in node.used)
        return None if known else _Chain(node, False, (), ())
    if node.op in ("Reshape", "Transpose"):
        return _behind_view(view, node, length)
    if node.op == "Softmax":
        above = _chain(view, node.used[0], length - 1) if node.attrs.get("axis", -1) in (-1, len(dims) - 1) else None
        return None if above is None else replace(above, steps=(*above.steps, (node, 0)))
    if node.op in PADS and _from_end(node, dims) < -2:
        return None
    for position, read in enumerate(node.inputs):
        if read is not None and view.dims(read) == dims and not (node.op == "Where" and position == 0):
            above = _chain(view, read, length - 1)
            if above is not None and not (node.op == "Div" and position == 1):
                return replace(above, steps=(*above.steps, (node, position)))
    return None


def _behind_view(view: View, node: Node, length: int) -> _Chain | None:
    """A Reshape that keeps the rows and columns, or a Transpose of them right behind the product."""
    before, after = view.dims(node.used[0]), view.dims(node.outputs[0])
    if node.op == "Reshape" and before[-2:] != after[-2:]:
        return None
    if node.op == "Transpose" and not _swaps(node):
        return None
    above = _chain(view, node.used[0], length - 1)
    if above is None or (node.op == "Transpose" and above.steps):
        return None
    return replace(above, views=(*above.views, node), transposed=above.transposed != (node.op == "Transpose"))


def _from_end(node: Node, dims: Dims) -> int:
    """The axis of a node, counted from the last one, which is -1."""
    axis = node.attrs["axis"]
    assert isinstance(axis, int)
    return axis % len(dims) - len(dims)


def _swaps(node: Node) -> bool:
    """Whether a Transpose exchanges the last two axes and nothing else."""
    perm = node.attrs["perm"]
    assert isinstance(perm, tuple)
    rank = len(perm)
    return perm == (*range(rank - 2), rank - 1, rank - 2)


def _operand(view: View, value: int, local: Dims, swap: bool = False, repeated: bool = False) -> _Operand | None:
    """An operand of a product; if its batch is repeated, what is repeated, unless it is to stay `repeated`."""
    dims = view.dims(value)
    if len(dims) < 2:
        return None
    whole = _Operand(value, (*(1,) * (len(local) + 2 - len(dims)), *dims[:-2]), local, swap)
    node = view.producer(value, "Transpose")
    if swap and node is not None and _swaps(node):
        whole = replace(whole, value=node.used[0], swap=False)
    return whole if repeated else _unrepeated(view, value, whole, swap, 1.0) or whole


def _unrepeated(view: View, value: int, whole: _Operand, swap: bool, factor: float) -> _Operand | None:
    node = view.producer(value, "Transpose", "Mul", "Reshape", "Expand")
    if node is None:
        return None
    if node.op == "Transpose":
        return _unrepeated(view, node.used[0], whole, not swap, factor) if _swaps(node) else None
    if node.op == "Mul":
        for read, array in view.operands(node):
            if array.size == 1 and view.dims(read) == view.dims(value):
                return _unrepeated(view, read, whole, swap, factor * float(array.reshape(-1)[0]))
        return None
    spread = node if node.op == "Expand" else view.producer(node.used[0], "Expand")
    if spread is None or view.dims(spread.outputs[0])[-2:] != view.dims(value)[-2:] or whole.own != whole.local:
        return None
    own, local = view.dims(spread.used[0]), view.dims(spread.outputs[0])
    own = (*(1,) * (len(local) - len(own)), *own)
    if len(view.dims(spread.used[0])) < 2 or own[-2:] != local[-2:] or prod(local) != prod(view.dims(value)):
        return None
    return _Operand(spread.used[0], own[:-2], local[:-2], swap, factor)


def _parts(view: View, node: Node, chain: _Chain, operands: tuple[_Operand, ...]) -> Dims | None:
    """The extents that the batch is to have: those that need the fewest Reshapes.

    The coarsest and the finest extents that serve all operands are compared.
    """
    own = [(one.own, one.local) for one in operands]
    for step, position in chain.steps:
        local = _batch(view, step.outputs[0])
        others = [view.dims(read) for at, read in enumerate(step.inputs) if read is not None and at != position]
        own += [(_padded(dims, len(local))[:-2], local) for dims in others]
    result = _batch(view, node.outputs[0])
    finest = _refined([_cuts(one) for _, one in own] + [_cuts(result)])
    coarsest = _refined([_runs(mine, whole) for mine, whole in own])

    def reshapes(parts: Dims) -> int:
        found = [view.dims(one.value)[:-2] != _in_parts(one.own, one.local, parts) for one in operands]
        found += [mine != _in_parts(mine, whole, parts) for mine, whole in own[len(operands) :]]
        return sum(found) + (result != parts)

    return min((parts for parts in (coarsest, finest) if parts is not None), key=reshapes, default=None)


def _padded(dims: Dims, batches: int) -> Dims:
    return (*(1,) * (batches + 2 - len(dims)), *dims)


def _cuts(batch: Dims) -> set[int]:
    """Products of the first extents: where a dimension ends."""
    return {prod(batch[:at]) for at in range(len(batch) + 1)}


def _runs(own: Dims, local: Dims) -> set[int]:
    """The cuts of `local` between dimensions that `own` has and those that it does not have."""
    long = [at for at, extent in enumerate(local) if extent > 1]
    kinds = [own[at] == local[at] for at in long]
    inner = {prod(local[:at]) for at, before, kind in zip(long[1:], kinds, kinds[1:], strict=False) if before != kind}
    return {1, *inner, prod(local)}


def _refined(cuts: Sequence[set[int]]) -> Dims | None:
    """The extents between all of these cuts; None for different batches, or a cut inside of another one's extent."""
    places = sorted(set().union(*cuts))
    if len({max(one) for one in cuts}) != 1 or not places[0]:
        return None
    steps = list(pairwise(places))
    return None if any(after % before for before, after in steps) else tuple(b // a for a, b in steps)


def _in_parts(own: Dims, local: Dims, parts: Dims) -> Dims:
    """`own` dimensions, each 1 or that of `local`, as they are where `local` has become `parts`."""
    places, found = [1], []
    for part in parts:
        begin, end = places[-1], places[-1] * part
        inside = [
            at for at, n in enumerate(local) if n > 1 and prod(local[:at]) < end and prod(local[: at + 1]) > begin
        ]
        found.append(part if all(own[at] == local[at] for at in inside) else 1)
        places.append(end)
    return tuple(found)


def _written(
    view: View, node: Node, chain: _Chain, operands: tuple[_Operand, _Operand, _Operand], parts: Dims
) -> Rewrite | No:
    draft = view.draft(node)
    q, k, v = operands
    q, k = replace(q, factor=q.factor * k.factor), replace(k, factor=1.0)
    inputs = []
    for operand in (q, k):
        value = _put(view, draft, operand, parts)
        if isinstance(value, No):
            return value
        inputs.append(value)
    last = draft.node("MatMul", tuple(inputs), {}, chain.scores.source)
    for step, position in chain.steps:
        local = _batch(view, step.outputs[0])
        reads: list[int | None] = []
        for at, read in enumerate(step.inputs):
            reads.append(last if at == position else None if read is None else _beside(view, draft, read, local, parts))
        attrs = {"axis": -1} if step.op == "Softmax" else step.attrs
        if step.op in PADS:
            attrs = {**attrs, "axis": _from_end(step, view.dims(step.outputs[0]))}
        last = draft.node(step.op, tuple(reads), attrs, step.source)
    values = _put(view, draft, v, parts)
    if isinstance(values, No):
        return values
    last = draft.node("MatMul", (last, values))
    dims = view.dims(node.outputs[0])
    if dims[:-2] != parts:
        draft.node("Reshape", (last, None), {"shape": dims, "allowzero": int(0 in dims)})
    return draft.done("the products of attention and what is between them have one shape")


def _put(view: View, draft: Draft, operand: _Operand, parts: Dims) -> int | No:
    dims = view.dims(operand.value)
    wanted = (*_in_parts(operand.own, operand.local, parts), *dims[-2:])
    value = operand.value
    if dims != wanted:
        value = draft.node("Reshape", (value, None), {"shape": wanted, "allowzero": int(0 in wanted)})
    if operand.swap:
        rank = len(wanted)
        value = draft.node("Transpose", (value,), {"perm": (*range(rank - 2), rank - 1, rank - 2)})
    if operand.factor != 1.0:
        factor = rounded(np.asarray(operand.factor), view.type(operand.value).dtype)
        if isinstance(factor, No):
            return factor
        value = draft.node("Mul", (value, draft.constant(factor)))
    return value


def _beside(view: View, draft: Draft, value: int, local: Dims, parts: Dims) -> int:
    """Another operand of a map, in the parts of the batch."""
    dims = view.dims(value)
    padded = _padded(dims, len(local))
    wanted = (*_in_parts(padded[:-2], local, parts), *padded[-2:])
    if dims == wanted or (len(dims) <= len(wanted) and all(n == 1 for n in (*dims[:-2], *wanted[:-2]))):
        return value
    return draft.node("Reshape", (value, None), {"shape": wanted, "allowzero": int(0 in wanted)})


RULES: tuple[Rule, ...] = (Rule(REASSOCIATES, ("MatMul",), attention_in_one_shape),)
