"""Left sides of the rules of `clamps`, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.sketch import Sketch


def _clamp(s: Sketch, x: int) -> int:
    if s.rng.integers(3) == 0:
        return s("Relu", x)
    low, high = sorted(s.rng.choice([-3.0, -1.0, 0.0, 0.5, 3.0, 6.0, math.inf], 2))
    bounds = [None if s.rng.integers(3) == 0 else s.c(low), None if s.rng.integers(3) == 0 else s.c(high)]
    return s("Clip", x, *bounds)


def _extreme(s: Sketch, x: int) -> int:
    operands = (x, s.c(float(s.rng.choice([-1.0, 0.0, -0.0, 6.0, math.inf]))))
    return s(str(s.rng.choice(["Max", "Min"])), *(operands[::-1] if s.rng.integers(2) else operands))


LEFT: Mapping[str, Drawing] = {
    "relu_of_relu": lambda s: s.graph(s("Relu", s("Relu", s.x(4, 4)))),
    "clamp_by_extreme": lambda s: s.graph(_extreme(s, s.x(4, 4))),
    "clamp_without_bounds": lambda s: s.graph(s("Neg", s("Clip", s.x(4, 4), None, s.c(math.inf)))),
    "clamp_that_is_relu": lambda s: s.graph(
        s("Clip", s.x(4, 4), s.c(0), *((s.c(math.inf),) if s.rng.integers(2) else ()))
    ),
    "clamp_of_clamp": lambda s: s.graph(_clamp(s, _clamp(s, s.x(4, 4)))),
}

REFUSED: Mapping[str, Refusal] = {
    "relu_of_relu": (lambda s: s.graph(s("Relu", s("Neg", s("Relu", s.x(3))))), ""),
    "clamp_by_extreme": (lambda s: s.graph(s("Max", s.x(3), s.c(math.nan))), "not a number"),
    "clamp_without_bounds": (lambda s: s.graph(s("Neg", s("Clip", s.x(3), s.x()))), "no constant"),
    "clamp_that_is_relu": (lambda s: s.graph(s("Neg", s("Clip", s.x(3), s.c(-0.0)))), ""),
    "clamp_of_clamp": (lambda s: s.graph(s("Relu", s("Clip", s.x(3), s.c(math.nan)))), "not a number"),
}
