"""Left sides of the rules of `around_norms`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, inner_output, plus
from tests.compiler.rewrite.sketch import Sketch


def _times(s: Sketch, a: int, b: int) -> int:
    return s("Mul", a, b) if s.rng.integers(2) else s("Mul", b, a)


def _normed(s: Sketch, op: str = "LayerNormalization") -> int:
    bias = (s.normal(4),) if op == "LayerNormalization" and s.rng.integers(2) else ()
    return s(op, s.x(2, 3, 4), s.positive(4), *bias, axis=-1)


def _scaled_norm(s: Sketch) -> Graph:
    op = ("RMSNormalization", "LayerNormalization")[int(s.rng.integers(2))]
    return s.graph(_times(s, _normed(s, op), s.positive(4)))


def _channels(s: Sketch) -> int:
    x = s.x(2, 4, 3)
    if s.rng.integers(2):
        return s("InstanceNormalization", x, s.positive(4), s.normal(4))
    return s("GroupNormalization", x, s.positive(4), s.normal(4), num_groups=2)


def _of_halves(s: Sketch, scale: float = 0.5) -> Graph:
    op = str(s.rng.choice(["LayerNormalization", "RMSNormalization"]))
    wide = s("Cast", s.x(2, 3, 4, dtype=DType.F16), to=1)
    normal = s(op, wide, s.c(np.full(4, scale), DType.F32), axis=-1)
    return s.graph(s("Cast", normal, to=10))


LEFT: Mapping[str, Drawing] = {
    "layer_norm_scale": _scaled_norm,
    "layer_norm_bias": lambda s: s.graph(plus(s, _normed(s), s.normal(1))),
    "group_norm_scale": lambda s: s.graph(_times(s, _channels(s), s.positive(4, 1))),
    "group_norm_bias": lambda s: s.graph(plus(s, _channels(s), s.normal(1, 4, 1))),
    "norm_between_casts": _of_halves,
}

REFUSED: Mapping[str, Refusal] = {
    "layer_norm_scale": (lambda s: s.graph(s("Mul", _normed(s), s.positive(3, 1))), "not those of its scale"),
    "layer_norm_bias": (lambda s: inner_output(s.graph(s("Add", _normed(s), s.normal(4))), 1), "graph output"),
    "group_norm_scale": (lambda s: s.graph(s("Mul", _channels(s), s.positive(3))), "not those of its scale"),
    "group_norm_bias": (lambda s: inner_output(s.graph(s("Add", _channels(s), s.normal(4, 1))), 1), "graph output"),
    "norm_between_casts": (lambda s: _of_halves(s, scale=0.1), "not known in f16"),
}
