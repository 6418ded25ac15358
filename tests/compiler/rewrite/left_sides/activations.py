"""Left sides of the rules of `activations`, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, inner_output, plus
from tests.compiler.rewrite.sketch import Sketch


def _product(s: Sketch, *values: int) -> int:
    """The values multiplied in a random order and association."""
    left = list(values)
    while len(left) > 1:
        a, b = (left.pop(int(s.rng.integers(len(left)))) for _ in range(2))
        left.append(s("Mul", a, b))
    return left[0]


def _gelu(s: Sketch) -> Graph:
    x = s.x(2, 3)
    inner = s("Div", x, s.c(math.sqrt(2))) if s.rng.integers(2) else s("Mul", s.c(math.sqrt(0.5)), x)
    return s.graph(_product(s, x, s.c(0.5), plus(s, s("Erf", inner), s.c(1))))


def _gelu_tanh(s: Sketch) -> Graph:
    x, k = s.x(2, 3), s.c(0.044715)
    if s.rng.integers(2):
        cube = s("Pow", x, s.c(3)) if s.rng.integers(2) else _product(s, x, x, x)
        inner = s("Mul", plus(s, x, _product(s, cube, k)), s.c(math.sqrt(2 / math.pi)))
    else:
        square = s("Pow", x, s.c(2)) if s.rng.integers(2) else s("Mul", x, x)
        inner = _product(s, x, s.c(math.sqrt(2 / math.pi)), plus(s, s("Mul", k, square), s.c(1)))
    return s.graph(_product(s, x, s.c(0.5), plus(s, s("Tanh", inner), s.c(1))))


def _swish(s: Sketch) -> Graph:
    x = s.x(2, 3)
    gate = s("Sigmoid", x if s.rng.integers(2) else s("Mul", x, s.c(1.5)))
    return s.graph(s("Mul", x, gate) if s.rng.integers(2) else s("Mul", gate, x))


def _clip_to_six(s: Sketch, x: int) -> int:
    return s("Clip", plus(s, x, s.c(3)), s.c(0), s.c(6))


def _hard_swish(s: Sketch) -> Graph:
    x = s.x(2, 3)
    kind = int(s.rng.integers(4))
    if kind == 0:
        return s.graph(s("Mul", x, s("HardSigmoid", x, alpha=1 / 6)))
    if kind == 1:
        return s.graph(s("Mul", x, s("Div", _clip_to_six(s, x), s.c(6))))
    if kind == 2:
        return s.graph(s("Div", s("Mul", _clip_to_six(s, x), x), s.c(6)))
    return s.graph(_product(s, x, _clip_to_six(s, x), s.c(1 / 6)))


def _hard_sigmoid(s: Sketch) -> Graph:
    clip = _clip_to_six(s, s.x(2, 3))
    return s.graph(s("Div", clip, s.c(6)) if s.rng.integers(2) else s("Mul", s.c(1 / 6), clip))


LEFT: Mapping[str, Drawing] = {
    "gelu_by_erf": _gelu,
    "gelu_by_tanh": _gelu_tanh,
    "swish_by_sigmoid": _swish,
    "hard_swish_by_clamp": _hard_swish,
    "hard_sigmoid_by_clip": _hard_sigmoid,
}

REFUSED: Mapping[str, Refusal] = {
    "gelu_by_erf": (lambda s: inner_output(_gelu(s), 1), "graph output"),
    "gelu_by_tanh": (lambda s: inner_output(_gelu_tanh(s), 1), "graph output"),
    "swish_by_sigmoid": (lambda s: inner_output(_swish(s), 1), "graph output"),
    "hard_swish_by_clamp": (lambda s: s.graph(s("Mul", x := s.x(3), s("HardSigmoid", x, alpha=0.2))), ""),
    "hard_sigmoid_by_clip": (lambda s: s.graph(s("Div", _clip_to_six(s, s.x(3)), s.c(5))), ""),
}
