from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from compiler.fuse.layouts.pbqp import Solution, Table, cost_of, solve


def random_problem(
    random: np.random.Generator, variables: int, tables: int, most: int
) -> tuple[list[int], list[Table]]:
    """Tables of up to `most` variables with two or three alternatives each.

    Costs are small integers, so that sums are exact.
    """
    sizes = [int(size) for size in random.integers(2, 4, variables)]
    found = []
    for _ in range(tables):
        chosen = random.choice(variables, int(random.integers(1, min(most, variables) + 1)), replace=False)
        shape = [sizes[variable] for variable in chosen]
        found.append(Table(tuple(map(int, chosen)), random.integers(0, 50, shape).astype(float)))
    return sizes, found


def least(sizes: list[int], tables: list[Table]) -> float:
    return min(cost_of(tables, choice) for choice in product(*map(range, sizes)))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_choice_costs_what_the_cheapest_of_all_choices_costs(most: int) -> None:
    random = np.random.default_rng(most)
    for _ in range(60):
        sizes, tables = random_problem(random, int(random.integers(1, 8)), int(random.integers(1, 14)), most)
        found = solve(sizes, tables)
        assert found.cost == found.bound == cost_of(tables, found.choice) == least(sizes, tables), (sizes, tables)


def test_without_room_for_its_tables_the_bound_is_no_more_than_the_least_and_the_cost_no_less() -> None:
    random = np.random.default_rng(11)
    gaps = 0
    for _ in range(80):
        sizes, tables = random_problem(random, 8, 16, 3)
        found = solve(sizes, tables, most_cells=9)
        best = least(sizes, tables)
        assert found.bound <= best <= found.cost == cost_of(tables, found.choice)
        gaps += found.bound < found.cost
    assert gaps, "no problem was too large for its tables, so that nothing was tested"


def test_a_chain_of_a_thousand_variables_is_solved_as_by_dynamic_programming() -> None:
    random = np.random.default_rng(5)
    tables = [Table((at, at + 1), random.integers(0, 100, (3, 3)).astype(float)) for at in range(999)]
    cheapest = np.zeros(3)
    for table in tables:
        cheapest = (cheapest[:, None] + table.costs).min(axis=0)
    found = solve([3] * 1000, tables)
    assert found.cost == found.bound == cheapest.min()


def test_of_equal_choices_the_first_alternatives_are_taken() -> None:
    tables = [Table((0, 1), np.ones((2, 2))), Table((2,), np.zeros(2)), Table((), np.asarray(4.0))]
    assert solve([2, 2, 2, 2], tables) == Solution((0, 0, 0, 0), 5.0, 5.0)


def test_a_choice_that_must_not_be_is_an_infinite_cost() -> None:
    tables = [Table((0, 1), np.array([[np.inf, 1.0], [3.0, np.inf]])), Table((1,), np.array([0.0, 5.0]))]
    assert solve([2, 2], tables) == Solution((1, 0), 3.0, 3.0)
