"""How often an iteration may begin that needs results of the one before: the bound that recurrences set.

As of a modulo schedule (Rau, "Iterative modulo scheduling", MICRO 1994, section 2).
"""

from __future__ import annotations

from collections.abc import Sequence

Ways = Sequence[Sequence[float | None]]
"""Of each state, and to each, the seconds from its reading to the making of the other; None: there is no way."""


def maximum_cycle_mean(ways: Ways) -> float:
    """The most seconds for an iteration on any way that leads from a state back to it; 0 where none does."""
    found, power = 0.0, ways
    for iterations in range(1, len(ways) + 1):
        for state in range(len(ways)):
            if (own := power[state][state]) is not None:
                found = max(found, own / iterations)
        power = [[_longest(row, [each[at] for each in ways]) for at in range(len(ways))] for row in power]
    return found


def _longest(row: Sequence[float | None], column: Sequence[float | None]) -> float | None:
    sums = [one + other for one, other in zip(row, column, strict=True) if one is not None and other is not None]
    return max(sums, default=None)
