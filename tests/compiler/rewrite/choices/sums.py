"""Where the choices of `sums` are offered, and where not."""

from collections.abc import Mapping

from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal

LEFT: Mapping[str, Drawing] = {}

REFUSED: Mapping[str, Refusal] = {}
