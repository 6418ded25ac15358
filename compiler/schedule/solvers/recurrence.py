"""How often an iteration may begin that needs results of the one before: the bound that recurrences set.

As of a modulo schedule (Rau, "Iterative modulo scheduling", MICRO 1994, section 2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Ways = Sequence[Sequence[float | None]]
"""Of each state, and to each, the seconds from its reading to the making of the other; None: there is no way."""


def maximum_cycle_mean(ways: Ways) -> float:
    """The most seconds for an iteration on any way that leads from a state back to it; 0 where none does."""
    if not ways:
        return 0.0
    one = np.array([[-np.inf if way is None else way for way in row] for row in ways])
    found, power = 0.0, one
    for iterations in range(1, len(ways) + 1):
        found = max(found, float(power.diagonal().max()) / iterations)
        power = (power[:, :, None] + one[None, :, :]).max(axis=1)
    return found
