from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from compiler.devices.cpu.measure import handover
from compiler.devices.cpu.measure.handover import cores, measure_handover, measure_pair, state_of_pair
from compiler.devices.cpu.measure.timer import TIMER_SOURCE, Timer
from compiler.errors import InternalError, ResourceExhausted
from compiler.ir.plans.lanes import Handover
from compiler.measure.memory import GARBAGE, allocate
from tests.compiler.devices.cpu.measure.libraries import built


@pytest.fixture(scope="module")
def timer_library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return built(tmp_path_factory.mktemp("timer"), TIMER_SOURCE)


TOUCHES = """
TW_EXPORT char touches[256];
static _Atomic int touched;
static _Thread_local int is_other;

/* Hidden, as a C library may have such hooks of its own. */
#define HOOK __attribute__((no_instrument_function, visibility("hidden")))

/* Called wherever one of these functions begins. */
HOOK void __cyg_profile_func_enter(void *function, void *site) {
    (void)site;
    if (function == (void *)member_main) is_other = 1;
    char what = function == (void *)write_all ? 'W' : function == (void *)read_all ? 'R'
        : function == (void *)now ? 'T' : 0;
    if (what) touches[atomic_fetch_add(&touched, 1)] = (char)(is_other ? what | 32 : what);
}
HOOK void __cyg_profile_func_exit(void *function, void *site) {
    (void)function;
    (void)site;
}
"""
"""The order in which all is written (W), read (R), or the clock is looked at (T): in small letters what the other lane
does.
"""


def test_near_and_far_are_told_apart() -> None:
    assert Handover.of(60.0) == Handover(60.0, "near")
    assert Handover.of(185.0) == Handover(185.0, "far")
    assert Handover.of(185.0, 2e-11, 1e-10) == Handover(185.0, "far", 2e-11, 1e-10)


@pytest.mark.skipif(cores() < 2, reason="this process has one core: nothing to hand over to")
def test_the_cost_between_two_cores_is_measured_and_affinity_is_given_back(timer_library: bytes) -> None:
    before = os.sched_getaffinity(0)
    found = measure_handover(timer_library)
    assert found is not None
    assert found.ns > 0
    assert found.state in ("near", "far")
    assert 0 <= found.byte_s < 1e-6
    assert 0 <= found.upgrade_s < 1e-6
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(cores() < 2, reason="this process has one core: nothing to hand over to")
def test_a_pair_of_cores_is_measured_on_these_two_and_affinity_is_given_back(
    timer_library: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.sched_getaffinity(0)
    found = measure_pair(timer_library, (0, 1))
    assert found is not None
    assert found.ns > 0
    assert 0 <= found.byte_s < 1e-6
    assert os.sched_getaffinity(0) == before
    assert state_of_pair(timer_library, (0, 1)) in ("near", "far")
    assert measure_pair(timer_library, (0, len(before))) is None
    assert state_of_pair(timer_library, (0, len(before))) == ""
    bound: list[set[int]] = []

    def fails(library: bytes) -> Handover:
        bound.append(os.sched_getaffinity(0))
        raise ResourceExhausted("no threads")

    monkeypatch.setattr(handover, "measure_handover", fails)
    first, *_, last = sorted(before)
    with pytest.raises(ResourceExhausted):
        measure_pair(timer_library, (0, len(before) - 1))
    assert bound == [{first, last}]
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be taken away on this system")
def test_one_core_has_nobody_to_hand_over_to(timer_library: bytes) -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert measure_handover(timer_library) is None
    finally:
        os.sched_setaffinity(0, before)


def test_the_probe_runs_on_one_and_on_several_lanes(timer_library: bytes) -> None:
    with Timer(timer_library) as timer:
        assert timer.probe(1) > 0
        assert timer.probe(3) > 0
        with pytest.raises(ResourceExhausted, match="cannot start the threads"):
            timer.probe(100_000)


@pytest.mark.skipif(cores() < 2, reason="this process has one core: nothing to hand over to")
def test_bytes_are_written_by_one_core_or_the_other_and_read_by_the_first(timer_library: bytes) -> None:
    memory = allocate(8192)
    with Timer(timer_library) as timer:
        for rounds, apart in ((3, True), (6, False)):
            assert timer.pass_on(memory.ctypes.data, 4096, rounds, apart=apart) > 0
            # Each round writes its number into all of it, and nothing beyond.
            assert (memory[:4096].view("i8") == rounds - 1).all()
            assert (memory[4096:] == GARBAGE).all()


@pytest.mark.skipif(cores() < 2, reason="this process has one core: nothing to hand over to")
def test_bytes_are_written_again_after_one_core_or_the_other_read_them(timer_library: bytes) -> None:
    memory = allocate(8192)
    with Timer(timer_library) as timer:
        for rounds, apart in ((3, True), (6, False)):
            assert timer.upgrade(memory.ctypes.data, 4096, rounds, apart=apart) > 0
            # First zeros, then in each round its number, counted from 1; nothing beyond.
            assert (memory[:4096].view("i8") == rounds).all()
            assert (memory[4096:] == GARBAGE).all()


@pytest.mark.parametrize(
    ("probe", "apart", "touches"),
    [
        ("pass_on", True, "wTRTwTRTwTRT"),
        ("pass_on", False, "WTRTWTRTWTRT"),
        ("upgrade", True, "WrTWTrTWTrTWT"),
        ("upgrade", False, "WRTWTRTWTRTWT"),
    ],
)
def test_what_is_timed_is_the_first_core_after_the_other_had_the_bytes_or_nobody_had(
    probe: str, apart: bool, touches: str, tmp_path: Path
) -> None:
    memory = allocate(4096)
    with Timer(built(tmp_path, TIMER_SOURCE + TOUCHES, flags=("-finstrument-functions",))) as timer:
        getattr(timer, probe)(memory.ctypes.data, 4096, 3, apart=apart)
        assert ctypes.string_at(timer.address("touches")).decode() == touches


def test_what_a_byte_costs_is_a_median_of_differences_and_never_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes wrong in some rallies: apart a byte costs 3 ns more to read, and less to write."""
    wrong = iter(range(10**6))

    class Clock:
        def __init__(self, library: bytes) -> None: ...
        def __enter__(self) -> Clock:
            return self

        def __exit__(self, *_: object) -> None: ...
        def handover(self, rounds: int) -> float:
            return 150.0

        def pass_on(self, address: int, bytes: int, rounds: int, *, apart: bool) -> float:
            return 1e-9 * bytes * (4 if apart else 1) + (1.0 if next(wrong) % 5 == 0 else 0.0)

        def upgrade(self, address: int, bytes: int, rounds: int, *, apart: bool) -> float:
            return 1e-9 * bytes * (1 if apart else 2)

    monkeypatch.setattr(handover, "Timer", Clock)
    monkeypatch.setattr(handover, "cores", lambda: 2)
    assert measure_handover(b"") == Handover(150.0, "far", pytest.approx(3e-9), 0.0)  # type: ignore[arg-type]


def test_a_library_without_the_timer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="lacks tw_time: compile TIMER_SOURCE into it"):
        Timer(built(tmp_path, "int nothing;"))
