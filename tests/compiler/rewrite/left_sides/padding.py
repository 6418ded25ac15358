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


LEFT: Mapping[str, Drawing] = {
    "pad_of_nothing": lambda s: s.graph(s("Abs", s("Pad", s.x(2, 3), *(None,) * 3, pads=(0, 0, 0, 0)))),
    "pad_into_conv": lambda s: s.graph(conv(s, _padded(s))),
    "pad_into_average_pool": _average,
}

REFUSED: Mapping[str, Refusal] = {
    "pad_of_nothing": (lambda s: s.graph(s("Abs", s("Pad", s.x(2), *(None,) * 3, pads=(1, -1)))), ""),
    "pad_into_conv": (lambda s: s.graph(conv(s, _padded(s, constant_value=1.0))), "else than zeros"),
    "pad_into_average_pool": (
        lambda s: s.graph(s("AveragePool", _padded(s), kernel_shape=(2, 2), pads=(1, 1, 1, 1), count_include_pad=0)),
        "but not its own",
    ),
}
