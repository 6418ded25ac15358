"""Left sides of the rules of `norms`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, inner_output, plus
from tests.compiler.rewrite.sketch import Sketch


def _layer_norm(s: Sketch, axes: tuple[int, ...] | None = None) -> Graph:
    x = s.x(2, 3, 4)
    over = axes or [(-1,), (2,), (1, 2), (-1, -2)][int(s.rng.integers(4))]
    d = s("Sub", x, s("ReduceMean", x, None, axes=over))
    square = s("Mul", d, d) if s.rng.integers(2) else s("Pow", d, s.c(2))
    root = s("Sqrt", plus(s, s("ReduceMean", square, None, axes=over), s.c(1e-5)))
    return s.graph(s("Div", d, root) if s.rng.integers(2) else s("Mul", s("Reciprocal", root), d))


def _normed(s: Sketch) -> int:
    return s("LayerNormalization", s.x(2, 3, 4), s.positive(4), *((s.normal(4),) if s.rng.integers(2) else ()), axis=-1)


def _softmax(s: Sketch) -> Graph:
    x = s.x(2, 3, 2)
    axis = int(s.rng.integers(-3, 3))
    e = s("Exp", s("Sub", x, s("ReduceMax", x, None, axes=(axis,))))
    return s.graph(s("Div", e, s("ReduceSum", e, None, axes=(axis,))))


LEFT: Mapping[str, Drawing] = {
    "layer_norm_by_moments": _layer_norm,
    "layer_norm_scale": lambda s: s.graph(s("Mul", _normed(s), s.positive(4))),
    "layer_norm_bias": lambda s: s.graph(s("Add", s.normal(1), _normed(s))),
    "softmax_by_exp": _softmax,
}

REFUSED: Mapping[str, Refusal] = {
    "layer_norm_by_moments": (lambda s: _layer_norm(s, axes=(1,)), "not the last ones"),
    "layer_norm_scale": (lambda s: s.graph(s("Mul", _normed(s), s.positive(3, 1))), "not normalised"),
    "layer_norm_bias": (lambda s: inner_output(s.graph(s("Add", _normed(s), s.normal(4))), 1), "graph output"),
    "softmax_by_exp": (lambda s: inner_output(_softmax(s), 2), "graph output"),
}
