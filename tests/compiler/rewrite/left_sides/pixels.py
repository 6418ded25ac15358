"""Left sides of the rules of `pixels`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, inner_output
from tests.compiler.rewrite.sketch import Sketch


def _spread(s: Sketch) -> Graph:
    """Channels into blocks of pixels, in both orders.

    A batch of several, or one, whose axis PyTorch leaves out of the perm's work.
    """
    n, c, h, w, b = (int(v) for v in s.rng.integers([1, 1, 2, 2, 2], [3, 3, 4, 4, 4]))
    x = s.x(n, c * b * b, h, w)
    parts, perm = [((n, b, b, c, h, w), (0, 3, 4, 1, 5, 2)), ((n, c, b, b, h, w), (0, 1, 4, 2, 5, 3))][
        int(s.rng.integers(2))
    ]
    moved = s("Transpose", s("Reshape", x, None, shape=parts), perm=perm)
    return s.graph(s("Reshape", moved, None, shape=(n, c, h * b, w * b)))


def _collected(s: Sketch, perm: tuple[int, ...] = (0, 3, 5, 1, 2, 4)) -> Graph:
    n, c, h, w, b = (int(v) for v in s.rng.integers([1, 2, 2, 2, 2], [3, 4, 4, 4, 4]))
    x = s("Reshape", s.x(n, c, h * b, w * b), None, shape=(n, c, h, b, w, b))
    return s.graph(s("Reshape", s("Transpose", x, perm=perm), None, shape=(n, c * b * b, h, w)))


LEFT: Mapping[str, Drawing] = {
    "depth_to_space_by_transpose": _spread,
    "space_to_depth_by_transpose": _collected,
}

REFUSED: Mapping[str, Refusal] = {
    "depth_to_space_by_transpose": (lambda s: inner_output(_spread(s), 1), "graph output"),
    "space_to_depth_by_transpose": (lambda s: _collected(s, (0, 1, 3, 5, 2, 4)), ""),
}
