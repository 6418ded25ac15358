"""Left sides of the rules of `motion`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.sketch import Sketch

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def _transpose(s: Sketch, x: int, perm: tuple[int, ...]) -> int:
    return s("Transpose", x, perm=perm)


def _map(s: Sketch, x: int) -> int:
    """Something that lets a Transpose or a Reshape of its last axis pass, with constants."""
    last = s.dims(x)[-1]
    kind = int(s.rng.integers(7))
    if kind == 0:
        return s("Add", x, s.normal(last))
    if kind == 1:
        return s("Mul", s.normal(), x)
    if kind == 2:
        return s("Clip", x, s.c(-1.0), s.c(1.0))
    if kind == 3:
        return s("Mul", x, s("Relu", x))
    if kind == 4:
        return s("Concat", x, s.normal(*s.dims(x)[:-1], 2), axis=-1)
    if kind == 5:
        return s("Sub", s.normal(*s.dims(x)), x)
    return s("Relu", x)


def _past_maps(s: Sketch) -> Graph:
    if s.rng.integers(2):
        x = _map(s, _map(s, _transpose(s, s.x(1, 3, 2, 4), TO_LAST)))
        if s.rng.integers(2):
            x = s("Slice", x, *(None,) * 4, starts=(1,), ends=(-1,), axes=(2,), steps=(1,))
        if s.rng.integers(2):
            x = s("Pad", x, *(None,) * 3, pads=(0, 1, 0, 0, 0, 0, 2, 0))
        if s.rng.integers(2):
            x = s("Add", x, _transpose(s, s.x(*(s.dims(x)[a] for a in TO_FIRST)), TO_LAST))
        return s.graph(s("Neg", _transpose(s, x, TO_FIRST)))
    x = _map(s, s("Reshape", s.x(2, 3, 4), None, shape=(6, 4)))
    return s.graph(s("Neg", s("Reshape", x, None, shape=(2, 3, -1))))


def _past_sums(s: Sketch) -> Graph:
    kind = int(s.rng.integers(5))
    if kind == 0:  # a dense layer of a sequence
        x = s("MatMul", s("Reshape", s.x(2, 3, 4), None, shape=(6, 4)), s.normal(4, 5))
        return s.graph(s("Reshape", s("Relu", s("Add", x, s.normal(5))), None, shape=(2, 3, 5)))
    if kind == 1:  # keys before queries, transposed afterwards
        a, b = (_transpose(s, s.x(2, 4, 3), (0, 2, 1)), s.x(2, 4, 5))
        return s.graph(_transpose(s, s("MatMul", a, b), (0, 2, 1)))
    if kind == 2:
        x = s("Softmax", _transpose(s, s.x(2, 3, 4), (0, 2, 1)), axis=int(s.rng.integers(3)))
        return s.graph(s("Neg", _transpose(s, x, (0, 2, 1))))
    if kind == 3:
        norm = s("LayerNormalization", s("Reshape", s.x(2, 3, 4), None, shape=(1, 6, 4)), s.normal(4), s.normal(4))
        return s.graph(s("Reshape", norm, None, shape=(6, 4)))
    heads = [s("Reshape", s.x(1, 2, 3, 3), None, shape=(2, 3, 3)) for _ in range(2)]
    return s.graph(s("Reshape", s("Softmax", s("MatMul", *heads), axis=-1), None, shape=(1, 2, 3, 3)))


def _before(s: Sketch) -> Graph:
    """Operands rearranged alike, or a map that joins a product."""
    kind = int(s.rng.integers(4))
    if kind == 0:
        a, b = (_transpose(s, s.x(2, 3, 4), (2, 0, 1)) for _ in range(2))
        return s.graph(s("Mul", s("Add", a, b), s.positive(3)))
    if kind == 1:
        a, b = (s("Reshape", s.x(2, 3, 4), None, shape=(6, 4)) for _ in range(2))
        return s.graph(s("Where", s("Less", a, b), s.normal(4), s.normal(6, 1)))
    x = s("Reshape", s("MatMul", s.x(6, 4), s.x(4, 4)), None, shape=(2, 3, 4))
    return s.graph(s("Add", s.x(2, 3, 4), x) if kind == 2 else s("Sigmoid", s("Add", x, s.normal(4))))


def _pushed(s: Sketch) -> Graph:
    """A transpose that could only be moved."""
    return s.graph(_transpose(s, s("Add", s("Relu", s.x(2, 3)), s.normal(3)), (1, 0)))


LEFT: Mapping[str, Drawing] = {
    "rearrangement_past_maps": _past_maps,
    "rearrangement_past_sums": _past_sums,
    "map_of_rearranged": _before,
}

REFUSED: Mapping[str, Refusal] = {
    "rearrangement_past_maps": (_pushed, ""),
    "rearrangement_past_sums": (lambda s: s.graph(_transpose(s, s("Softmax", s.x(2, 3)), (1, 0))), ""),
    "map_of_rearranged": (lambda s: s.graph(s("Add", _transpose(s, s.x(2, 3), (1, 0)), s.x(3, 2))), ""),
}
