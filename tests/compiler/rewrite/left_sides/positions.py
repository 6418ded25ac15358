"""Left sides of the rules of `positions`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.sketch import Sketch


def pointwise(s: Sketch, x: int, filters: int, bias: bool | None = None, **attrs: object) -> int:
    """A 1x1 convolution."""
    inputs = (x, s.normal(filters, s.dims(x)[1], *(1,) * (len(s.dims(x)) - 2)))
    b = s.normal(filters) if (s.rng.integers(2) if bias is None else bias) else None
    return s("Conv", *(inputs if b is None else (*inputs, b)), **attrs)


def _pool(s: Sketch, x: int, counted: bool, padded: bool) -> int:
    pads = (1, 0, 1, 1) if padded else (0, 0, 0, 0)
    return s("AveragePool", x, kernel_shape=(3, 2), strides=(2, 2), pads=pads, count_include_pad=int(counted))


def _before(s: Sketch) -> Graph:
    """A pool after a 1x1 convolution, which sees fewer positions behind it."""
    x = s.x(1, 3, 9, 8)
    if s.rng.integers(3) == 0:
        return s.graph(s("GlobalAveragePool", pointwise(s, x, 4)))
    counted, padded = bool(s.rng.integers(2)), bool(s.rng.integers(2))
    bias = False if counted and padded else None
    return s.graph(_pool(s, pointwise(s, s.x(1, 64, 32, 32), 64, bias), counted, padded))


def _subsampled(s: Sketch) -> Graph:
    x, steps = s.x(1, 3, 7, 8), tuple(int(step) for step in s.rng.integers(2, 4, 2))
    kind = int(s.rng.integers(3))
    if kind < 2:
        taken = s(("AveragePool", "MaxPool")[kind], x, kernel_shape=(1, 1), strides=steps)
    else:
        taken = s("Slice", x, *(None,) * 4, starts=(0, 0), ends=(99, 8), axes=(2, -1), steps=steps)
    return s.graph(pointwise(s, taken, 2, strides=tuple(int(step) for step in s.rng.integers(1, 3, 2))))


def _upsampled(s: Sketch) -> Graph:
    x = s.x(1, 32, 6, 5)
    mode = str(s.rng.choice(["nearest", "linear", "cubic"]))
    if s.rng.integers(2):
        extents: dict[str, object] = {"scales": (1.0, 1.0, 2.0, 2.0)}
    else:
        extents = {"sizes": (1, 32, 12, 10)}
    resized = s("Resize", x, *(None,) * 3, mode=mode, **extents)
    return s.graph(pointwise(s, resized, int(s.rng.integers(1, 9))))


LEFT: Mapping[str, Drawing] = {
    "pool_before_pointwise": _before,
    "pointwise_of_subsample": _subsampled,
    "pointwise_before_resize": _upsampled,
}

REFUSED: Mapping[str, Refusal] = {
    "pool_before_pointwise": (
        lambda s: s.graph(_pool(s, pointwise(s, s.x(1, 3, 9, 8), 4, bias=True), counted=True, padded=True)),
        "where there is no bias",
    ),
    "pointwise_of_subsample": (
        lambda s: s.graph(
            s("Conv", s("AveragePool", s.x(1, 2, 7, 7), kernel_shape=(1, 1), strides=(2, 2)), s.normal(2, 2, 3, 3))
        ),
        "reads neighbours",
    ),
    "pointwise_before_resize": (
        lambda s: s.graph(
            pointwise(s, s("Resize", s.x(1, 2, 3, 4), *(None,) * 3, mode="nearest", scales=(1.0, 2.0, 1.0, 1.0)), 2)
        ),
        "it resizes channels",
    ),
}
