"""Left sides for proofs, of rules whose drawings for tests are other programs for other sizes."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing
from tests.compiler.rewrite.sketch import Sketch

Cut = tuple[int, int, int]
"""First, past the last, step."""


def cut(s: Sketch, x: int, *windows: Cut) -> int:
    """A Slice with a window on each of the first axes."""
    starts, ends, steps = zip(*windows, strict=True)
    return s("Slice", x, *(None,) * 4, starts=starts, ends=ends, axes=tuple(range(len(windows))), steps=steps)


def _twice(*pairs: tuple[Cut, Cut]) -> Drawing:
    def drawing(s: Sketch) -> Graph:
        inner = cut(s, s.x(23, 29, 5), *(one for one, _ in pairs))
        return s.graph(cut(s, inner, *(two for _, two in pairs)))

    return drawing


def _padding_cut(s: Sketch) -> Graph:
    """Of the padding, some is left on each side."""
    padded = s("Pad", s.x(7, 11), *(None,) * 3, pads=(5, 0, 6, 0), constant_value=1.0)
    return s.graph(s("Abs", cut(s, padded, (2, 15, 1))))


def _elements_cut(s: Sketch) -> Graph:
    """No padding is left."""
    padded = s("Pad", s.x(17, 11), *(None,) * 3, pads=(5, 0, 6, 0), constant_value=1.0)
    return s.graph(s("Abs", cut(s, padded, (8, 20, 1))))


DRAWN: Mapping[str, tuple[Drawing, ...]] = {
    "slice_of_slice": (
        _twice(((3, 19, 1), (2, 11, 1))),
        _twice(((3, 19, 2), (2, 7, 1)), ((4, 25, 1), (5, 17, 2))),
        _twice(((19, 3, -1), (2, 11, 1)), ((4, 25, 1), (17, 5, -1))),
    ),
    "slice_of_pad": (_padding_cut, _elements_cut),
}
"""By rule."""
