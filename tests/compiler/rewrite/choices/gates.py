"""Where the choices of `gates` are offered, and where not."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.sketch import Sketch


def _gated(s: Sketch, groups: int = 1) -> Graph:
    """A convolution of an image whose channels were scaled by what a sigmoid gives, in either order."""
    side = int(s.rng.integers(3, 6))
    x, gate = s.x(1, 4, side, side), s("Sigmoid", s.x(1, 4, 1, 1))
    operands = (x, gate) if s.rng.integers(2) else (gate, x)
    k = int(s.rng.integers(1, 4))
    bias = [(), (s.normal(6),)][int(s.rng.integers(2))]
    pads = tuple(int(p) for p in s.rng.integers(0, 2, 4))
    return s.graph(s("Conv", s("Mul", *operands), s.normal(6, 4 // groups, k, k), *bias, pads=pads, group=groups))


LEFT: Mapping[str, Drawing] = {"gate_into_weights": _gated}

REFUSED: Mapping[str, Refusal] = {
    "gate_into_weights": (lambda s: _gated(s, groups=2), "do not read all channels"),
}
