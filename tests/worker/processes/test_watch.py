from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from worker.limits import Limits
from worker.processes import usage
from worker.processes.usage import Usage
from worker.processes.watch import Watch

NEVER = float("inf")
MIB = 1 << 20
LIMITS = Limits(wall_s=1000.0, load_s=10.0, finish_s=20.0, memory_bytes=100 * MIB, disk_bytes=100 * MIB, processes=4)


class Clock:
    """Time that stands still until it is told."""

    now = 50.0


class Group:
    """A job that takes what it is told."""

    def __init__(self) -> None:
        self.taken = Usage()
        self.disk: int | None = 0

    def usage(self) -> Usage:
        return self.taken

    def disk_bytes(self) -> int | None:
        return self.disk


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("worker.processes.watch.time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.fixture
def oom_kills(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the kernel has counted; its last element holds."""
    counted = [7]
    monkeypatch.setattr(usage, "oom_kills", lambda: counted[-1])
    return counted


def watch(group: Group, clock: Clock, kind: Any = "compile") -> Watch:
    return Watch(group, LIMITS, kind, started=clock.now)


def test_a_machine_that_is_busy_with_others_does_not_shorten_the_time_of_loading(clock: Clock) -> None:
    group = Group()
    watched = watch(group, clock)
    watched.enter("load")
    clock.now += 40.0
    group.taken = Usage(cpu_s=9.0)
    assert watched.broken_limit(NEVER) is None
    group.taken = Usage(cpu_s=10.1)
    problem = watched.broken_limit(NEVER)
    assert problem is not None
    assert problem.details == {"limit_s": 10.0, "phase": "load"}


def test_loading_is_over_with_its_phase(clock: Clock) -> None:
    group = Group()
    watched = watch(group, clock)
    watched.enter("load")
    watched.enter("rewrite")
    clock.now += 900.0
    group.taken = Usage(cpu_s=900.0)
    assert watched.broken_limit(NEVER) is None


def test_only_a_compilation_loads(clock: Clock) -> None:
    group = Group()
    group.taken = Usage(cpu_s=900.0)
    assert watch(group, clock, "benchmark").broken_limit(NEVER) is None


@pytest.mark.parametrize(("asked", "loaded", "broken_after"), [(0.0, 30.0, 50.0), (30.0, 0.0, 50.0), (0.0, 0.0, 20.0)])
def test_the_time_to_finish_begins_when_it_is_asked_for_and_the_model_is_read(
    clock: Clock, asked: float, loaded: float, broken_after: float
) -> None:
    begun, watched = clock.now, watch(Group(), clock)
    watched.enter("load")
    clock.now = begun + loaded
    watched.enter("agree")
    clock.now = begun + broken_after - 0.1
    assert watched.broken_limit(begun + asked) is None
    clock.now = begun + broken_after + 0.1
    problem = watched.broken_limit(begun + asked)
    assert problem is not None
    assert problem.details == {"limit_s": 20.0, "phase": "agree"}


@pytest.mark.parametrize(
    ("taken", "disk", "code"),
    [
        (Usage(resident_bytes=101 * MIB), 0, "memory_limit"),
        (Usage(processes=5), 0, "process_limit"),
        (Usage(), 101 * MIB, "disk_limit"),
        (Usage(), None, "disk_limit"),
    ],
)
@pytest.mark.parametrize("phase", ["load", "agree"])
def test_what_a_job_takes_is_limited_in_every_phase(
    clock: Clock, taken: Usage, disk: int | None, code: str, phase: str
) -> None:
    group = Group()
    watched = watch(group, clock)
    watched.enter("load")
    watched.enter(phase)
    assert watched.broken_limit(NEVER) is None
    clock.now += 5.0
    group.taken, group.disk = taken, disk
    problem = watched.broken_limit(NEVER)
    assert problem is not None
    assert (problem.code, problem.details["phase"]) == (code, phase)


@pytest.mark.parametrize(
    ("resident", "ran_out", "code"),
    [
        (95 * MIB, False, "memory_limit"),
        (60 * MIB, False, "job_killed"),
        (60 * MIB, True, "memory_limit"),
        (2 * MIB, True, "job_killed"),
        (0, False, "job_killed"),
    ],
)
def test_a_kill_is_for_memory_only_where_the_job_held_much_of_it(
    clock: Clock, oom_kills: list[int], resident: int, ran_out: bool, code: str
) -> None:
    group = Group()
    watched = watch(group, clock)
    group.taken = Usage(resident_bytes=resident)
    assert watched.broken_limit(NEVER) is None
    group.taken = Usage()  # what it held is gone with it
    assert watched.broken_limit(NEVER) is None
    oom_kills.append(8 if ran_out else 7)
    problem = watched.killed()
    assert problem.code == code
    assert f"{resident // MIB} MiB" in problem.message
    assert problem.fault == "machine"


def test_the_clock_and_the_counter_are_read_where_nothing_replaces_them() -> None:
    reads: Callable[[], int] = usage.oom_kills
    assert Watch(Group(), LIMITS, "compile").broken_limit(NEVER) is None
    assert reads() >= 0
