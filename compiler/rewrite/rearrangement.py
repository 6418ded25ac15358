"""Chains of Reshape and Transpose as one permutation: what they do together, and the fewest nodes that do it.

Any such chain splits the elements of a tensor, in row-major order, into a product of factors, brings the factors into another order,
and groups them into axes. Two chains do the same if they agree in this; the factors of both are refined until they can be compared.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import prod

import numpy as np

from compiler.ir.graph import Node
from compiler.ops import having
from compiler.ops.attributes import ints
from compiler.ops.traits import Trait
from compiler.rewrite.view import Draft, View

Shape = tuple[int, ...]
RESHAPES = tuple(sorted(having(Trait.RESHAPE)))
REARRANGEMENTS = (*RESHAPES, "Transpose")
Write = tuple[str, Shape]
"""A node of a rearrangement: a Reshape to a shape, or a Transpose with a perm."""


@dataclass(frozen=True)
class Rearrangement:
    """From a tensor of `source` extents to one of `result` extents with the same elements.

    factors  extents whose product is the number of elements, outermost first, in the order of the source
    order    the factors' places in the source, in the order of the result
    """

    source: Shape
    result: Shape
    factors: Shape
    order: Shape

    def then(self, other: Rearrangement) -> Rearrangement | None:
        """This one and, after it, another; None where an extent of one does not divide the other's."""
        cuts = _cuts(tuple(self.factors[at] for at in self.order)) | _cuts(other.factors)
        middle = _between(cuts)
        if middle is None:
            return None
        parts = _parts(middle, tuple(self.factors[at] for at in self.order))
        after = _parts(middle, other.factors)
        first: list[int] = []  # places in `middle`, in the order of the source
        for at in range(len(self.factors)):
            first += parts[self.order.index(at)]
        final = [place for at in other.order for place in after[at]]
        factors = tuple(middle[place] for place in first)
        where = {place: at for at, place in enumerate(first)}
        return _merged(self.source, other.result, factors, tuple(where[place] for place in final))

    def inverse(self) -> Rearrangement:
        factors = tuple(self.factors[at] for at in self.order)
        return _merged(self.result, self.source, factors, _inverse(self.order))

    @property
    def moves(self) -> bool:
        """Whether any element changes its place in row-major order."""
        return self.order != tuple(range(len(self.order)))

    @property
    def nothing(self) -> bool:
        return not self.moves and self.source == self.result

    def writes(self) -> tuple[Write, ...]:
        """The fewest nodes that do it."""
        if not self.moves:
            return () if self.source == self.result else (("Reshape", self.result),)
        if _cuts(self.factors) <= _cuts(self.source):
            order = self._refined(_long(self.source))
            middle = tuple(_long(self.source)[at] for at in order)
            if _long(self.result) == middle and len(self.source) == len(self.result):
                return (("Transpose", _perm(self.source, self.result, order)),)
            units = (1,) * (len(self.source) - len(middle))
            return (("Transpose", _perm(self.source, (*units, *middle), order)), ("Reshape", self.result))
        back = self.inverse()
        if _cuts(back.factors) <= _cuts(self.result):
            long = _long(self.result)
            order = _inverse(back._refined(long))
            start = (*(1,) * (len(self.result) - len(long)), *(long[at] for at in _inverse(order)))
            return (("Reshape", start), ("Transpose", _perm(start, self.result, order)))
        return (("Reshape", self.factors), ("Transpose", self.order), ("Reshape", self.result))

    def _refined(self, factors: Shape) -> Shape:
        """`order` of finer factors, each of which lies in one of these."""
        parts = _parts(factors, self.factors)
        return tuple(place for at in self.order for place in parts[at])

    def write(self, draft: Draft, value: int) -> int:
        """The nodes, put into a draft."""
        for op, dims in self.writes():
            if op == "Transpose":
                value = draft.node("Transpose", (value,), {"perm": dims})
            else:
                value = draft.node("Reshape", (value, None), {"allowzero": int(0 in dims), "shape": dims})
        return value

    def of_array(self, array: np.ndarray) -> np.ndarray:
        """An array of the source's extents, rearranged."""
        return array.reshape(self.factors).transpose(self.order).reshape(self.result)

    def of_broadcast(self, array: np.ndarray) -> np.ndarray:
        """An array that broadcasts to the source, so that it broadcasts to the result in the same way; repeated where it must be."""
        if array.size == 1:
            return array.reshape(())
        dims = (*(1,) * (len(self.source) - array.ndim), *array.shape)
        within = _cuts_of_result(self)
        factors = None if within is None else _between(_cuts(self.factors) | _cuts(self.source) | within)
        if factors is None:
            return self.of_array(np.broadcast_to(array, self.source))
        own = [1] * len(factors)
        for axis, places in enumerate(_parts(factors, self.source)):
            for place in places:
                own[place] = factors[place] if dims[axis] != 1 else 1
        order = self._refined(factors)
        moved = array.reshape(own).transpose(order)
        whole = tuple(factors[place] for place in order)
        grouped: list[int] = []
        for places in _parts(whole, self.result):
            if len({moved.shape[place] == 1 for place in places if whole[place] != 1}) > 1:
                wanted = [whole[p] if p in places else extent for p, extent in enumerate(moved.shape)]
                moved = np.broadcast_to(moved, wanted)
            grouped.append(prod(moved.shape[place] for place in places))
        return moved.reshape(grouped)

    def keeps_last(self, count: int) -> bool:
        """Whether the last `count` axes are the same ones before and after, in the same order."""
        if count > min(len(self.source), len(self.result)) or self.source[-count:] != self.result[-count:]:
            return False
        inner, tail, places = prod(self.source[-count:]), 1, len(self.order)
        for place in range(places - 1, -1, -1):
            if tail >= inner:
                break
            if self.order[place] != place:
                return False
            tail *= self.factors[place]
        return True

    def on_leading(self, count: int, axes: Shape = ()) -> Rearrangement | None:
        """The same for a tensor whose last `count` axes have other extents, where it keeps these; None where it does not."""
        if not self.keeps_last(count):
            return None
        inner = prod(self.source[-count:])
        source, result = (*self.source[:-count], inner), (*self.result[:-count], inner)
        factors = _between(_cuts(self.factors) | _cuts(source))
        if factors is None or not inner:
            return None
        order = self._refined(factors)
        own = set(_parts(factors, source)[-1])
        kept = [place for place in range(len(factors)) if place not in own]
        where = {place: at for at, place in enumerate(kept)}
        leading = tuple(where[place] for place in order if place in where)
        outer = tuple(factors[place] for place in kept)
        last = prod(axes)
        return _merged((*source[:-1], *axes), (*result[:-1], *axes), (*outer, last), (*leading, len(leading)))

    @property
    def perm(self) -> Shape | None:
        """The perm of the Transpose that it is; None where it is none, or leaves everything in place."""
        written = self.writes()
        return written[0][1] if len(written) == 1 and written[0][0] == "Transpose" else None


def of_node(view: View, node: Node) -> Rearrangement | None:
    """What a Reshape or Transpose does; None for an empty tensor or another operator."""
    if node.op not in REARRANGEMENTS:
        return None
    source, result = view.dims(node.used[0]), view.dims(node.outputs[0])
    if 0 in source:
        return None
    if node.op != "Transpose":
        return _merged(source, result, (prod(source),), (0,))
    return transposed(source, ints(node, "perm") or tuple(reversed(range(len(source)))))


def transposed(source: Shape, perm: Shape) -> Rearrangement:
    """A Transpose of a tensor that is not empty."""
    return _merged(source, tuple(source[axis] for axis in perm), source, perm)


def _cuts(factors: Shape) -> frozenset[int]:
    """Between which row-major strides the factors lie: the products of the last ones."""
    found, inner = {1}, 1
    for extent in reversed(factors):
        inner *= extent
        found.add(inner)
    return frozenset(found)


def _between(cuts: frozenset[int]) -> Shape | None:
    """The factors with these cuts, without any of extent 1; None where one stride does not divide the next."""
    ordered = sorted(cuts)
    if any(outer % inner for inner, outer in itertools.pairwise(ordered)):
        return None
    return tuple(outer // inner for inner, outer in itertools.pairwise(ordered))[::-1]


def _parts(fine: Shape, coarse: Shape) -> list[list[int]]:
    """Which of the fine factors make up each coarse one."""
    found, at = [], 0
    for extent in coarse:
        places, whole = [], 1
        while whole < extent:
            places.append(at)
            whole *= fine[at]
            at += 1
        found.append(places)
    return found


def _cuts_of_result(one: Rearrangement) -> frozenset[int] | None:
    """Cuts that the result's axes make within the factors, in the source's strides; None where they lie across factors."""
    inner = [prod(one.factors[at + 1 :]) for at in range(len(one.factors))]
    found, stride = set(), 1
    wanted = _cuts(one.result)
    for at in reversed(one.order):
        extent = one.factors[at]
        within = {cut for cut in wanted if stride < cut < stride * extent}
        if any(cut % stride for cut in within):
            return None
        found |= {inner[at] * (cut // stride) for cut in within}
        stride *= extent
    return frozenset(found)


def _merged(source: Shape, result: Shape, factors: Shape, order: Shape) -> Rearrangement:
    """With factors that stay side by side as one, and none of extent 1."""
    order = tuple(at for at in order if factors[at] != 1)
    groups: list[list[int]] = []
    real = [at for at, extent in enumerate(factors) if extent != 1]
    after = dict(itertools.pairwise(real))
    for at in order:
        if groups and after.get(groups[-1][-1]) == at:
            groups[-1].append(at)
        else:
            groups.append([at])
    placed = sorted(groups)
    whole = tuple(prod(factors[at] for at in group) for group in placed)
    return Rearrangement(source, result, whole, tuple(placed.index(group) for group in groups))


def _inverse(order: Shape) -> Shape:
    return tuple(order.index(at) for at in range(len(order)))


def _long(dims: Shape) -> Shape:
    return tuple(extent for extent in dims if extent != 1)


def _perm(source: Shape, result: Shape, order: Shape) -> Shape:
    """The perm that brings the long axes into `order`, and the axes of extent 1 to where the result has some, in order."""
    long = [axis for axis, extent in enumerate(source) if extent != 1]
    short = iter([axis for axis, extent in enumerate(source) if extent == 1])
    moved = iter(order)
    return tuple(next(short) if extent == 1 else long[next(moved)] for extent in result)
