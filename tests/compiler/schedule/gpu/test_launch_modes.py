"""Variants of calls that share a launch, beside every other choice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.tile import Cost, Tile, Variant
from compiler.schedule.gpu.launch_load import LaunchLoad
from compiler.schedule.gpu.launch_modes import JointLaunch, launch_mode

SHARES = {"fast": 1.0, "half": 0.5, "frugal": 0.25}


def variant(name: str, seconds: float) -> Variant:
    return Variant(Tile(name), 1, 1, Cost(seconds, "model"))


def device(full: float = float("inf")) -> JointLaunch:
    """As long as the longest, or as all work.

    Calls that keep more than `full` devices at work cannot share a launch.
    """

    def load(calls: Sequence[tuple[int, Variant]]) -> LaunchLoad | None:
        works = [(one.cost.seconds, SHARES[one.tile.algorithm]) for _, one in calls]
        if len(calls) > 1 and sum(share for _, share in works) > full:
            return None
        work = max(*(seconds for seconds, _ in works), sum(seconds * share for seconds, share in works))
        return LaunchLoad(0.0, 0.0, work, 1.0, 1.0)

    return load


def test_a_call_alone_is_at_its_fastest() -> None:
    found = launch_mode([3], [[variant("fast", 1.0), variant("frugal", 1.5)]], device())
    assert found
    assert [one.tile.algorithm for one in found.variants] == ["fast"]


def test_calls_that_fill_the_device_together_leave_each_other_room() -> None:
    options = [[variant("fast", 2.0), variant("frugal", 2.5)], [variant("fast", 3.0), variant("frugal", 4.0)]]
    found = launch_mode([0, 1], options, device())
    assert found
    assert ([one.tile.algorithm for one in found.variants], found.load.seconds) == (["frugal", "fast"], 3.625)


def test_calls_that_can_share_a_launch_only_where_they_are_frugal_do() -> None:
    options = [[variant("fast", 2.0), variant("frugal", 2.5)]] * 3
    found = launch_mode([0, 1, 2], options, device(1.0))
    assert found
    assert [one.tile.algorithm for one in found.variants] == ["frugal"] * 3
    assert launch_mode([0, 1, 2], [every[:1] for every in options], device(1.0)) is None


def test_many_calls_are_looked_at_a_few_times_each() -> None:
    """Half of them are shorter under their frugal variants; each is found in one pass over all."""
    asked: list[int] = []
    joint_launch = device()

    def counted(calls: Sequence[tuple[int, Variant]]) -> LaunchLoad | None:
        asked.append(len(calls))
        return joint_launch(calls)

    options = [[variant("fast", 1.0), variant("frugal", 1.5 if at % 2 else 6.0)] for at in range(100)]
    found = launch_mode(range(100), options, counted)
    assert found
    assert [one.tile.algorithm for one in found.variants] == ["fast", "frugal"] * 50
    assert len(asked) <= 5 * len(options)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from([1.0, 1.25, 1.5]), st.booleans()), min_size=1, max_size=4),
    st.sampled_from([1.0, 2.0, float("inf")]),
)
@settings(max_examples=200)
def test_no_change_of_one_call_makes_the_launch_shorter(drawn: list[tuple[int, float, bool]], full: float) -> None:
    options = [
        [
            variant("fast", float(seconds)),
            *([variant("half", (1 + slower) / 2 * seconds)] if between else []),
            variant("frugal", slower * seconds),
        ]
        for seconds, slower, between in drawn
    ]
    calls, joint_launch = range(len(options)), device(full)
    found = launch_mode(calls, options, joint_launch)
    ways = {way: joint_launch([*zip(calls, way, strict=True)]) for way in product(*options)}
    ends = [load for way in (0, -1) if (load := ways[tuple(every[way] for every in options)]) is not None]
    assert (found is None) == (not ends)
    if found is not None:
        assert found.load == ways[found.variants]
        assert all(found.load.seconds <= load.seconds for load in ends)
        for way, load in ways.items():
            differ = sum(one != other for one, other in zip(way, found.variants, strict=True))
            if load is not None and differ == 1:
                assert found.load.seconds <= load.seconds * (1 + 1e-6)
