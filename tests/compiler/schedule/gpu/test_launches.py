"""Calls that share launches: when each runs, and how many launches there are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.schedule.gpu.launches import GROWTHS, Seconds, shared_launches
from tests.compiler.schedule.solvers.test_early_start import Graph, graphs, longest_chain


def longest(lengths: Sequence[float], most: int) -> Seconds:
    """At most so many calls share a launch, which takes as long as the longest of them."""
    return lambda calls: max(lengths[call] for call in calls) if len(calls) <= most else None


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
