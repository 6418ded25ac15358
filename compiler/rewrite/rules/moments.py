"""Means, variances and norms as exporters write them: what one number per group of elements is, whatever operators make it.

Such a number may lose the dimensions it is taken over and get them back by a Reshape, and what it is taken of may be reshaped too.
So a tensor is known by what lies under its views, with the extents above 1 it is read in; statistics are lists of numbers in order,
and where one meets the tensor again, `beside` tells whether it stands there in the right place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from compiler.ir.graph import Node
from compiler.ops import having
from compiler.ops.attributes import ints
from compiler.ops.traits import Trait
from compiler.rewrite.pattern import match, number, op, value
from compiler.rewrite.rounding import near
from compiler.rewrite.view import View

VIEWS = having(Trait.RESHAPE)
INFINITY = float("inf")


@dataclass(frozen=True)
class Statistic:
    """One number for each group of elements of a tensor, in order; `nodes` are those that make it.

    x        the tensor, without its views; `long` are the extents above 1 in which it is read
    over     the places in `long` that a group extends along
    divisor  what a sum is divided by: 1 for a sum or a maximum, the number of elements of a group for a mean
    """

    x: int
    long: tuple[int, ...]
    over: tuple[int, ...]
    nodes: tuple[Node, ...]
    divisor: float = 1.0

    @property
    def count(self) -> int:
        """Elements of a group."""
        return prod(self.long[place] for place in self.over)

    @property
    def group(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """What it is taken of: equal for statistics of the same elements."""
        return self.x, self.long, self.over

    def axes_in(self, view: View, tensor: int) -> tuple[int, ...] | None:
        """Along which axes of a tensor the groups extend; None where it is another tensor or read in other extents."""
        dims = view.dims(tensor)
        places = [at for at, extent in enumerate(dims) if extent > 1]
        if bare(view, tensor)[0] != self.x or tuple(dims[at] for at in places) != self.long:
            return None
        return tuple(places[place] for place in self.over)

    def beside(self, view: View, value: int, tensor: int) -> bool:
        """Whether a value of this statistic, where it meets the tensor, has extent 1 along the axes of the groups."""
        axes, dims, own = self.axes_in(view, tensor), view.dims(tensor), view.dims(value)
        if axes is None or len(own) > len(dims):
            return False
        wanted = tuple(1 if at in axes else extent for at, extent in enumerate(dims))
        return (*(1,) * (len(dims) - len(own)), *own) == wanted


def bare(view: View, value: int) -> tuple[int, tuple[Node, ...]]:
    """A value without the views that only give it another shape, and those views."""
    nodes: tuple[Node, ...] = ()
    while (node := view.producer(value, *VIEWS)) is not None:
        value, nodes = node.used[0], (*nodes, node)
    return value, nodes


def _along(view: View, node: Node, axes: tuple[int, ...], divisor: float = 1.0) -> Statistic | None:
    """What a node that reduces its first input along axes computes."""
    dims = view.dims(node.used[0])
    places = [at for at, extent in enumerate(dims) if extent > 1]
    over = tuple(place for place, at in enumerate(places) if at in axes)
    if not over:
        return None
    x, views = bare(view, node.used[0])
    return Statistic(x, tuple(dims[at] for at in places), over, (node, *views), divisor)


def uniform(view: View, value: int) -> float | None:
    """The number that all elements of a constant are."""
    array = view.constant(value)
    if array is None or not array.size or not (array == array.reshape(-1)[0]).all():
        return None
    return float(array.reshape(-1)[0])


def reduced(view: View, value: int, op: str) -> Statistic | None:
    """The statistic that a reduction computes, and the views behind it."""
    value, views = bare(view, value)
    node = view.producer(value, op)
    if node is None:
        return None
    rank = view.type(node.used[0]).rank
    axes = ints(node, "axes")
    if not axes and node.attrs.get("noop_with_empty_axes", 0):
        return None
    found = _along(view, node, tuple(axis % rank for axis in axes) if axes else tuple(range(rank)))
    return None if found is None else replace(found, nodes=(*views, *found.nodes))


def total(view: View, value: int) -> Statistic | None:
    """The sum of x along axes, divided by `divisor`: a ReduceSum, ReduceMean or GlobalAveragePool, times or by a number, and views."""
    node = view.producer(value, "ReduceMean", "ReduceSum", "GlobalAveragePool", "Mul", "Div", *VIEWS)
    if node is None:
        return None
    if node.op in ("ReduceMean", "ReduceSum"):
        found = reduced(view, value, node.op)
        return found if node.op == "ReduceSum" or found is None else replace(found, divisor=float(found.count))
    if node.op == "GlobalAveragePool":
        found = _along(view, node, tuple(range(2, view.type(node.used[0]).rank)))
        return None if found is None else replace(found, divisor=float(found.count))
    if node.op in VIEWS:
        return _behind(node, total(view, node.used[0]), 1.0)
    if node.op == "Div":
        return _behind(node, total(view, node.used[0]), uniform(view, node.used[1]))
    for inner, other in (node.used, node.used[::-1]):
        factor = uniform(view, other)
        if factor:
            return _behind(node, total(view, inner), 1 / factor)
    return None


def _behind(node: Node, inner: Statistic | None, divisor: float | None) -> Statistic | None:
    if inner is None or not divisor:
        return None
    return replace(inner, nodes=(node, *inner.nodes), divisor=inner.divisor * divisor)


def mean(view: View, value: int) -> Statistic | None:
    """The mean of x along axes."""
    found = total(view, value)
    return found if found is not None and near(found.divisor, found.count) else None


def square(view: View, value: int) -> tuple[int, tuple[Node, ...]] | None:
    """The d of d * d or d ** 2, without its views, and the nodes that square it."""
    value, views = bare(view, value)
    node = view.producer(value, "Mul", "Pow")
    if node is None:
        return None
    if node.used[0] != node.used[1] if node.op == "Mul" else view.scalar(node.inputs[1]) != 2.0:
        return None
    d, under = bare(view, node.used[0])
    return d, (*views, node, *under)


def squares(view: View, value: int) -> Statistic | None:
    """The sum of d ** 2 along axes, divided by `divisor`."""
    found = reduced(view, value, "ReduceSumSquare")
    if found is not None:
        return found
    found = total(view, value)
    of = None if found is None else square(view, found.x)
    if found is None or of is None:
        return None
    return replace(found, x=of[0], nodes=(*found.nodes, *of[1]))


def deviation(view: View, value: int) -> Statistic | None:
    """The mean of x, where a value is x - mean(x) or a view of that."""
    value, views = bare(view, value)
    node = view.producer(value, "Sub")
    found = None if node is None else mean(view, node.used[1])
    if node is None or found is None or not found.beside(view, node.used[1], node.used[0]):
        return None
    return replace(found, nodes=(*views, node, *found.nodes))


def variance(view: View, value: int) -> Statistic | None:
    """The variance of x: the mean of (x - mean(x)) ** 2, or mean(x ** 2) - mean(x) ** 2, which may be kept from being negative."""
    node = view.producer(value, "Max", "Relu", "Clip", "Sub", *VIEWS)
    if node is not None and node.op in (*VIEWS, "Max", "Relu", "Clip"):
        inner = _not_below_zero(view, node)
        found = None if inner is None else variance(view, inner)
        if found is not None:
            return replace(found, nodes=(node, *found.nodes))
    if node is not None and node.op == "Sub":
        return _from_squares(view, node)
    spread = squares(view, value)
    moved = None if spread is None else deviation(view, spread.x)
    if spread is None or moved is None or (moved.long, moved.over) != (spread.long, spread.over):
        return None
    if not near(spread.divisor, spread.count):
        return None
    return replace(moved, nodes=(*spread.nodes, *moved.nodes))


def _not_below_zero(view: View, node: Node) -> int | None:
    """What a view, a Relu, max(0, .) or clip(., 0, inf) is of."""
    if node.op == "Clip":
        low, high = (*node.inputs[1:], None, None)[:2]
        return node.used[0] if view.scalar(low) == 0 and (high is None or view.scalar(high) == INFINITY) else None
    if node.op != "Max":
        return node.used[0]
    rest = [read for read in node.used if uniform(view, read) != 0]
    return rest[0] if len(rest) == 1 else None


def _from_squares(view: View, node: Node) -> Statistic | None:
    """mean(x ** 2) - mean(x) ** 2."""
    powers, middle = squares(view, node.used[0]), square(view, node.used[1])
    first = None if middle is None else mean(view, middle[0])
    if powers is None or middle is None or first is None or powers.group != first.group:
        return None
    if view.dims(node.used[0]) != view.dims(node.used[1]) or not near(powers.divisor, powers.count):
        return None
    return replace(first, nodes=(node, *powers.nodes, *middle[1], *first.nodes))


_V = value("v")
ROOT = op("Sqrt", _V)
INVERSE_ROOT = (
    op("Reciprocal", ROOT),
    op("Div", number(1.0), ROOT),
    op("Pow", _V, number(-0.5)),
    op("Reciprocal", op("Pow", _V, number(0.5))),
)


def root_of(view: View, value: int) -> tuple[int, tuple[Node, ...]] | None:
    """The v of sqrt(v), and the nodes that make it so."""
    for term in (ROOT, op("Pow", _V, number(0.5))):
        node = view.producer(value)
        found = None if node is None else match(view, node, term)
        if node is not None and found is not None:
            return found["v"], (node, *found.nodes)
    return None


def inverse_root_of(view: View, value: int) -> tuple[int, tuple[Node, ...]] | None:
    """The v of 1 / sqrt(v), and the nodes that make it so; views between them are followed."""
    value, views = bare(view, value)
    node = view.producer(value)
    for term in INVERSE_ROOT:
        found = None if node is None else match(view, node, term)
        if node is not None and found is not None:
            return found["v"], (*views, node, *found.nodes)
    return None


def shifted(view: View, value: int) -> tuple[int, float, tuple[Node, ...]]:
    """(v, epsilon, nodes) where a value is v + epsilon, one number, and views; epsilon is 0 where nothing is added."""
    value, views = bare(view, value)
    node = view.producer(value, "Add")
    for v, other in () if node is None else (node.used, node.used[::-1]):
        epsilon = uniform(view, other)
        if epsilon is not None and node is not None:
            return v, epsilon, (*views, node)
    return value, 0.0, views
