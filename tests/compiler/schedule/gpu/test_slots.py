"""Launches on block slots: how long a graph takes, when each begins, and what bounds both."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.schedule.gpu.launch_load import LaunchLoad
from compiler.schedule.gpu.slots import (
    NEEDS,
    TIES,
    SlotRules,
    Slotted,
    depth,
    early_slots,
    makespan,
    simulated,
)
from compiler.schedule.gpu.streams import Before, reduced, streams
from tests.compiler.schedule.solvers.test_early_start import Graph, graphs, longest_chain

RULES = [SlotRules(need, tie) for need, tie in product(NEEDS, TIES)]
ALLOTTED = [rules for rules in RULES if rules.need != "nothing"]
"""Those by which calls wait for room."""
PARTS = (0.25, 0.5, 0.75, 1.0)
NEARLY = 1e-9


CROSS, FAN_IN = 0.75, 0.25


def work(
    seconds: float,
    share: float,
    gap: float = 0.0,
    start: float = 0.0,
    slots: float | None = None,
    waits: tuple[float, float] = (0.0, 0.0),
) -> LaunchLoad:
    """`waits` are what the first and each further launch of another stream cost."""
    return LaunchLoad(gap, start, seconds, share if slots is None else slots, share, *waits)


@st.composite
def loaded(draw: st.DrawFn, most: int = 10, modes: int = 1) -> tuple[Before, list[list[LaunchLoad]]]:
    """Predecessors and, for each call, its modes; eighths of a second, which are added up exactly."""
    graph: Graph = draw(graphs(most))
    gap, start = draw(st.sampled_from([0.0, 0.5])), draw(st.sampled_from([0.0, 0.25]))
    waits = draw(st.sampled_from([(0.0, 0.0), (CROSS, FAN_IN)]))
    options = []
    for seconds in graph[1]:
        every = []
        for _ in range(draw(st.integers(1, modes))):
            share = draw(st.sampled_from(PARTS))
            every.append(work(seconds * draw(st.sampled_from([1.0, 2.0])), share, gap, start, share / 2, waits))
        options.append(every)
    return graph[0], options


@given(loaded())
@settings(max_examples=300)
def test_a_graph_takes_its_longest_chain_at_least_and_at_most_all_the_work_of_the_device_longer(
    drawn: tuple[Before, list[list[LaunchLoad]]],
) -> None:
    """While the device is not full, a chain advances at full speed.

    It is full no longer than all work fills it (after Graham, 1966).
    """
    before, options = drawn
    loads = [every[0] for every in options]
    lengths = alone(loads, before)
    chain = longest_chain(before, lengths)
    filled = sum(load.work_s * load.share for load in loads)
    found = makespan(loads, before)
    assert max(chain, filled) <= found + NEARLY
    assert found <= chain + filled + NEARLY
    assert found <= sum(lengths) + NEARLY


def alone(loads: Sequence[LaunchLoad], before: Before) -> list[float]:
    """Seconds of each launch if it had the device for itself, from when it could begin.

    With what it costs to wait for other streams.
    """
    edges = reduced(before)
    stream_of = streams(edges)
    found = []
    for at, load in enumerate(loads):
        others = [one for one in edges[at] if stream_of[one] != stream_of[at]]
        found.append(load.seconds + (load.cross_s if others else 0.0) + load.fan_in_s * len(others[1:]))
    return found


def stepped(loads: Sequence[LaunchLoad], before: Before, steps: int) -> float:
    """The makespan by small steps of time.

    In each, launches at work get on by what the fullness at its beginning allows.
    """
    left = alone(loads, before)
    now, step = 0.0, 1.0 / steps
    while any(one > NEARLY for one in left):
        open_ = [
            at for at, one in enumerate(left) if one > NEARLY and all(left[earlier] <= NEARLY for earlier in before[at])
        ]
        at_work = {at for at in open_ if left[at] <= loads[at].work_s + NEARLY}
        slower = max(1.0, sum(loads[at].share for at in at_work))
        for at in open_:
            left[at] -= step / slower if at in at_work else step
        now += step
    return now


@given(loaded(most=5))
@settings(max_examples=60, deadline=None)
def test_a_graph_takes_what_small_steps_of_time_make_of_it(drawn: tuple[Before, list[list[LaunchLoad]]]) -> None:
    before, options = drawn
    loads = [every[0] for every in options]
    assert makespan(loads, before) == pytest.approx(stepped(loads, before, 64), abs=len(loads) / 8)


def test_launches_that_fill_half_the_device_do_not_slow_each_other_and_three_do() -> None:
    half = work(4.0, 0.5, gap=1.0)
    assert makespan([half] * 2, ((), ())) == 5.0
    assert makespan([half] * 3, ((), (), ())) == 7.0
    assert makespan([half] * 2, ((), (0,))) == 10.0


def test_a_short_launch_leaves_its_part_to_the_long_one() -> None:
    """Both fill the device: for 2 s each at half speed, then the long one alone."""
    spans = simulated([work(1.0, 1.0), work(4.0, 1.0)], ((), ()))
    assert [span.end for span in spans] == [2.0, 5.0]


def test_what_only_starts_takes_nothing_from_the_others() -> None:
    loads = [work(4.0, 1.0), work(2.0, 1.0, gap=1.0, start=3.0)]
    assert [span.end for span in simulated(loads, ((), ()))] == [4.0, 6.0]
    assert [span.ready for span in simulated(loads, ((), (0,)))] == [0.0, 4.0]


def test_a_launch_that_waits_for_other_streams_begins_later() -> None:
    """A fork into three and their join.

    Two of the three wait for the first's stream, and the last for two streams beside its own.
    """
    waits = (CROSS, FAN_IN)
    first, branch, last = (work(seconds, 0.25, waits=waits) for seconds in (1.0, 2.0, 1.0))
    fork = [first, branch, branch, branch, last]
    assert makespan(fork, ((), (0,), (0,), (0,), (1, 2, 3))) == 1 + CROSS + 2 + CROSS + FAN_IN + 1
    assert makespan(fork[:4], ((), (0,), (1,), (2,))) == 7.0
    assert makespan([first, branch, last], ((), (0,), (0, 1))) == 4.0  # which edge 0, 1 implies


def test_a_launch_without_work_ends_when_it_has_started() -> None:
    assert makespan([work(0.0, 1.0, gap=1.0, start=0.5), work(0.0, 1.0, gap=1.0)], ((), (0,))) == 2.5
    assert makespan([], ()) == 0.0


def test_the_depth_is_the_longest_chain_of_launches() -> None:
    assert depth(((), (0,), (), (2,), (3,), (1, 4))) == 4
    assert depth(()) == 0


def need(options: Sequence[Sequence[LaunchLoad]], one: Slotted, rules: SlotRules) -> float:
    load = options[one.call][one.option]
    return {"slots": load.slots, "share": load.share, "nothing": 0.0}[rules.need]


@given(loaded(modes=3), st.sampled_from(RULES))
@settings(max_examples=300)
def test_each_call_runs_once_after_what_it_reads_and_there_is_room_for_it(
    drawn: tuple[Before, list[list[LaunchLoad]]], rules: SlotRules
) -> None:
    before, options = drawn
    placed = early_slots(options, before, rules)
    ends = {one.call: one.end for one in placed}
    assert sorted(ends) == list(range(len(before)))
    runs = []
    for at, one in enumerate(placed):
        load = options[one.call][one.option]
        fewest, most = max(len(reduced(before)[one.call]) - 1, 0), len(reduced(before)[one.call])
        assert load.gap_after(fewest) - NEARLY <= one.runs - one.begin <= load.gap_after(most) + NEARLY
        assert one.end == pytest.approx(one.runs + load.run_s)
        assert all(ends[earlier] <= one.begin + NEARLY for earlier in before[one.call])
        assert {*before[one.call], *one.held} <= {other.call for other in placed[:at]}
        assert all(abs(ends[other] - one.runs) < NEARLY for other in one.held)
        runs.append((one.runs, one.end, need(options, one, rules)))
    for begin, _, _ in runs:
        assert sum(part for first, last, part in runs if first <= begin + NEARLY < last) <= 1.0 + NEARLY


@given(loaded(modes=2), st.sampled_from(RULES))
@settings(max_examples=200)
def test_a_call_that_waits_for_nobodys_room_begins_when_what_it_reads_is_there(
    drawn: tuple[Before, list[list[LaunchLoad]]], rules: SlotRules
) -> None:
    before, options = drawn
    placed = early_slots(options, before, rules)
    ends = {one.call: one.end for one in placed}
    for one in placed:
        ready = max((ends[earlier] for earlier in before[one.call]), default=0.0)
        assert bool(one.held) == (one.begin > ready + NEARLY)


def best_of_orders(needs: Sequence[float], seconds: Sequence[float]) -> float:
    """Of independent calls, each as early as there is room in some order.

    One of the orders is that of a shortest schedule.
    """
    best = float("inf")
    for order in permutations(range(len(needs))):
        runs: list[tuple[float, float, float]] = []
        for call in order:
            for begin in sorted({0.0, *(end for _, end, _ in runs)}):
                end = begin + seconds[call]
                times = [begin, *(first for first, _, _ in runs if begin < first < end)]
                if all(
                    needs[call] + sum(part for first, last, part in runs if first <= time < last) <= 1 for time in times
                ):
                    runs.append((begin, end, needs[call]))
                    break
        best = min(best, max(end for _, end, _ in runs))
    return best


@given(
    st.lists(st.tuples(st.sampled_from(PARTS), st.integers(1, 6)), min_size=1, max_size=5), st.sampled_from(ALLOTTED)
)
@settings(max_examples=100, deadline=None)
def test_independent_calls_take_at_most_twice_as_long_as_they_must(
    calls: list[tuple[float, int]], rules: SlotRules
) -> None:
    """The bound of Garey and Graham for one resource.

    "Bounds for multiprocessor scheduling with resource constraints", SIAM J. Comput. 4, 1975.
    """
    needs, seconds = [part for part, _ in calls], [float(length) for _, length in calls]
    options = [[work(length, part)] for length, part in zip(seconds, needs, strict=True)]
    placed = early_slots(options, [()] * len(calls), rules)
    best = best_of_orders(needs, seconds)
    assert best - NEARLY <= max(one.end for one in placed) <= 2 * best + NEARLY


def test_a_call_that_fills_the_device_runs_alone() -> None:
    options = [[work(2.0, 0.5)], [work(1.0, 1.0)], [work(2.0, 0.5)]]
    placed = early_slots(options, [()] * 3, SlotRules("slots", "order"))
    assert [(one.call, one.begin, one.held) for one in placed] == [(0, 0.0, ()), (2, 0.0, ()), (1, 2.0, (0, 2))]

    beside = early_slots(options, [()] * 3, SlotRules("nothing", "order"))
    assert [(one.call, one.begin, one.held) for one in beside] == [(0, 0.0, ()), (1, 0.0, ()), (2, 0.0, ())]


@pytest.mark.parametrize(("tie", "first"), [("critical", 2), ("smallest", 1), ("order", 0)])
def test_of_calls_that_can_begin_at_once_the_rule_says_which_goes_first(tie: str, first: int) -> None:
    """The third is followed by another."""
    options = [[work(1.0, 1.0)], [work(1.0, 0.75)], [work(1.0, 1.0)], [work(1.0, 1.0)]]
    (rules,) = (one for one in RULES if one == SlotRules("slots", tie))  # type: ignore[arg-type]
    assert early_slots(options, ((), (), (), (2,)), rules)[0].call == first


def test_a_call_takes_the_frugal_variant_where_there_is_no_room_for_the_fast_one() -> None:
    """Alone the fast one ends first; beside another call the frugal one does."""
    modes = [work(2.0, 1.0), work(3.0, 0.25)]
    assert early_slots([modes], ((),), SlotRules())[0].option == 0
    beside = early_slots([[work(4.0, 0.75)], modes], ((), ()), SlotRules(tie="order"))
    assert [(one.call, one.option, one.begin) for one in beside] == [(0, 0, 0.0), (1, 1, 0.0)]
