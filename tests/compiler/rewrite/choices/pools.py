"""Where the choices of `pools` are offered, and where not."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.left_sides.positions import pointwise
from tests.compiler.rewrite.sketch import Sketch


def _after(s: Sketch) -> Graph:
    """A pool over many channels before a 1x1 convolution that leaves few."""
    pool = s(
        "AveragePool",
        s.x(1, 64, 8, 8),
        kernel_shape=(3, 3),
        pads=(1, 1, 1, 1),
        count_include_pad=int(s.rng.integers(2)),
    )
    return s.graph(pointwise(s, pool, 2))


LEFT: Mapping[str, Drawing] = {"pool_after_pointwise": _after}

REFUSED: Mapping[str, Refusal] = {
    "pool_after_pointwise": (
        lambda s: s.graph(pointwise(s, s("AveragePool", s.x(1, 3, 9), kernel_shape=(2,)), 64)),
        "average as many channels",
    ),
}
