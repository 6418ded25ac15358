"""Where the choices of `siblings` are offered, and where not."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.sketch import Sketch


def _conv(s: Sketch, x: int, kernel: tuple[int, int], **attrs: object) -> int:
    filters = int(s.rng.integers(1, 5))
    bias = (s.normal(filters),) if s.rng.integers(2) else ()
    return s("Conv", x, s.normal(filters, s.dims(x)[1], *kernel), *bias, **attrs)


def _equal_windows(s: Sketch) -> Graph:
    """Two or three siblings whose results end in one Concat, in any order, or are read by the same map.

    Other nodes may read them as well.
    """
    kernel = tuple(int(k) for k in s.rng.integers(1, 4, 2))
    x = s.x(1, 3, 7, 8)
    parts = [
        _conv(s, x, (kernel[0], kernel[1]), pads=(1, 0, 1, 1), strides=(2, 1)) for _ in range(int(s.rng.integers(2, 4)))
    ]
    pool = s("MaxPool", x, kernel_shape=(2, 2))
    if s.rng.integers(2):
        others = [s(op, part) for op, part in zip(("Neg", "Abs", "Identity"), parts, strict=False)]
        return s.graph(*(s("Relu", part) for part in parts), *others, pool)
    joined = [s("Relu", part) for part in parts]
    return s.graph(s("Concat", *(joined[at] for at in s.rng.permutation(len(joined))), axis=1), pool)


def _other_windows(s: Sketch) -> Graph:
    """A 3x3 kernel beside smaller ones, each padded so that the extents agree."""
    stride = int(s.rng.integers(1, 3))
    x = s.x(1, 3, 7, 8)
    windows = (((3, 3), (1, 1, 1, 1)), ((1, 1), (0, 0, 0, 0)), ((1, 3), (0, 1, 0, 1)), ((3, 1), (1, 0, 1, 0)))
    chosen = [windows[int(at)] for at in s.rng.permutation(4)[: int(s.rng.integers(2, 4))]]
    return s.graph(*(_conv(s, x, kernel, pads=pads, strides=(stride, stride)) for kernel, pads in chosen))


def _products(s: Sketch) -> Graph:
    if s.rng.integers(2):
        x = s.x(2, 3, 4)
        return s.graph(*(s("MatMul", x, s.normal(4, int(n))) for n in s.rng.integers(1, 5, 3)))
    turned, x = int(s.rng.integers(2)), s.x(3, 4)
    results = []
    for n in (int(n) for n in s.rng.integers(1, 5, 2)):
        bias = ((), (s.normal(n),), (s.normal(1, n),), (s.c(0.5),))[int(s.rng.integers(4))]
        weights = s.normal(*((n, 4) if turned else (4, n)))
        results.append(s("Gemm", x, weights, *bias, transB=turned, alpha=0.5, beta=2.0))
    return s.graph(*results)


def _separable(s: Sketch, x: int, kernel: int, **attrs: object) -> int:
    channels, filters = s.dims(x)[1], int(s.rng.integers(1, 5))
    weights = s.normal(channels, 1, kernel, kernel)
    bias = (s.normal(channels),) if s.rng.integers(2) else ()
    inner = s("Conv", x, weights, *bias, **{"group": channels, "pads": (kernel // 2,) * 4, **attrs})
    more = (s.normal(filters),) if s.rng.integers(2) else ()
    return s("Conv", inner, s.normal(filters, channels, 1, 1), *more)


def _separables(s: Sketch) -> Graph:
    x, step = s.x(1, 3, 7, 8), int(s.rng.integers(1, 3))
    kernels = [int(k) for k in s.rng.choice([3, 5], int(s.rng.integers(2, 4)))]
    return s.graph(*(s("Relu", _separable(s, x, kernel, strides=(step, 1))) for kernel in kernels))


def _strided_differently(s: Sketch) -> Graph:
    x = s.x(1, 2, 7)
    return s.graph(s("Conv", x, s.normal(2, 2, 1)), s("Conv", x, s.normal(2, 2, 1), strides=(2,)))


LEFT: Mapping[str, Drawing] = {
    "merged_convolutions": _equal_windows,
    "widened_convolutions": _other_windows,
    "merged_products": _products,
    "merged_separables": _separables,
}

REFUSED: Mapping[str, Refusal] = {
    "merged_convolutions": (_strided_differently, "the windows of its siblings differ"),
    "widened_convolutions": (_strided_differently, "no window holds those of its siblings"),
    "merged_products": (
        lambda s: s.graph(
            s("Gemm", x := s.x(3, 3), s.normal(3, 2), alpha=0.5), s("Gemm", x, s.normal(3, 2), alpha=0.25)
        ),
        "other attributes",
    ),
    "merged_separables": (
        lambda s: s.graph(s("Relu", _separable(s, x := s.x(1, 2, 7, 7), 3)), s("Tanh", _separable(s, x, 3))),
        "no sibling of it goes on in the same way",
    ),
}
