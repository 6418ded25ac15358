"""Calls that share launches: when each runs, how many launches there are, and that memory lets them run at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.lanes import LaneCosts
from compiler.ir.plan import Plan
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Menu, Variant
from compiler.schedule import Together, schedule
from compiler.schedule.dependencies import predecessors
from compiler.schedule.launches import GROWTHS, Seconds, ended_before_launches, shared_launches
from tests.compiler.schedule.test_early_start import Graph, graphs, longest_chain
from tests.compiler.schedule.test_schedule import adder, chain, kernel_graphs, plan_of, variant


def longest(lengths: Sequence[float], most: int) -> Seconds:
    """At most so many calls share a launch, which takes as long as the longest of them."""
    return lambda calls: max(lengths[call] for call in calls) if len(calls) <= most else None


def variants_together(most: int) -> Together:
    return lambda calls: max(variant.cost.seconds for _, variant in calls) if len(calls) <= most else None


@given(graphs(), st.integers(1, 4), st.sampled_from((0.0, *GROWTHS, 1.0)))
@settings(max_examples=300)
def test_calls_run_once_after_their_predecessors_in_launches_that_may_be(
    graph: Graph, most: int, growth: float
) -> None:
    before, lengths = graph
    groups = shared_launches(before, range(len(before)), longest(lengths, most), growth)
    place = {call: at for at, group in enumerate(groups) for call in group}
    assert sorted(call for group in groups for call in group) == list(range(len(before)))
    assert all(place[one] < place[call] for call, earlier in enumerate(before) for one in earlier)
    assert max(map(len, groups)) <= most


@given(graphs(), st.sampled_from((0.0, *GROWTHS, 1.0)))
@settings(max_examples=200)
def test_where_all_can_share_there_are_as_many_launches_as_the_longest_chain_has_calls(
    graph: Graph, growth: float
) -> None:
    before, lengths = graph
    groups = shared_launches(before, range(len(before)), longest(lengths, len(before)), growth)
    assert len(groups) == longest_chain(before, [1.0] * len(before))
    assert sum(max(lengths[call] for call in group) for group in groups) <= sum(lengths)


def test_where_none_can_share_each_has_a_launch() -> None:
    before: tuple[tuple[int, ...], ...] = ((), (0,), (0,), (1, 2))
    groups = shared_launches(before, range(4), longest([1.0, 2.0, 3.0, 1.0], 1), 1.0)
    assert groups == [(0,), (2,), (1,), (3,)]


CHAIN_AND_ONE = ((), (0,), (1,), (), (2, 3))
"""Three calls one after another, a fourth that is free until their end, and one that reads both."""


@pytest.mark.parametrize(
    ("lengths", "growth", "groups"),
    [
        ([5, 1, 1, 5, 1], 0.1, [(0, 3), (1,), (2,), (4,)]),  # it lengthens nothing, so it goes at once
        (
            [1, 1, 4, 5, 1],
            0.3,
            [(0,), (1,), (3, 2), (4,)],
        ),  # it waits for the launch that it lengthens by a fifth of itself
        ([1, 5, 1, 5, 1], 0.1, [(0,), (1, 3), (2,), (4,)]),
        ([1, 1, 1, 5, 1], 0.1, [(0,), (1,), (3, 2), (4,)]),  # nowhere: it goes when it must
        ([1, 1, 1, 5, 1], 1.0, [(0, 3), (1,), (2,), (4,)]),
    ],
)
def test_a_call_that_can_wait_goes_with_a_launch_that_it_hardly_lengthens(
    lengths: Sequence[int], growth: float, groups: list[tuple[int, ...]]
) -> None:
    assert shared_launches(CHAIN_AND_ONE, range(5), longest([float(one) for one in lengths], 5), growth) == groups


def test_of_two_launches_at_a_level_a_call_takes_the_one_that_it_lengthens_less() -> None:
    """Calls 0 and 1 cannot share one; 2 is nearly as long as 1."""
    lengths = [1.0, 4.0, 3.5, 1.0]

    def seconds(calls: Sequence[int]) -> float | None:
        return None if {0, 1} <= {*calls} else max(lengths[call] for call in calls)

    assert shared_launches(((), (), (), (0, 1)), range(4), seconds, 0.1) == [(1, 2), (0,), (3,)]


def test_a_call_that_is_not_launched_keeps_nobody_waiting() -> None:
    groups = shared_launches(((), (0,), (1,)), [0, 2], longest([1.0] * 3, 3), 0.1)
    assert groups == [(0, 2)]
    assert ended_before_launches(groups, 3) == [0b010, 0b001, 0b010]


def test_calls_of_one_launch_have_not_ended_when_another_of_it_begins() -> None:
    assert ended_before_launches([(1, 0), (3,), (2,)], 4) == [0, 0, 0b1011, 0b0011]


@given(kernel_graphs(), st.integers(1, 6), st.data())
@settings(max_examples=200)
def test_calls_that_share_a_launch_share_no_memory_that_one_of_them_writes(
    kernels: KernelGraph, most: int, data: st.DataObject
) -> None:
    menus = [Menu("", (draw_variant(data),)) for _ in kernels.calls]
    plan = schedule(kernels, menus, 1, LaneCosts(), "auto", variants_together(most))[0].plan
    plan.verify(kernels)
    assert plan.lanes == 1
    launched = [call for call, menu in enumerate(menus) if menu.best.tiles]
    assert sorted(task.call for task in plan.tasks) == launched
    seconds = longest([menu.best.cost.seconds for menu in menus], most)
    tried = [shared_launches(predecessors(kernels), launched, seconds, growth) for growth in GROWTHS]
    groups = min(tried, key=lambda groups: sum(seconds(group) or 0.0 for group in groups))
    assert [task.call for task in plan.tasks] == [call for group in groups for call in group]
    for group in groups:
        for one, other in combinations(group, 2):
            assert apart(kernels, plan, one, other)
            assert apart(kernels, plan, other, one)


def draw_variant(data: st.DataObject) -> Variant:
    return variant(
        tiles=data.draw(st.sampled_from([0, 1, 4, 4])), seconds=data.draw(st.sampled_from([1e-6, 3e-6, 4e-6]))
    )


def apart(kernels: KernelGraph, plan: Plan, writer: int, other: int) -> bool:
    """Whether what one call writes lies apart from all that another touches."""
    written = {kernels.buffers[id].storage for id in kernels.calls[writer].outputs}
    touched = {kernels.buffers[id].storage for id in (*kernels.calls[other].inputs, *kernels.calls[other].outputs)}
    spans = [(plan.places[one], plan.places[two]) for one in written for two in touched]
    return not any(a.space == b.space == "arena" and a.at < b.at + b.bytes and b.at < a.at + a.bytes for a, b in spans)


def test_two_branches_share_launches_and_their_values_share_no_memory() -> None:
    """Calls 0 to 2 are one branch and 3, 4 the other, listed one after the other."""
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (40,))) for id in range(8)}
    reads = {2: (0,), 3: (2,), 4: (3,), 5: (1,), 6: (5,), 7: (4, 6)}
    calls = tuple(Call(adder(40, len(read)), read, (id,)) for id, read in reads.items())
    kernels = KernelGraph(buffers, calls, (0, 1), (7,))
    menus, alone = [Menu("", (variant(),))] * 6, plan_of(kernels, 1)
    plan = schedule(kernels, menus, 1, LaneCosts(), "auto", variants_together(4))[0].plan
    assert [task.call for task in plan.tasks] == [0, 3, 1, 4, 2, 5]
    assert plan.predicted_s == pytest.approx(4 / 6 * alone.predicted_s)
    assert plan.arena_bytes > alone.arena_bytes
    assert (
        schedule(kernels, menus, 1, LaneCosts(), "auto", variants_together(1))[0].plan.predicted_s == alone.predicted_s
    )


def test_a_chain_is_planned_as_if_nothing_could_share_a_launch() -> None:
    menus = [Menu("", (variant(),))] * 4
    assert schedule(chain(), menus, 1, LaneCosts(), "auto", variants_together(4))[0].plan == plan_of(chain(), 1)
