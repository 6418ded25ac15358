"""Left sides of the rules of `bounds`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.sketch import Sketch


def _size(s: Sketch) -> int:
    return s.x(dtype=DType.I64)


def _kept(s: Sketch, x: int, size: int, value: float = 0.0, axis: int = 1) -> int:
    return s("PadBeyond", x, size, axis=axis, value=value)


def _again(s: Sketch) -> Graph:
    size, number = _size(s), float(s.rng.choice([0.0, -0.0, 1.0]))
    inner = _kept(s, s.x(2, 60, 3), size, float(s.rng.choice([0.0, number])), int(s.rng.choice([1, -2])))
    return s.graph(_kept(s, inner, size, number))


def _of_zeros(s: Sketch) -> Graph:
    """The operand is needed elsewhere, too."""
    size = _size(s)
    x = _kept(s, s.x(2, 60), size)
    kind = int(s.rng.integers(4))
    if kind == 0:
        y = s("Relu", s("Mul", x, s.c(0.5)))
    elif kind == 1:
        y = s("Add", x, _kept(s, s.x(2, 60), size))
    elif kind == 2:
        y = s("Max", x, s.c([0.0]))
    else:
        y = s("Abs", x)
    return s.graph(_kept(s, y, size), x)


def _of_map(s: Sketch) -> Graph:
    size, other = _size(s), _size(s)
    x = _kept(s, s.x(2, 60, 50), size, float(s.rng.choice([0.0, 1.0])))
    for _ in range(int(s.rng.integers(1, 4))):
        kind = int(s.rng.integers(5))
        if kind == 0:
            x = s("Add", x, s.c(1.0))
        elif kind == 1:
            x = s("Max", x, s.c([2.0]))
        elif kind == 2:
            x = s("Sub", s.c(3.0), x)
        elif kind == 3:
            x = s("Reshape", s("Reshape", x, shape=(2, 60, 25, 2), allowzero=1), shape=(2, 60, 50), allowzero=1)
        else:
            x = _kept(s, x, other, 0.5, axis=2)
    return s.graph(_kept(s, x, size, 1.5))


def _read_elsewhere(s: Sketch) -> Graph:
    size = _size(s)
    x = _kept(s, s.x(2, 60), size)
    return s.graph(_kept(s, s("Add", x, s.c(1.0)), size), x)


def _beside_zero(s: Sketch) -> Graph:
    """What a GELU by tanh is made of, or as much of it."""
    size = _size(s)
    x = _kept(s, s.x(2, 60), size)
    shifted = _kept(s, s("Add", s.c(1.0), s(str(s.rng.choice(["Tanh", "Erf"])), s("Mul", s.c(0.7), x))), size)
    halved = s("Mul", shifted, s.c(0.5)) if s.rng.random() < 0.7 else shifted
    return s.graph(s("Mul", *((x, halved) if s.rng.random() < 0.5 else (halved, x))))


def _beside_what_is_not_zero(s: Sketch) -> Graph:
    size = _size(s)
    x = _kept(s, s.x(2, 60), size, 2.0)
    return s.graph(s("Mul", x, _kept(s, s("Add", x, s.c(1.0)), size)))


LEFT: Mapping[str, Drawing] = {
    "pad_beyond_again": _again,
    "pad_beyond_of_zeros": _of_zeros,
    "pad_beyond_of_map": _of_map,
    "pad_beyond_beside_zero": _beside_zero,
}


def _two_numbers(s: Sketch) -> Graph:
    size = _size(s)
    x = _kept(s, s.x(2, 60), size)
    return s.graph(_kept(s, x, size, 1.0), x)


REFUSED: Mapping[str, Refusal] = {
    "pad_beyond_again": (_two_numbers, "is a graph output and must stay"),
    "pad_beyond_of_zeros": (_read_elsewhere, "beyond the size the map may give another number than 0"),
    "pad_beyond_of_map": (_read_elsewhere, "is a graph output and must stay"),
    "pad_beyond_beside_zero": (_beside_what_is_not_zero, "beyond the size the product would be another number"),
}
