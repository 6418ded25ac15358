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
    """x / 2 * (1 + erf), the half anywhere, also inside of the sum."""
    x = s.x(2, 3)
    inner = s("Div", x, s.c(math.sqrt(2))) if s.rng.integers(2) else s("Mul", s.c(math.sqrt(0.5)), x)
    curve = s("Erf", inner)
    if s.rng.integers(3) == 0:
        return s.graph(_product(s, x, plus(s, s("Mul", s.c(0.5), curve), s.c(0.5))))
    return s.graph(_product(s, x, s.c(0.5), plus(s, curve, s.c(1))))


def _gelu_tanh(s: Sketch) -> Graph:
    x, k = s.x(2, 3), s.c(0.044715)
    if s.rng.integers(2):
        cube = s("Pow", x, s.c(3)) if s.rng.integers(2) else _product(s, x, x, x)
        inner = s("Mul", plus(s, x, _product(s, cube, k)), s.c(math.sqrt(2 / math.pi)))
    else:
        square = s("Pow", x, s.c(2)) if s.rng.integers(2) else s("Mul", x, x)
        inner = _product(s, x, s.c(math.sqrt(2 / math.pi)), plus(s, s("Mul", k, square), s.c(1)))
    return s.graph(_product(s, x, s.c(0.5), plus(s, s("Tanh", inner), s.c(1))))


def _one_plus_exp(s: Sketch, x: int) -> int:
    return plus(s, s.c(1), s("Exp", s("Neg", x)))


def _sigmoid(s: Sketch) -> Graph:
    x = s.x(2, 3)
    kind = int(s.rng.integers(4))
    if kind < 2:
        total = _one_plus_exp(s, x)
        return s.graph(s("Reciprocal", total) if kind else s("Div", s.c(1), total))
    curve = s("Tanh", _product(s, x, s.c(0.5)))
    if kind == 2:
        return s.graph(_product(s, s.c(0.5), plus(s, curve, s.c(1))))
    return s.graph(plus(s, s.c(0.5), _product(s, s.c(0.5), curve)))


def _tanh(s: Sketch) -> Graph:
    gate = s("Sigmoid", _product(s, s.x(2, 3), s.c(2)))
    return s.graph(plus(s, _product(s, gate, s.c(2)), s.c(-1)))


def _softplus(s: Sketch, kinds: int = 3) -> Graph:
    x = s.x(2, 3)
    kind = int(s.rng.integers(kinds))
    if kind == 0:
        return s.graph(s("Log", plus(s, s("Exp", x), s.c(1))))
    rest = s("Log", plus(s, s("Exp", s("Neg", s("Abs", x))), s.c(1)))
    return s.graph(plus(s, s("Relu", x) if kind == 1 else s("Max", x, s.c(0)), rest))


def _mish(s: Sketch) -> Graph:
    x = s.x(2, 3)
    return s.graph(_product(s, x, s("Tanh", s("Softplus", x))))


def _swish(s: Sketch) -> Graph:
    x = s.x(2, 3)
    gate = s("Sigmoid", x if s.rng.integers(2) else s("Mul", x, s.c(1.5)))
    return s.graph(s("Mul", x, gate) if s.rng.integers(2) else s("Mul", gate, x))


def _swish_by_exp(s: Sketch) -> Graph:
    x = s.x(2, 3)
    return s.graph(s("Div", x, _one_plus_exp(s, x)))


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
    kind = int(s.rng.integers(3))
    if kind == 2:
        scaled = _product(s, s.x(2, 3), s.c(0.2))
        return s.graph(s("Clip", plus(s, scaled, s.c(0.5)), s.c(0), s.c(1)))
    clip = _clip_to_six(s, s.x(2, 3))
    return s.graph(s("Div", clip, s.c(6)) if kind else s("Mul", s.c(1 / 6), clip))


def _min_max(s: Sketch) -> Graph:
    x, bound = s.x(2, 3), s.c(s.rng.choice([-1.5, 0.0, 6.0]))
    pair = (x, bound) if s.rng.integers(2) else (bound, x)
    return s.graph(s("Max" if s.rng.integers(2) else "Min", *pair))


def _slope(s: Sketch) -> int:
    """Between 0 and 1: one number, or one for each of three channels."""
    return s.c(s.rng.uniform(0.1, 1, (3, 1) if s.rng.integers(2) else ()).round(2))


def _leaky_where(s: Sketch) -> Graph:
    x, slope = s.x(2, 3, 2), _slope(s)
    scaled = _product(s, x, slope)
    kind = int(s.rng.integers(4))
    if kind == 0:
        return s.graph(s("Max", x, scaled) if s.rng.integers(2) else s("Max", scaled, x))
    if kind == 1:
        return s.graph(s("Where", s("Less", s.c(0), x), x, scaled))
    equal = "OrEqual" * int(s.rng.integers(2))
    if kind == 2:
        return s.graph(s("Where", s(f"Greater{equal}", x, s.c(0)), x, scaled))
    return s.graph(s("Where", s(f"Less{equal}", x, s.c(0)), scaled, x))


def _steep_max(s: Sketch) -> Graph:
    x = s.x(2, 3)
    return s.graph(s("Max", x, s("Mul", x, s.c(1.5))))


def _leaky_relus(s: Sketch) -> Graph:
    x, slope = s.x(2, 3, 2), _slope(s)
    below = s("Relu", s("Neg", x))
    if s.rng.integers(3) == 0:
        return s.graph(s("Sub", s("Relu", x), below))
    scaled = _product(s, below, slope)
    return s.graph(s("Sub", s("Relu", x), scaled) if s.rng.integers(2) else plus(s, s("Relu", x), scaled))


def _elu(s: Sketch) -> Graph:
    x = s.x(2, 3)
    positive = s("Greater" if s.rng.integers(2) else "GreaterOrEqual", x, s.c(0))
    inner = s("Where", positive, s.c(0), x) if s.rng.integers(2) else x
    below = plus(s, s("Exp", inner), s.c(-1))
    return s.graph(s("Where", positive, x, _product(s, below, s.c(1.5)) if s.rng.integers(2) else below))


LEFT: Mapping[str, Drawing] = {
    "gelu_by_erf": _gelu,
    "gelu_by_tanh": _gelu_tanh,
    "sigmoid_by_exp": _sigmoid,
    "tanh_by_sigmoid": _tanh,
    "softplus_by_exp": _softplus,
    "mish_by_softplus": _mish,
    "swish_by_sigmoid": _swish,
    "swish_by_exp": _swish_by_exp,
    "hard_swish_by_clamp": _hard_swish,
    "hard_sigmoid_by_clip": _hard_sigmoid,
    "clip_by_min_max": _min_max,
    "leaky_relu_by_where": _leaky_where,
    "leaky_relu_by_relus": _leaky_relus,
    "elu_by_where": _elu,
}

REFUSED: Mapping[str, Refusal] = {
    "gelu_by_erf": (lambda s: inner_output(_gelu(s), 1), "graph output"),
    "gelu_by_tanh": (lambda s: inner_output(_gelu_tanh(s), 1), "graph output"),
    "sigmoid_by_exp": (lambda s: inner_output(_sigmoid(s), 1), "graph output"),
    "tanh_by_sigmoid": (lambda s: inner_output(_tanh(s), 2), "graph output"),
    "softplus_by_exp": (lambda s: inner_output(_softplus(s, kinds=1), 1), "graph output"),
    "mish_by_softplus": (lambda s: inner_output(_mish(s), 2), "graph output"),
    "swish_by_sigmoid": (lambda s: inner_output(_swish(s), 1), "graph output"),
    "swish_by_exp": (lambda s: inner_output(_swish_by_exp(s), 2), "graph output"),
    "hard_swish_by_clamp": (lambda s: s.graph(s("Mul", x := s.x(3), s("HardSigmoid", x, alpha=0.2))), ""),
    "hard_sigmoid_by_clip": (lambda s: s.graph(s("Div", _clip_to_six(s, s.x(3)), s.c(5))), ""),
    "clip_by_min_max": (lambda s: s.graph(s("Max", s.x(2, 3), s.normal(3))), ""),
    "leaky_relu_by_where": (_steep_max, "not between 0 and 1"),
    "leaky_relu_by_relus": (lambda s: inner_output(_leaky_relus(s), 1), "graph output"),
    "elu_by_where": (lambda s: inner_output(_elu(s), 1), "graph output"),
}
