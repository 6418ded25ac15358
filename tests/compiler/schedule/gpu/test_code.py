"""Which code is cold, beside a cache that is played; and how far predictions are in doubt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.schedule.gpu.code import Code, cold_s
from compiler.schedule.gpu.launch_load import LaunchLoad, with_cold_code
from compiler.schedule.gpu.resident import Resident, ResidentCall

SIZES = {"a": 10, "b": 30, "c": 50, "d": 60}
KEPT = 100


def code(name: str) -> Code:
    return Code(name, SIZES[name], SIZES[name] * 1e-9, KEPT)


def played(names: Sequence[str]) -> list[float]:
    """A cache that drops what was used least lately, after it has seen everything once."""
    held: list[str] = []
    late: list[float] = []
    for name in (*names, *names):
        late.append(0.0 if name in held else code(name).seconds)
        held = [one for one in held if one != name] + [name]
        while sum(SIZES[one] for one in held) > KEPT:
            held.pop(0)
    return late[len(names) :]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12))
def test_code_is_cold_where_more_ran_since_than_is_kept(names: list[str]) -> None:
    assert cold_s([(code(name),) for name in names]) == pytest.approx(played(names))


def test_a_launch_of_several_kernels_fetches_what_is_cold_of_them() -> None:
    assert cold_s([(code("a"), code("c")), (code("d"),), (code("a"),)]) == pytest.approx([50e-9, 60e-9, 0.0])


def test_launches_and_resident_tasks_begin_later_for_cold_code() -> None:
    loads = [LaunchLoad(1e-6, 2e-6, 3e-6, 1, 1, code=(code(name),)) for name in "cd"]
    late = with_cold_code(loads)
    assert [load.start_s for load in late] == pytest.approx([2e-6 + 50e-9, 2e-6 + 60e-9])
    assert [(load.gap_s, load.work_s) for load in late] == [(1e-6, 3e-6)] * 2
    assert with_cold_code(loads[:1]) == loads[:1], "what runs alone is there from the run before"
    calls = tuple(ResidentCall(1, 1e-6, 0.0, (code(name),)) for name in "cd")
    warm = tuple(ResidentCall(1, 1e-6, 0.0) for _ in calls)
    cold, kept = (Resident(1, 1, each, 0.0, 0.0, 0.0).makespan(((), (0,))) for each in (calls, warm))
    assert cold - kept == pytest.approx(50e-9 + 60e-9)


def test_the_doubt_is_on_both_sides_of_the_prediction() -> None:
    loads = [LaunchLoad(1e-6, 2e-6, 3e-6, 1, 1, code=(code(name),)) for name in "cd"]
    low, said, high = (sum(one.seconds for one in with_cold_code(loads, doubt)) for doubt in (0, None, 1))
    assert low < said < high
