from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.plans.plan import ended_before
from compiler.schedule.plans.tasks import tasks_of
from compiler.schedule.problem import Move, Placed, Problem, verify_schedule
from compiler.schedule.solvers.early_start import Rules, early_start

RULES = [Rules(*switches) for switches in product((True, False), repeat=2)]
Graph = tuple[tuple[tuple[int, ...], ...], tuple[float, ...]]


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> Graph:
    """Predecessors of each call, and its seconds on one lane."""
    count = draw(st.integers(1, most))
    before = tuple(
        tuple(sorted(draw(st.sets(st.integers(0, call - 1), max_size=3)))) if call else () for call in range(count)
    )
    return before, tuple(float(draw(st.integers(1, 9))) for _ in range(count))


def problem_of(graph: Graph, lanes: int, splits: bool = False, handover: float = 0.0) -> Problem:
    """Calls that cannot be split, or evenly."""
    before, lengths = graph
    most = lanes if splits else 1
    return Problem(before, tuple(tuple(one / n for n in range(1, most + 1)) for one in lengths), lanes, handover)


def end(placed: Sequence[Placed]) -> float:
    return max(one.end for one in placed)


def longest_chain(before: Sequence[Sequence[int]], lengths: Sequence[float]) -> float:
    ends: list[float] = []
    for call, length in enumerate(lengths):
        ends.append(length + max((ends[one] for one in before[call]), default=0.0))
    return max(ends)


def optimum(before: Sequence[Sequence[int]], lengths: Sequence[float], lanes: int) -> float:
    """Of all orders in which calls can be placed, each on the lane that is free first: one of them is optimal."""
    best = float("inf")
    for order in permutations(range(len(lengths))):
        at = {call: place for place, call in enumerate(order)}
        if any(at[one] > at[call] for call in order for one in before[call]):
            continue
        free = [0.0] * lanes
        ends: dict[int, float] = {}
        for call in order:
            lane = free.index(min(free))
            begin = max([free[lane], *(ends[one] for one in before[call])])
            free[lane] = ends[call] = begin + lengths[call]
        best = min(best, max(ends.values()))
    return best


@given(graphs(), st.integers(1, 4), st.sampled_from(RULES), st.booleans())
@settings(max_examples=300)
def test_calls_begin_after_their_predecessors_and_lanes_are_never_shared(
    graph: Graph, lanes: int, rules: Rules, splits: bool
) -> None:
    before, _ = graph
    placed = early_start(problem_of(graph, lanes, splits, 0.5), rules)
    assert sorted(one.call for one in placed) == list(range(len(before)))
    by_call = {one.call: one for one in placed}
    for one in placed:
        for earlier in (by_call[other] for other in before[one.call]):
            assert one.begin >= earlier.end + (0.5 if earlier.lanes != one.lanes else 0.0)
    for lane in range(lanes):
        stream = [one for one in placed if lane in one.lanes]
        assert all(one.end <= after.begin for one, after in pairwise(stream))


@given(graphs(most=7), st.integers(2, 3), st.sampled_from(RULES))
@settings(max_examples=60, deadline=None)
def test_it_stays_within_grahams_bound_of_the_optimum(graph: Graph, lanes: int, rules: Rules) -> None:
    """No lane is idle while a call could begin, so the makespan is below (2 - 1/m) times the least (Graham, 1969)."""
    before, lengths = graph
    reached = end(early_start(problem_of(graph, lanes), rules))
    least = optimum(before, lengths, lanes)
    assert least - 1e-9 <= reached <= (2 - 1 / lanes) * least + 1e-9


@given(graphs(), st.integers(1, 4))
def test_no_schedule_beats_the_longest_chain_or_the_work_of_all_lanes(graph: Graph, lanes: int) -> None:
    before, lengths = graph
    reached = end(early_start(problem_of(graph, lanes), Rules()))
    assert reached >= max(longest_chain(before, lengths), sum(lengths) / lanes) - 1e-9


def test_two_chains_run_side_by_side() -> None:
    before = ((), (), (0,), (1,), (2, 3))
    placed = early_start(problem_of((before, (1.0,) * 5), 2), Rules())
    assert end(placed) == 3.0
    assert {one.lanes for one in placed[:4]} == {(0,), (1,)}


def test_with_the_longest_way_first_a_chain_is_not_kept_waiting() -> None:
    """Call 3 begins a chain of three; the others are short and free."""
    before: tuple[tuple[int, ...], ...] = ((), (), (), (), (3,), (4,))
    problem = problem_of((before, (1.0, 1.0, 1.0, 2.0, 2.0, 2.0)), 2)
    assert end(early_start(problem, Rules(critical_first=True))) == 6.0
    assert end(early_start(problem, Rules(critical_first=False))) > 6.0


def test_a_lone_call_takes_all_lanes_and_two_share_them() -> None:
    before = ((), (0,), (0,), (1, 2))
    placed = early_start(problem_of((before, (4.0,) * 4), 4, splits=True), Rules(fill=True))
    assert [len(one.lanes) for one in placed] == [4, 2, 2, 4]


@given(graphs(), st.integers(1, 4), st.sampled_from(RULES), st.booleans())
@settings(max_examples=200)
def test_tasks_wait_for_every_predecessor(graph: Graph, lanes: int, rules: Rules, splits: bool) -> None:
    before, _ = graph
    placed = early_start(problem_of(graph, lanes, splits, 0.1), rules)
    tasks = tasks_of(placed, before, [5] * len(before), lanes)
    ended = ended_before(tasks, lanes, len(before))
    for call, earlier in enumerate(before):
        assert all(ended[call] >> one & 1 for one in earlier)
        covered = sorted((task.first, task.last) for task in tasks if task.call == call)
        assert covered[0][0] == 0
        assert covered[-1][1] == 5
        assert all(one[1] == after[0] for one, after in pairwise(covered))


def test_a_call_goes_where_it_ends_first_with_what_it_has_to_read() -> None:
    """Lane 1 is free sooner, but what call 2 reads lies with lane 0."""
    before: tuple[tuple[int, ...], ...] = ((), (), (0,))
    problem = Problem(before, ((3.0,), (2.0,), (1.0,)), 2, moves=((), (), (Move(5.0),)))
    assert [one.lanes for one in early_start(problem, Rules())] == [(0,), (1,), (0,)]
    waits = Problem(((), (), (0,), ()), ((2.0,), (2.0,), (1.0,), (9.0,)), 2, moves=((), (), (Move(5.0),), ()))
    assert {one.call: one.lanes for one in early_start(waits, Rules(critical_first=False))}[2] == (0,)


@given(graphs(), st.integers(1, 4), st.integers(1, 4))
def test_no_call_gets_more_lanes_than_it_may_have(graph: Graph, lanes: int, most: int) -> None:
    problem = problem_of(graph, lanes, splits=True)
    placed = early_start(problem, Rules(fill=False), [most] * len(problem.before))
    verify_schedule(problem, placed)
    assert max(len(one.lanes) for one in placed) <= most
