"""Stages of launches: groups beside each other, or merged into shared launches where these may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.schedule.gpu.launch_load import LaunchLoad
from compiler.schedule.gpu.stages import Launch, stage_launches
from tests.compiler.schedule.solvers.test_early_start import Graph, graphs

GAP = 2.0


def loads(
    lengths: Sequence[float], share: float, most: int, cross: float = 0.0
) -> Callable[[Launch], LaunchLoad | None]:
    """At most `most` calls share a launch.

    It takes as long as the longest of them, or as all their work spread over the device.
    """

    def load(calls: Launch) -> LaunchLoad | None:
        works = [lengths[call] for call in calls]
        work = max([*works, share * sum(works)])
        return (
            LaunchLoad(GAP, 0.0, work, share, share * sum(works) / work, cross, cross) if len(calls) <= most else None
        )

    return load


@given(graphs(), st.sampled_from([0.25, 0.5, 1.0]), st.integers(1, 4), st.data())
@settings(max_examples=150, deadline=None)
def test_launched_calls_run_once_in_launches_that_may_be_after_what_they_read(
    graph: Graph, share: float, most: int, data: st.DataObject
) -> None:
    before, lengths = graph
    launched = sorted(data.draw(st.sets(st.sampled_from(range(len(before))), min_size=1)))
    found = stage_launches(before, launched, loads(lengths, share, most))
    place = {call: at for at, launch in enumerate(found) for call in launch}
    assert sorted(call for launch in found for call in launch) == launched
    assert all(place[one] < place[call] for call in launched for one in before[call] if one in place)
    assert max(map(len, found)) <= most


BRANCHES = ((), (0,), (1,), (0,), (3,), (2, 4))
"""Two branches of two calls between a first and a last."""


def test_branches_are_merged_step_by_step_where_they_slow_each_other_less_than_launches_cost() -> None:
    found = stage_launches(BRANCHES, range(6), loads([1.0] * 6, 0.75, 2))
    assert [*map(frozenset, found)] == [frozenset(one) for one in ((0,), (1, 3), (2, 4), (5,))]


def test_branches_are_merged_where_forking_and_joining_costs_more_than_waiting_for_the_longer_call() -> None:
    """Side by side each branch takes 4 s and two gaps; step by step 3 s twice, as a short call waits for a long one."""
    lengths = [1.0, 1.0, 3.0, 3.0, 1.0, 1.0]
    assert {*stage_launches(BRANCHES, range(6), loads(lengths, 0.25, 2))} == {(call,) for call in range(6)}
    assert {*stage_launches(BRANCHES, range(6), loads(lengths, 0.25, 2, cross=0.9))} == {(call,) for call in range(6)}
    merged = stage_launches(BRANCHES, range(6), loads(lengths, 0.25, 2, cross=1.1))
    assert [*map(frozenset, merged)] == [frozenset(one) for one in ((0,), (1, 3), (2, 4), (5,))]


def test_branches_that_cannot_share_launches_stay_apart() -> None:
    assert {*stage_launches(BRANCHES, range(6), loads([1.0] * 6, 0.25, 1))} == {(call,) for call in range(6)}


def test_of_blocks_that_look_alike_the_one_that_cannot_share_launches_is_taken_apart() -> None:
    """Two times two calls side by side, which a call joins; those of the second block cannot share a launch."""
    before = ((), (), (0, 1), (2,), (2,), (3, 4))
    usual = loads([1.0] * 6, 0.75, 2)
    found = stage_launches(before, range(6), lambda calls: None if {*calls} == {3, 4} else usual(calls))
    assert [tuple(sorted(launch)) for launch in found] == [(0, 1), (2,), (3,), (4,), (5,)]
