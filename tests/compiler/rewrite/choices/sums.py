"""Where the choices of `sums` are offered, and where not."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.left_sides.positions import pointwise
from tests.compiler.rewrite.sketch import Sketch


def _convs(s: Sketch, first: dict[str, object], second: dict[str, object]) -> Graph:
    """A sum of two convolutions of different inputs."""
    kernel = tuple(int(k) for k in s.rng.integers(1, 3, 2))
    terms = []
    for attrs in (first, second):
        channels = int(s.rng.integers(1, 5))
        bias = (s.normal(3),) if s.rng.integers(2) else ()
        terms.append(s("Conv", s.x(1, channels, 6, 7), s.normal(3, channels, *kernel), *bias, **attrs))
    return s.graph(s("Add", *terms))


def _products(s: Sketch) -> Graph:
    a, b = (int(n) for n in s.rng.integers(1, 5, 2))
    return s.graph(s("Add", s("MatMul", s.x(2, 3, a), s.normal(a, 4)), s("MatMul", s.x(2, 3, b), s.normal(b, 4))))


def _branches(s: Sketch) -> Graph:
    """Convolutions with kernels of 3 and 5 and with equal groups, side by side, of two inputs or of one."""
    parts, step = [], int(s.rng.integers(1, 3))
    wide, filters = (int(n) for n in s.rng.integers(1, 3, 2))
    maps = bool(s.rng.integers(2))
    shared = s.x(1, 3 * wide, 7, 8)
    for at in range(int(s.rng.integers(2, 4))):
        kernel = int(s.rng.choice([3, 5]))
        x = shared if at and s.rng.integers(2) else s.x(1, int(s.rng.integers(1, 4)) * wide, 7, 8)
        groups = s.dims(x)[1] // wide
        bias = (s.normal(groups * filters),) if s.rng.integers(2) else ()
        attrs = {"group": groups, "pads": (kernel // 2,) * 4, "strides": (step, 1)}
        parts.append(s("Conv", x, s.normal(groups * filters, wide, kernel, kernel), *bias, **attrs))
    if maps:
        parts = [s("LeakyRelu", part, alpha=0.25) for part in parts]
    return s.graph(s("Concat", *parts, axis=int(s.rng.choice([1, -3]))))


def _joined(s: Sketch, parts: int) -> int:
    return s("Concat", *(s.x(1, int(n), 5, 6) for n in s.rng.integers(1, 4, parts)), axis=int(s.rng.choice([1, -3])))


def _over_concat(s: Sketch) -> Graph:
    x = _joined(s, int(s.rng.integers(2, 5)))
    bias = (s.normal(2),) if s.rng.integers(2) else ()
    return s.graph(s("Conv", x, s.normal(2, s.dims(x)[1], 3, 1), *bias, pads=(1, 0, 0, 0)))


LEFT: Mapping[str, Drawing] = {
    "joined_convolutions": lambda s: _convs(s, {"strides": (2, 1)}, {"strides": (2, 1)}),
    "joined_products": _products,
    "joined_branches": _branches,
    "convolution_of_concat_apart": _over_concat,
}

REFUSED: Mapping[str, Refusal] = {
    "joined_convolutions": (
        lambda s: s.graph(
            s("Add", s("Conv", s.x(1, 2, 6), s.normal(2, 2, 1)), s("Conv", s.x(1, 2, 8), s.normal(2, 2, 3)))
        ),
        "the windows of the convolutions differ",
    ),
    "joined_products": (
        lambda s: s.graph(
            s("Add", s("MatMul", s.x(2, 3, 2), s.normal(2, 4)), s("MatMul", s.x(2, 3, 2), s.normal(2, 2, 4)))
        ),
        "not constant matrices",
    ),
    "joined_branches": (
        lambda s: s.graph(
            s(
                "Concat",
                s("Conv", s.x(1, 1, 6), s.normal(1, 1, 1)),
                s("Conv", s.x(1, 1, 6), s.normal(1, 1, 7), pads=(3, 3)),
                axis=1,
            )
        ),
        "grow too much",
    ),
    "convolution_of_concat_apart": (
        lambda s: s.graph(pointwise(s, _joined(s, 5), 2)),
        "the Concat joins 5 tensors",
    ),
}
