"""Reductions of reductions, of maps, and of views."""

from __future__ import annotations

from math import prod

from compiler.ir.graph import Node
from compiler.ops import having
from compiler.ops.attributes import axes_of, ints
from compiler.ops.traits import Trait
from compiler.rewrite.pattern import match, op, value
from compiler.rewrite.rounding import near
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.rules.shapes import reshape_to
from compiler.rewrite.view import Draft, No, Rewrite, View

Axes = tuple[int, ...]

FOLDS = tuple(sorted(having(Trait.STEPWISE)))
REDUCTIONS = tuple(sorted(having(Trait.REDUCTION)))


def _axes(view: View, node: Node) -> Axes:
    """The axes that a reduction removes, in order."""
    rank = view.type(node.used[0]).rank
    axes = axes_of(node, rank)
    if not axes:
        return () if node.attrs.get("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(axes))


def _reduce(draft: Draft, op: str, value: int, axes: Axes, keep: bool) -> int:
    return draft.node(op, (value, None), {"axes": axes, "keepdims": int(keep), "noop_with_empty_axes": int(not axes)})


def _reduced(view: View, node: Node, value: int, axes: Axes, why: str) -> Rewrite:
    """The node's reduction of another value over other axes, in the node's shape."""
    dims, result = view.dims(value), view.dims(node.outputs[0])
    shapes = {
        keep: tuple(1 if axis in axes else n for axis, n in enumerate(dims) if keep or axis not in axes)
        for keep in (False, True)
    }
    keep = next((keep for keep, shape in shapes.items() if shape == result), False)
    draft = view.draft(node)
    reduced = _reduce(draft, node.op, value, axes, keep)
    if shapes[keep] != result:
        reshape_to(draft, reduced, result)
    return draft.done(why)


def reduction_over_unit_axes(view: View, node: Node) -> Rewrite | No | None:
    """reduce(x, a) = reshape(x), where the axes a have extent 1, for sums, means, products and extremes.

    A negative zero stays negative where a sum that starts from 0 would be a positive one.
    """
    x, result = view.type(node.used[0]), view.type(node.outputs[0])
    if any(x.dims[axis] != 1 for axis in _axes(view, node)) or 0 in x.dims:
        return None
    draft = view.draft(node)
    if x == result:
        return draft.same(node.used[0], why="it reduces nothing")
    reshape_to(draft, node.used[0], result.dims)
    return draft.done("it reduces axes of extent 1")


def reduction_of_reduction(view: View, node: Node) -> Rewrite | No | None:
    """reduce(reduce(x, a), b) = reduce(x, a + b), for sums, means, products and extremes."""
    inner = view.producer(node.used[0], node.op)
    if inner is None:
        return None
    if (refusal := view.enclosed(node, [inner])) is not None:
        return refusal
    if node.op == "ReduceMean" and not view.type(node.outputs[0]).dtype.is_float:
        return No("a mean of integers is rounded")
    x, first = inner.used[0], _axes(view, inner)
    left = [axis for axis in range(view.type(x).rank) if inner.attrs.get("keepdims", 1) or axis not in first]
    axes = tuple(sorted({*first, *(left[axis] for axis in _axes(view, node))}))
    return _reduced(view, node, x, axes, "two reductions become one")


def reduction_of_transpose(view: View, node: Node) -> Rewrite | No | None:
    """reduce(transpose(x, p), a) = reduce(x, p[a]), where the axes that are left keep their order."""
    inner = view.producer(node.used[0], "Transpose")
    if inner is None:
        return None
    x = inner.used[0]
    dims = view.dims(x)
    perm = ints(inner, "perm") or tuple(reversed(range(len(dims))))
    axes = _axes(view, node)
    left = [source for axis, source in enumerate(perm) if axis not in axes and dims[source] != 1]
    if left != sorted(left):
        return No("the axes that are left are in another order")
    return _reduced(view, node, x, tuple(sorted(perm[axis] for axis in axes)), "the axes are renamed")


def reshape_of_reduction(view: View, node: Node) -> Rewrite | No | None:
    """reshape(reduce(x, keepdims=k)) = reduce(x, keepdims=1 - k)."""
    inner = view.producer(node.used[0], *REDUCTIONS)
    if inner is None or not (axes := _axes(view, inner)):
        return None
    dims, keep = view.dims(inner.used[0]), not inner.attrs.get("keepdims", 1)
    wanted = tuple(1 if axis in axes else n for axis, n in enumerate(dims) if keep or axis not in axes)
    if wanted != view.dims(node.outputs[0]):
        return None
    if (refusal := view.enclosed(node, [inner])) is not None:
        return refusal
    draft = view.draft(node)
    _reduce(draft, inner.op, inner.used[0], axes, keep)
    return draft.done("the reduction keeps its axes itself" if keep else "the reduction drops its axes itself")


def mean_by_sum(view: View, node: Node) -> Rewrite | No | None:
    """reduce_sum(x) * (1 / n) = reduce_mean(x), over n elements."""
    for summed, array in view.operands(node):
        inner = view.producer(summed, "ReduceSum")
        if inner is None or array.size != 1 or view.type(summed) != view.type(node.outputs[0]):
            continue
        if not view.type(summed).dtype.is_float:
            continue
        axes, dims = _axes(view, inner), view.dims(inner.used[0])
        count = prod(dims[axis] for axis in axes)
        if not axes or not near(float(array.reshape(-1)[0]) * count, 1.0):
            continue
        if (refusal := view.enclosed(node, [inner])) is not None:
            return refusal
        draft = view.draft(node)
        _reduce(draft, "ReduceMean", inner.used[0], axes, bool(inner.attrs.get("keepdims", 1)))
        return draft.done(f"a sum of {count} elements is divided by {count}")
    return None


def mean_over_space(view: View, node: Node) -> Rewrite | No | None:
    """reduce_mean(x: n c h w, (2, 3)) = reshape(global_average_pool(x)).

    Layouts are chosen for pools, and nets written in PyTorch end in `x.mean((2, 3))`. What is, or may become, part of a norm is left.
    """
    x, result = view.type(node.used[0]), view.dims(node.outputs[0])
    if x.rank not in (4, 5) or _axes(view, node) != tuple(range(2, x.rank)) or not x.dtype.is_float or 0 in x.dims:
        return None
    square = view.producer(node.used[0], "Mul", "Pow")
    if (square is not None and len({*square.used} - view.constants.keys()) == 1) or any(
        reader.op == "Sub" for reader in view.readers(node.outputs[0])
    ):
        return No("it may be the mean or variance of a norm")
    draft = view.draft(node)
    pooled = draft.node("GlobalAveragePool", (node.used[0],))
    if result != (*x.dims[:2], *(1,) * (x.rank - 2)):
        reshape_to(draft, pooled, result)
    return draft.done("it is a mean over space")


X = value("x")
ROOT = op("Sqrt", op("ReduceSum", op("Mul", X, X), name="sum"))


def norm_by_squares(view: View, node: Node) -> Rewrite | No | None:
    """sqrt(reduce_sum(x * x)) = reduce_l2(x)."""
    found = match(view, node, ROOT)
    if found is None:
        return None
    if (refusal := view.enclosed(node, found.nodes)) is not None:
        return refusal
    inner = found.named["sum"]
    draft = view.draft(node)
    _reduce(draft, "ReduceL2", found["x"], _axes(view, inner), bool(inner.attrs.get("keepdims", 1)))
    return draft.done("it is the length of a vector")


def place_of_greatest(view: View, node: Node) -> Rewrite | No | None:
    """argmax(softmax(x)) = argmax(x), along one axis."""
    inner = view.producer(node.used[0], "Softmax", "LogSoftmax")
    if inner is None:
        return None
    rank = view.type(node.used[0]).rank
    axes = (node.attrs.get("axis", 0), inner.attrs.get("axis", -1))
    if len({axis % rank for axis in axes if isinstance(axis, int)}) != 1:
        return No("they run along different axes")
    draft = view.draft(node)
    draft.node(node.op, (inner.used[0],), node.attrs)
    return draft.done(f"{inner.op} grows with its operand")


RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, FOLDS, reduction_over_unit_axes),
    Rule(REASSOCIATES, FOLDS, reduction_of_reduction),
    Rule(REASSOCIATES, REDUCTIONS, reduction_of_transpose),
    Rule(EXACT, ("Reshape",), reshape_of_reduction),
    Rule(REASSOCIATES, ("Mul",), mean_by_sum),
    Rule(REASSOCIATES, ("ReduceMean",), mean_over_space),
    Rule(REASSOCIATES, ("Sqrt",), norm_by_squares),
    Rule(REASSOCIATES, ("ArgMax", "ArgMin"), place_of_greatest),
)
