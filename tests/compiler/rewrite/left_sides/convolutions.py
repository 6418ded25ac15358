"""Left sides of the rules of `convolutions`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, plus
from tests.compiler.rewrite.left_sides.positions import pointwise
from tests.compiler.rewrite.sketch import Sketch


def _grouped(s: Sketch, x: int, filters: int, groups: int, kernel: int, bias: bool = True, **attrs: object) -> int:
    weights = s.normal(filters, s.dims(x)[1] // groups, kernel, kernel)
    return s("Conv", x, weights, *((s.normal(filters),) if bias else ()), group=groups, **attrs)


def _in_a_row(s: Sketch) -> Graph:
    """Two convolutions with a wide tensor between them, one of them 1x1."""
    kind, groups = int(s.rng.integers(4)), int(s.rng.integers(1, 3))
    x = s.x(1, 4, 6, 7)
    if kind == 0:
        inner = pointwise(s, x, 16, strides=(1, 2))
        return s.graph(pointwise(s, inner, 2, strides=(2, 1)))
    if kind == 1:
        inner = _grouped(s, x, 16, 2, 3, pads=(1, 0, 1, 2), strides=(2, 1), dilations=(1, 2))
        return s.graph(_grouped(s, inner, 2, groups, 1, strides=(1, 2)))
    if kind == 2:
        return s.graph(_grouped(s, _grouped(s, x, 64, groups, 1), 2, 2, 3, strides=(2, 1)))
    return s.graph(_grouped(s, _grouped(s, x, 64, groups, 1, bias=False), 2, 1, 3, pads=(1, 1, 0, 1), dilations=(2, 2)))


def _branches(s: Sketch) -> Graph:
    """RepVGG's: a 3x3, a 1x1 and the input normalised; or a pool, or a smaller kernel, in any order."""
    groups = int(s.rng.choice([1, 2]))
    x = s.x(1, 4, 6, 7)
    main = _grouped(s, x, 4, groups, 3, pads=(1, 1, 1, 1))
    others = [
        lambda: x,
        lambda: s("Mul", x, s.positive(4, 1, 1)),
        lambda: s("Add", s("Mul", x, s.positive(4, 1, 1)), s.normal(4, 1, 1)),
        lambda: _grouped(s, x, 4, 4, 1),
        lambda: s("AveragePool", x, kernel_shape=(3, 3), pads=(1, 1, 1, 1), count_include_pad=1),
    ]
    if groups == 1:
        others += [
            lambda: pointwise(s, x, 4),
            lambda: s("Conv", x, s.normal(4, 4, 1, 3), pads=(0, 1, 0, 1)),
            lambda: _grouped(s, x, 4, 1, 2, pads=(0, 1, 1, 0)),
        ]
    total = main
    for at in s.rng.permutation(len(others))[: int(s.rng.integers(1, 3))]:
        total = plus(s, total, others[int(at)]())
    return s.graph(total)


def _transposed(s: Sketch) -> Graph:
    rank, groups = int(s.rng.integers(1, 3)), int(s.rng.integers(1, 3))
    taps = tuple(int(k) for k in s.rng.integers(1, 4, rank))
    steps = tuple(int(d) for d in s.rng.integers(1, 3, rank))
    pads = tuple(int(s.rng.integers(0, d * (k - 1) + 1)) for k, d in zip(taps * 2, steps * 2, strict=True))
    bias = (s.normal(3 * groups),) if s.rng.integers(2) else ()
    x = s.x(1, 2 * groups, *(6, 7)[:rank])
    weights = s.normal(2 * groups, 3, *taps)
    return s.graph(s("ConvTranspose", x, weights, *bias, group=groups, dilations=steps, pads=pads))


def _blocks(s: Sketch, **attrs: object) -> Graph:
    block = int(s.rng.integers(2, 4))
    x = s("SpaceToDepth", s.x(1, 2, 4 * block, 5 * block), blocksize=block)
    bias = (s.normal(3),) if s.rng.integers(2) else ()
    kernel = tuple(int(k) for k in s.rng.integers(1, 4, 2))
    weights = s.normal(3, 2 * block**2, *kernel)
    return s.graph(s("Conv", x, weights, *bias, **{"pads": (1, 0, 1, 1), "strides": (1, 2), **attrs}))


LEFT: Mapping[str, Drawing] = {
    "conv_of_conv": _in_a_row,
    "conv_of_space_to_depth": _blocks,
    "transposed_convolution_of_stride_one": _transposed,
    "sum_of_convolutions": _branches,
}

REFUSED: Mapping[str, Refusal] = {
    "conv_of_conv": (
        lambda s: s.graph(pointwise(s, pointwise(s, s.x(1, 32, 6, 6), 4), 32)),
        "would take more operations",
    ),
    "conv_of_space_to_depth": (lambda s: _blocks(s, pads=(4, 4, 4, 4), dilations=(2, 2)), "dilated"),
    "transposed_convolution_of_stride_one": (
        lambda s: s.graph(s("ConvTranspose", s.x(1, 2, 6), s.normal(2, 3, 2), pads=(2, 0))),
        "cuts off more",
    ),
    "sum_of_convolutions": (
        lambda s: s.graph(
            s("Add", s("Conv", x := s.x(1, 2, 5), s.normal(2, 2, 2), dilations=(2,)), s("Conv", x, s.normal(2, 2, 3)))
        ),
        "do not fall on each other",
    ),
}
