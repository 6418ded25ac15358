"""Where the choices of `kernels` are offered, and where not."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.left_sides.positions import pointwise
from tests.compiler.rewrite.sketch import Sketch


def _bottleneck(s: Sketch) -> Graph:
    """A linear bottleneck between two wider tensors."""
    narrow = pointwise(s, s.x(1, 8, 5, 6), 3)
    return s.graph(pointwise(s, narrow, int(s.rng.integers(8, 12))))


def _groups(s: Sketch) -> Graph:
    groups, per_group = ((8, 4), (8, 8), (4, 6), (8, 5))[int(s.rng.integers(4))]
    channels = int(s.rng.integers(2, 4))
    bias = (s.normal(groups * per_group),) if s.rng.integers(2) else ()
    weights = s.normal(groups * per_group, channels, 3, 2)
    x = s.x(1, groups * channels, 6, 5)
    return s.graph(s("Conv", x, weights, *bias, group=groups, pads=(1, 0, 1, 1), strides=(1, 2)))


LEFT: Mapping[str, Drawing] = {"convolutions_in_a_row": _bottleneck, "joined_groups": _groups}

REFUSED: Mapping[str, Refusal] = {
    "convolutions_in_a_row": (
        lambda s: s.graph(pointwise(s, pointwise(s, s.x(1, 2, 5), 8), 2)),
        "a matter of rules",
    ),
    "joined_groups": (
        lambda s: s.graph(s("Conv", s.x(1, 8, 5), s.normal(8, 1, 3), group=8)),
        "channel by channel",
    ),
}
