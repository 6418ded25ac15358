"""A level for each layer: a multiple-choice knapsack, solved exactly by dynamic programming over Pareto frontiers.

Layer by layer the cheapest ways to reach each error are kept; a way that another one beats in both cost and error is
dropped, since whatever follows adds the same to both (Nemhauser and Ullmann, "Discrete Dynamic Programming and Capital
Allocation", Management Science 1969). Costs and errors of layers are taken to add up; who asks says what is added, and
checks the sum by running the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_STATES = 20_000
"""Of a frontier. Beyond it the nearest in cost to a state that is kept are dropped, and the result is no more exact."""


@dataclass(frozen=True)
class Option:
    """One level of one layer: what it costs, and the error that it adds."""

    cost: float
    error: float


@dataclass(frozen=True)
class Choice:
    """A level of each layer, by position, with the sums."""

    levels: tuple[int, ...]
    cost: float
    error: float


class Frontier:
    """All choices for which no other one is better in cost and error, from the costliest to the cheapest."""

    def __init__(self, layers: Sequence[Sequence[Option]]) -> None:
        cost, error = np.zeros(1), np.zeros(1)
        steps: list[tuple[np.ndarray, np.ndarray]] = []
        for options in layers:
            costs = (cost[:, None] + np.array([one.cost for one in options])).reshape(-1)
            errors = (error[:, None] + np.array([one.error for one in options])).reshape(-1)
            order = np.lexsort((costs, errors))
            before = np.minimum.accumulate(costs[order])
            kept = order[np.concatenate([[True], costs[order][1:] < before[:-1]])]
            if len(kept) > MOST_STATES:
                kept = kept[np.unique(np.linspace(0, len(kept) - 1, MOST_STATES).astype(int))]
            cost, error = costs[kept], errors[kept]
            steps.append((kept // len(options), kept % len(options)))
        self.cost, self.error = cost, error
        self._steps = steps

    def __len__(self) -> int:
        return len(self.cost)

    def choice(self, at: int) -> Choice:
        """The one at a place; places go from the least error and greatest cost to the greatest error and least cost."""
        levels: list[int] = []
        state = at
        for before, level in reversed(self._steps):
            levels.append(int(level[state]))
            state = int(before[state])
        return Choice(tuple(reversed(levels)), float(self.cost[at]), float(self.error[at]))

    def cheapest(self, most_error: float) -> Choice:
        """Of an error of at most this much. Raises ValueError where there is none."""
        fitting = np.flatnonzero(self.error <= most_error)
        if not len(fitting):
            raise ValueError(f"no choice has an error of {most_error:g} or less")
        return self.choice(int(fitting[-1]))

    def nearest(self, most_cost: float) -> Choice | None:
        """The least error of a cost of at most this much; None where nothing is so cheap."""
        fitting = np.flatnonzero(self.cost <= most_cost)
        return self.choice(int(fitting[0])) if len(fitting) else None

    def spread(self, count: int) -> list[Choice]:
        """About so many choices, at equal distances of cost, both ends among them."""
        wanted = np.linspace(self.cost[0], self.cost[-1], count)
        places = {int(np.abs(self.cost - one).argmin()) for one in wanted} | {0, len(self) - 1}
        return [self.choice(at) for at in sorted(places)]
