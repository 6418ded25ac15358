"""Left sides of the rules of `norms`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, inner_output, plus
from tests.compiler.rewrite.sketch import Sketch

AXES = ((-1,), (2,), (1, 2), (-1, -2))
EPSILON = 1e-5


def _mean(s: Sketch, x: int, axes: tuple[int, ...]) -> int:
    """Over axes that stay with extent 1: as a ReduceMean, or as a sum times a number that has its shape back by a Reshape."""
    if s.rng.integers(2):
        return s("ReduceMean", x, None, axes=axes)
    dims = s.dims(x)
    over = {axis % len(dims) for axis in axes}
    share = s.c(1 / np.prod([dims[axis] for axis in over]))
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


def _exponentials(s: Sketch) -> tuple[int, int, int]:
    """x, exp(x - max(x)) and its sum, which keep the axis or get it back by a Reshape; the distance is the node before the Exp."""
    x, axis = s.x(2, 3, 2), int(s.rng.integers(-3, 3))
    kept = tuple(1 if at == axis % 3 else n for at, n in enumerate((2, 3, 2)))

    def over(op: str, value: int) -> int:
        if s.rng.integers(2):
            return s(op, value, None, axes=(axis,))
        lost = s(op, value, None, axes=(axis,), keepdims=0)
        if op == "ReduceMax" and s.rng.integers(2):
            lost = s("Max", s.c(-np.inf), lost)
        return s("Reshape", lost, None, shape=kept)

    d = s("Sub", x, over("ReduceMax", x))
    e = s("Exp", d)
    return d, e, over("ReduceSum", e)


def _softmax(s: Sketch) -> Graph:
    _, e, total = _exponentials(s)
    return s.graph(s("Div", e, total))


def _log_softmax(s: Sketch) -> Graph:
    d, _, total = _exponentials(s)
    return s.graph(s("Sub", d, s("Log", total)))


def _log_of_softmax(s: Sketch) -> Graph:
    return s.graph(s("Log", s("Softmax", s.x(2, 3), axis=int(s.rng.integers(2)))))


LEFT: Mapping[str, Drawing] = {
    "layer_norm_by_moments": _layer_norm,
    "rms_norm_by_squares": _rms_norm,
    "standardised_by_moments": _standardised,
    "group_norm_by_reshape": _in_groups,
    "layer_norm_scale": _scaled_norm,
    "layer_norm_bias": lambda s: s.graph(plus(s, _normed(s), s.normal(1))),
    "group_norm_scale": lambda s: s.graph(_times(s, _channels(s), s.positive(4, 1))),
    "group_norm_bias": lambda s: s.graph(plus(s, _channels(s), s.normal(1, 4, 1))),
    "norm_between_casts": _of_halves,
    "softmax_by_exp": _softmax,
    "log_softmax_by_exp": _log_softmax,
    "log_of_softmax": _log_of_softmax,
}

REFUSED: Mapping[str, Refusal] = {
    "layer_norm_by_moments": (lambda s: _layer_norm(s, axes=(1,)), "not the last ones"),
    "rms_norm_by_squares": (lambda s: inner_output(_rms_norm(s), 1), "graph output"),
    "standardised_by_moments": (lambda s: inner_output(_standardised(s), 1), "graph output"),
    "group_norm_by_reshape": (_scaled_groups, "no number for each group"),
    "layer_norm_scale": (lambda s: s.graph(s("Mul", _normed(s), s.positive(3, 1))), "not those of its scale"),
    "layer_norm_bias": (lambda s: inner_output(s.graph(s("Add", _normed(s), s.normal(4))), 1), "graph output"),
    "group_norm_scale": (lambda s: s.graph(s("Mul", _channels(s), s.positive(3))), "not those of its scale"),
    "group_norm_bias": (lambda s: inner_output(s.graph(s("Add", _channels(s), s.normal(4, 1))), 1), "graph output"),
    "norm_between_casts": (lambda s: _of_halves(s, scale=0.1), "not known in f16"),
    "softmax_by_exp": (lambda s: inner_output(_softmax(s), 2), "graph output"),
    "log_softmax_by_exp": (lambda s: inner_output(_log_softmax(s), 1), "graph output"),
    "log_of_softmax": (lambda s: inner_output(_log_of_softmax(s), 1), "graph output"),
}
