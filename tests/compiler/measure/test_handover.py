from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from compiler.errors import InternalError, ResourceExhausted
from compiler.measure.handover import Handover, cores, measure_handover
from compiler.measure.memory import GARBAGE, allocate
from compiler.measure.timer import TIMER_SOURCE, Timer


@pytest.fixture(scope="module")
def timer_library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return built(tmp_path_factory.mktemp("timer"), TIMER_SOURCE)


def built(folder: Path, source: str) -> bytes:
    (folder / "timer.c").write_text(source)
    command = [os.environ.get("CC", "gcc"), "-O2", "-std=gnu11", "-fPIC", "-shared", "-pthread"]
    subprocess.run([*command, "-o", "timer.so", "timer.c"], cwd=folder, check=True)
    return (folder / "timer.so").read_bytes()


def test_near_and_far_are_told_apart() -> None:
    assert Handover.of(60.0) == Handover(60.0, "near")
    assert Handover.of(185.0) == Handover(185.0, "far")
    assert Handover.of(185.0, 2e-11) == Handover(185.0, "far", 2e-11)


@pytest.mark.skipif(cores() < 2, reason="this process has one core: nothing to hand over to")
def test_the_cost_between_two_cores_is_measured_and_affinity_is_given_back(timer_library: bytes) -> None:
    before = os.sched_getaffinity(0)
    found = measure_handover(timer_library)
    assert found is not None
    assert found.ns > 0
    assert found.state in ("near", "far")
    assert 0 <= found.byte_s < 1e-6
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


def test_a_library_without_the_timer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="lacks tw_time: compile TIMER_SOURCE into it"):
        Timer(built(tmp_path, "int nothing;"))
