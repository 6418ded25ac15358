from __future__ import annotations

from itertools import pairwise, product

from compiler.schedule.solvers.cut import branches, halves, live_after, narrow, series
from tests.compiler.schedule.problems import random_problem, reaches
from tests.seeds import each

DIAMOND: tuple[tuple[int, ...], ...] = ((), (0,), (0,), (1, 2))
INCEPTION: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (0,), (0,), (4,), (2, 3, 5), (2, 3, 5))
"""Three branches write one tensor, which two calls read."""


@each(range(60))
def test_blocks_in_series_are_all_that_precedence_puts_one_after_another(seed: int) -> None:
    problem = random_problem(seed, most=14)
    blocks, before = series(problem.before, problem.calls), reaches(problem)
    assert sorted(call for block in blocks for call in block) == list(problem.calls)
    for at, block in enumerate(blocks):
        for later in blocks[at + 1 :]:
            assert all(one in before[call] for one, call in product(block, later))
        for size in range(
            1, len(block)
        ):  # no block falls into two more: the first of them would be closed under predecessors
            first = sorted(block, key=lambda call: (len(before[call]), call))[:size]
            rest = [call for call in block if call not in first]
            assert not all(one in before[call] for one, call in product(first, rest))


@each(range(40))
def test_branches_have_no_edge_between_them(seed: int) -> None:
    problem = random_problem(seed, most=14)
    home = {call: at for at, part in enumerate(branches(problem.before, problem.calls)) for call in part}
    assert sorted(home) == list(problem.calls)
    assert all(home[one] == home[call] for call in problem.calls for one in problem.before[call])


def test_calls_that_write_one_tensor_count_once() -> None:
    assert live_after(INCEPTION, range(8)) == [1, 2, 2, 2, 2, 1, 1, 0]


def cells(count: int) -> tuple[tuple[int, ...], ...]:
    """Each of four calls: two read the cell before and the one before that, their results are joined twice."""
    before: list[tuple[int, ...]] = [(), (0,)]
    for _ in range(count):
        last, first = len(before) - 1, len(before)
        older = max(last - 4, 0)
        before += [(last,), (older, last), (first, first + 1), (first, first + 2)]
    return tuple(before)


def test_cells_that_read_the_two_before_them_are_found() -> None:
    graph = cells(6)
    parts = narrow(graph, tuple(range(len(graph))))
    assert [call for part in parts for call in part] == list(range(len(graph)))
    assert parts[2:-1] == [(at, at + 1, at + 2, at + 3) for at in (2, 6, 10, 14)]


@each(range(40))
def test_parts_keep_the_order_and_none_is_empty(seed: int) -> None:
    problem = random_problem(seed, most=20, least=2)
    for parts in (narrow(problem.before, tuple(problem.calls)), [*halves(problem.before, tuple(problem.calls))]):
        assert all(parts)
        assert [call for part in parts for call in part] == list(problem.calls)
        assert all(one[-1] < after[0] for one, after in pairwise(parts))
