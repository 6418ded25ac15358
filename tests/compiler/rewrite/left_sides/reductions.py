"""Left sides of the rules of `reductions`, and what they refuse."""

from collections.abc import Mapping

from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal

LEFT: Mapping[str, Drawing] = {}

REFUSED: Mapping[str, Refusal] = {}
