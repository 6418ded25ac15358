"""Left sides of the rules of `padding`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, conv
from tests.compiler.rewrite.sketch import Sketch


def _padded(s: Sketch, spatial: bool = True, **attrs: object) -> int:
    pads = (0, 0, *(int(p) for p in s.rng.integers(0, 3, 2))) * 2
    return s("Pad", s.x(1, 2, 4, 5), *(None,) * 3, pads=pads if spatial else (0, 1, 0, 0, 0, 0, 1, 0), **attrs)


def _average(s: Sketch) -> Graph:
    counted = int(s.rng.integers(2))
    pads = tuple(int(p) for p in s.rng.integers(0, 2, 4)) if counted else (0, 0, 0, 0)
    return s.graph(
        s("AveragePool", _padded(s), kernel_shape=(2, 2), pads=pads, count_include_pad=counted, strides=(1, 2))
    )


def _max_pool(s: Sketch) -> Graph:
    """Padded with zeros after a Relu, or with minus infinity."""
    pads = (0, 0, *(int(p) for p in s.rng.integers(0, 2, 2))) * 2
    x, number = s.x(1, 2, 4, 5), float("-inf")
    if s.rng.integers(2):
        x, number = s("Relu", x), 0.0
    padded = s("Pad", x, *(None,) * 3, pads=pads, constant_value=number)
    return s.graph(s("MaxPool", padded, kernel_shape=(3, 3), pads=(0, 1, 1, 0), strides=(2, 1)))


def _pad_twice(s: Sketch, first: float = 0.0) -> Graph:
    number = float(s.rng.choice([0.0, -1.0])) if not first else 0.0
    pads = [tuple(int(p) for p in s.rng.integers(0, 3, 4)) for _ in range(2)]
    inner = s("Pad", s.x(2, 3), *(None,) * 3, pads=pads[0], constant_value=first or number)
    return s.graph(s("Pad", inner, *(None,) * 3, pads=pads[1], constant_value=number))


LEFT: Mapping[str, Drawing] = {
    "pad_of_nothing": lambda s: s.graph(s("Abs", s("Pad", s.x(2, 3), *(None,) * 3, pads=(0, 0, 0, 0)))),
    "pad_of_pad": _pad_twice,
    "pad_into_max_pool": _max_pool,
    "pad_into_conv": lambda s: s.graph(conv(s, _padded(s))),
    "pad_into_average_pool": _average,
}

REFUSED: Mapping[str, Refusal] = {
    "pad_of_nothing": (lambda s: s.graph(s("Abs", s("Pad", s.x(2), *(None,) * 3, pads=(1, -1)))), ""),
    "pad_of_pad": (lambda s: _pad_twice(s, 2.0), "the same number"),
    "pad_into_max_pool": (lambda s: s.graph(s("MaxPool", _padded(s), kernel_shape=(3, 3))), "greatest of a window"),
    "pad_into_conv": (lambda s: s.graph(conv(s, _padded(s, constant_value=1.0))), "else than zeros"),
    "pad_into_average_pool": (
        lambda s: s.graph(s("AveragePool", _padded(s), kernel_shape=(2, 2), pads=(1, 1, 1, 1), count_include_pad=0)),
        "but not its own",
    ),
}
