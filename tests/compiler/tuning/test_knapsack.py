from __future__ import annotations

import itertools

import numpy as np
import pytest

from compiler.tuning.knapsack import Frontier, Option


@pytest.mark.parametrize("seed", range(6))
def test_the_frontier_holds_the_best_of_all_choices(seed: int) -> None:
    random = np.random.default_rng(seed)
    layers = [
        [Option(float(cost), float(error)) for cost, error in random.integers(1, 40, size=(count, 2))]
        for count in random.integers(2, 5, size=5)
    ]
    every = [
        (sum(one.cost for one in picked), sum(one.error for one in picked)) for picked in itertools.product(*layers)
    ]
    frontier = Frontier(layers)
    for bound in range(10, 160, 7):
        within = [cost for cost, error in every if error <= bound]
        if within:
            found = frontier.cheapest(bound)
            assert (found.cost, found.error <= bound) == (min(within), True)
        affordable = [error for cost, error in every if cost <= bound]
        nearest = frontier.nearest(bound)
        assert (nearest.error if nearest else None) == min(affordable, default=None)
    found = frontier.choice(len(frontier) // 2)
    picked = [options[at] for options, at in zip(layers, found.levels, strict=True)]
    assert (sum(one.cost for one in picked), sum(one.error for one in picked)) == (found.cost, found.error)
    assert frontier.spread(4)[0].cost == max(frontier.cost)
    with pytest.raises(ValueError, match="no choice has an error"):
        frontier.cheapest(-1.0)
