"""Left sides of the rules of `folding`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal

LEFT: Mapping[str, Drawing] = {
    "constant_folding": lambda s: s.graph(s("Add", s.x(2), s("Exp", s("Mul", s.normal(2), s.normal(2))))),
}

REFUSED: Mapping[str, Refusal] = {
    "constant_folding": (lambda s: s.graph(s("Exp", s.normal(2))), "graph output"),
}
