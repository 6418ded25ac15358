"""How far apart two engines' outputs are."""

from __future__ import annotations

import math

from bench.engines.driver import Arrays
from compiler.measure.compare import difference


def largest_difference(ours: Arrays, theirs: Arrays) -> float:
    """Over all outputs, relative to the largest value of each of `theirs`.

    Infinite where one is not finite and the other is.
    """
    found = [difference(expected, ours[name]) for name, expected in theirs.items()]
    return math.inf if any(unlike for _, unlike in found) else max((largest for largest, _ in found), default=0.0)
