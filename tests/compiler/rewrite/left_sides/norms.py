"""Left sides of the rules of `norms`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, inner_output, plus
from tests.compiler.rewrite.sketch import Sketch

AXES = ((-1,), (2,), (1, 2), (-1, -2))
EPSILON = 1e-5


def _mean(s: Sketch, x: int, axes: tuple[int, ...]) -> int:
    """Over axes that stay with extent 1.

    As a ReduceMean, or as a sum times a number that has its shape back by a Reshape.
    """
    if s.rng.integers(2):
        return s("ReduceMean", x, None, axes=axes)
    dims = s.dims(x)
    over = {axis % len(dims) for axis in axes}
    share = s.c(1 / prod(dims[axis] for axis in over))
    mean = s("Mul", s("ReduceSum", x, None, axes=axes, keepdims=0), share)
    return s("Reshape", mean, None, shape=tuple(1 if at in over else n for at, n in enumerate(dims)))


def _square(s: Sketch, x: int) -> int:
    return s("Mul", x, x) if s.rng.integers(2) else s("Pow", x, s.c(2))


def _times(s: Sketch, a: int, b: int) -> int:
    return s("Mul", a, b) if s.rng.integers(2) else s("Mul", b, a)


def _inverse(s: Sketch, variance: int, epsilon: int) -> int:
    under = plus(s, variance, epsilon)
    kind = int(s.rng.integers(3))
    if kind == 0:
        return s("Pow", under, s.c(-0.5))
    root = s("Sqrt", under)
    return s("Reciprocal", root) if kind == 1 else s("Div", s.c(1), root)


def _layer_norm(s: Sketch, axes: tuple[int, ...] | None = None) -> Graph:
    """As PyTorch writes it, as Keras does (scaled before the mean goes), or as JAX does (from the mean of squares)."""
    x, kind = s.x(2, 3, 4), int(s.rng.integers(4))
    over = axes or AXES[int(s.rng.integers(len(AXES)))]
    mean, epsilon = _mean(s, x, over), s.c(EPSILON)
    if kind == 3:
        variance = s("Max", s.c(0), s("Sub", _mean(s, _square(s, x), over), _square(s, mean)))
        gate = _times(s, _inverse(s, variance, epsilon), s.positive(4))
        return s.graph(_times(s, s("Sub", x, mean), gate))
    d = s("Sub", x, mean)
    variance = _mean(s, _square(s, d), over)
    if kind == 2:
        gate = _times(s, _inverse(s, variance, epsilon), s.positive(4))
        return s.graph(plus(s, _times(s, x, gate), s("Sub", s.normal(4), _times(s, mean, gate))))
    if kind == 1:
        return s.graph(_times(s, d, _inverse(s, variance, epsilon)))
    return s.graph(s("Div", d, s("Sqrt", plus(s, variance, epsilon))))


def _rms_norm(s: Sketch) -> Graph:
    """The mean or the sum of squares, or the Euclidean norm alone."""
    x, over = s.x(2, 3, 4), AXES[int(s.rng.integers(len(AXES)))]
    kind = int(s.rng.integers(4))
    if kind == 0:
        return s.graph(s("Div", x, s("ReduceL2", x, None, axes=over)))
    square = _square(s, x)
    spread = s("ReduceSum", square, None, axes=over) if kind == 1 else _mean(s, square, over)
    inverse = _inverse(s, spread, s.c(EPSILON))
    return s.graph(_times(s, x, _times(s, inverse, s.positive(4)) if kind == 2 else inverse))


def _standardised(s: Sketch) -> Graph:
    x, over = s.x(2, 3, 4), AXES[int(s.rng.integers(len(AXES)))]
    mean = s("ReduceMean", x, None, axes=over)
    square = s("ReduceMean", s("Pow", x, s.c(2)), None, axes=over)
    deviation = s("Sqrt", s("Sub", square, s("Pow", mean, s.c(2))))
    return s.graph(s("Div", s("Sub", x, mean), plus(s, deviation, s.c(1e-9))))


def _in_groups(s: Sketch, groups: int | None = None) -> Graph:
    """Group norm by an instance norm or a layer norm of a tensor in which each group is a row."""
    count = groups or int(s.rng.choice([2, 4]))
    x = s.x(2, 4, 3, 2)
    if s.rng.integers(2):
        flat = s("Reshape", x, None, shape=(2, count, -1))
        normal = s("InstanceNormalization", flat, s.positive(count), s.normal(count))
    else:
        shape = (2, count, 4 // count, 3, 2) if s.rng.integers(2) else (2 * count, 24 // count)
        axis = 2 if len(shape) > 2 else 1
        flat = s("Reshape", x, None, shape=shape)
        normal = s("LayerNormalization", flat, s.c(np.full(shape[axis:], 0.5)), axis=axis)
    return s.graph(s("Reshape", normal, None, shape=(2, 4, 3, 2)))


def _scaled_groups(s: Sketch) -> Graph:
    flat = s("Reshape", s.x(2, 4, 3, 2), None, shape=(2, 2, -1))
    normal = s("LayerNormalization", flat, s.positive(12), axis=2)
    return s.graph(s("Reshape", normal, None, shape=(2, 4, 3, 2)))


LEFT: Mapping[str, Drawing] = {
    "layer_norm_by_moments": _layer_norm,
    "rms_norm_by_squares": _rms_norm,
    "standardised_by_moments": _standardised,
    "group_norm_by_reshape": _in_groups,
}

REFUSED: Mapping[str, Refusal] = {
    "layer_norm_by_moments": (lambda s: _layer_norm(s, axes=(1,)), "not the last ones"),
    "rms_norm_by_squares": (lambda s: inner_output(_rms_norm(s), 1), "graph output"),
    "standardised_by_moments": (lambda s: inner_output(_standardised(s), 1), "graph output"),
    "group_norm_by_reshape": (_scaled_groups, "no number for each group"),
}
