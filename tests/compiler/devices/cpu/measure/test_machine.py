from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from compiler.devices.cpu.measure.machine import STATE_RALLIES, Build, Built, CpuMachine, Entry, state_now
from compiler.devices.cpu.measure.timer import TIMER_SOURCE, Timer
from compiler.devices.cpu.target import CpuTarget
from compiler.errors import InternalError, TargetUnavailable
from compiler.ir.buffers import Buffer
from compiler.ir.kernel import Slot
from compiler.ir.machine import Machine, Record, Setting, Trial, Workload
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.tile import Level, Tile
from compiler.measure.rounds import LEAST_ROUNDS, clean_rounds
from compiler.trace import StopRequest, never_stops
from tests.compiler.devices.cpu.measure import libraries
from tests.parse import parse_kernel

TARGET = CpuTarget(
    "cpu:test", "any", (), (), vector_floats=4, vector_registers=16, l2_bytes=256 * 1024, hardware="cpu:test/0", lanes=2
)
TILE = Tile("loops", (Level("L1", (("m", 8),)),))
X, W = TensorType(DType.F32, (64,)), TensorType(DType.F32, (64,))
KERNEL = parse_kernel("kernel Scale(in x: f32[64], in w: f32[64]; out y: f32[64]) for i:64 y[i] = mul(x[i], w[i])")
WORKLOAD = Workload(
    KERNEL, (Buffer.whole(0, X), Buffer.whole(1, W)), (Buffer.whole(2, X, Layout(((0, 0), (0, 16)))),), (False, True)
)
OPERANDS = ((DType.F32, 64), (DType.F32, 64), (DType.F32, 64))
GATHER = parse_kernel(
    """kernel Gather(in x: f32[64], in w: f32[64], in i: i64[8], in m: bool[8]; out y: f32[8]) for a:8
    y[a] = where(m[a], x[[i[a] in 0..63]], w[a])"""
)
# Tile t multiplies elements 8 t .. 8 t + 7; `slow` does it many times over.
SCALE = """
void {name}(void *const *p, char *scratch, long begin, long end) {{
    const float *x = p[0], *w = p[1];
    float *volatile y = p[2];
    for (long again = 0; again < {times}; again++)
        for (long i = 8 * begin; i < 8 * end; i++) y[i] = x[i] * w[i];
}}
"""
# Fails (by stopping the process) unless the operands and the scratch are as promised.
CHECK = """
#include <stdint.h>
#include <stdlib.h>
void check(void *const *p, char *scratch, long begin, long end) {
    const float *x = p[0], *w = p[1];
    const int64_t *at = p[2];
    const uint8_t *mask = p[3];
    if ((uintptr_t)p[0] % 4096 || (uintptr_t)p[1] % 64 || (uintptr_t)p[4] % 4096 || (uintptr_t)scratch % 4096) abort();
    for (int i = 0; i < 64; i++) if (!(x[i] >= 0.1f && x[i] < 1.0f && w[i] >= 0.1f && w[i] < 1.0f)) abort();
    for (int i = 0; i < 8; i++) if (at[i] != 0 || mask[i] > 1) abort();
    if (begin != 0 || end != 3) abort();
    for (int i = 0; i < 100; i++) scratch[i] = 1;
}
"""


def library(tmp_path: Path, *sources: str) -> bytes:
    return libraries.built(
        tmp_path, *sources, TIMER_SOURCE, flags=("-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror")
    )


@pytest.fixture
def scaling(tmp_path: Path) -> Build:
    """A builder whose first trial of a batch is quick and whose others are a thousand times slower."""
    made = library(tmp_path, SCALE.format(name="quick", times=1), SCALE.format(name="slow", times=1000))

    def build(trials: Sequence[Trial], *, stop_requested: StopRequest = never_stops) -> Built:
        return Built(
            made, tuple(Entry("slow" if at else "quick", OPERANDS, 8, source="code") for at, _ in enumerate(trials))
        )

    return build


class Clock:
    """Seconds that pass one at a time, when asked for."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_one_record_for_each_trial_says_all_of_it(scaling: Build) -> None:
    machine: Machine = CpuMachine(TARGET, scaling)
    trials = [Trial(WORKLOAD, "key0", TILE, 1), Trial(WORKLOAD, "key1", replace(TILE, algorithm="contraction"), 1)]
    records = list(machine.measure(trials, 60.0))
    assert [record.workload for record in records] == ["key0", "key1"]
    quick, slow = records
    assert (machine.hardware, machine.lanes) == ("cpu:test/0", 2)
    assert quick == replace(quick, kind="kernel", operator="Scale", target="cpu:test", hardware="cpu:test/0", threads=1)
    assert quick.description == "f32[64], f32[64] -> f32[64] <0 0%16>"
    assert quick.variant == {**TILE.to_json(), "lanes": 1, "weights": "cache", "toolchain": "", "source": "code"}
    assert Tile.from_json(slow.variant).algorithm == "contraction"
    assert quick.samples >= LEAST_ROUNDS
    for record in records:
        assert 0 < record.p10 <= record.seconds <= record.p90
        assert Record.from_json(record.to_json()) == record


def test_lanes_share_the_tiles(tmp_path: Path) -> None:
    counting = """
    #include <stdatomic.h>
    #include <stdlib.h>
    static _Atomic long low, high;
    void halves(void *const *p, char *scratch, long begin, long end) {
        scratch[0] = 1;
        if (begin == 0 && end == 2) atomic_fetch_add(&low, 1);
        else if (begin == 2 && end == 5) atomic_fetch_add(&high, 1);
        else abort();
        /* No lane starts a run before the other has finished the one before. */
        if (labs(atomic_load(&low) - atomic_load(&high)) > 1) abort();
    }
    """
    made = library(tmp_path, counting)
    machine = CpuMachine(TARGET, lambda trials, stop_requested: Built(made, (Entry("halves", OPERANDS, 5, 10),)))
    (record,) = machine.measure([Trial(WORKLOAD, "key", TILE, 2)], 60.0)
    assert (record.threads, record.variant["lanes"]) == (2, 2)
    assert record.variant["state"] in ("near", "far")
    assert record.seconds > 0


def test_lanes_that_share_a_kernel_write_what_it_reads_again_and_leave_it_as_it_was(tmp_path: Path) -> None:
    made = library(tmp_path, CHECK.replace("begin != 0 || end != 3", "end > 3"))
    types = (X, W, TensorType(DType.I64, (8,)), TensorType(DType.BOOL, (8,)), TensorType(DType.F32, (8,)))
    entry = Entry("check", tuple((type.dtype, type.elements) for type in types), 3, 100)
    buffers = tuple(Buffer.whole(at, type) for at, type in enumerate(types))
    workload = Workload(GATHER, buffers[:4], buffers[4:], (False, True, False, False))
    machine = CpuMachine(TARGET, lambda trials, stop_requested: Built(made, (entry,)), samples=3)
    (record,) = machine.measure([Trial(workload, "key", TILE, 2)], 60.0)
    assert record.seconds > 0


def test_a_kernel_on_several_lanes_is_built_once_with_that_on_one(scaling: Build) -> None:
    built: list[int] = []

    def build(trials: Sequence[Trial], *, stop_requested: StopRequest = never_stops) -> Built | None:
        built.append(len(trials))
        return scaling(trials, stop_requested=stop_requested)

    machine = CpuMachine(TARGET, build, samples=3)
    alone, both = machine.measure([Trial(WORKLOAD, "key", TILE, count) for count in (1, 2)], 60.0)
    assert built == [1]
    assert (alone.threads, both.threads) == (1, 2)
    assert "state" not in alone.variant
    (again,) = machine.measure([Trial(WORKLOAD, "key", TILE, 2)], 60.0)
    assert built == [1]
    assert again.variant["lanes"] == 2


def test_a_record_on_several_lanes_counts_in_the_state_that_most_rounds_had(
    scaling: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter(["near", "far", "far", "far", *["near"] * 20])
    monkeypatch.setattr("compiler.devices.cpu.measure.machine.state_now", lambda timer: next(states))
    monkeypatch.setattr("compiler.devices.cpu.measure.machine.clean_rounds", lambda rates: frozenset(range(len(rates))))
    machine = CpuMachine(TARGET, scaling, samples=4)
    (record,) = machine.measure([Trial(WORKLOAD, "key", TILE, 2)], 60.0)
    assert (record.variant["state"], record.samples) == ("far", 3)


def test_a_rally_that_another_process_interrupts_does_not_make_near_cores_far() -> None:
    class Rallies:
        def __init__(self, *ns: float) -> None:
            self.ns = iter(ns)

        def handover(self, rounds: int) -> float:
            return next(self.ns)

    def state(*ns: float) -> str:
        return state_now(cast(Timer, Rallies(*ns)))

    assert state(70.0) == "near"
    assert state(40_000.0, 150.0, 70.0) == "near"
    assert state(*(250.0 for _ in range(STATE_RALLIES))) == "far"
    assert state(*(250.0 for _ in range(STATE_RALLIES - 1)), 70.0) == "near"


def test_operands_are_aligned_and_filled_so_that_every_index_is_legal(tmp_path: Path) -> None:
    types = (X, W, TensorType(DType.I64, (8,)), TensorType(DType.BOOL, (8,)), TensorType(DType.F32, (8,)))
    buffers = tuple(Buffer.whole(at, type) for at, type in enumerate(types))
    workload = Workload(GATHER, buffers[:4], buffers[4:], (False, True, False, False))
    made = library(tmp_path, CHECK)
    entry = Entry("check", tuple((type.dtype, type.elements) for type in types), 3, 100)
    for setting in (Setting("cache"), Setting("memory", "gcc 12")):
        machine = CpuMachine(TARGET, lambda trials, stop_requested: Built(made, (entry,)), setting=setting)
        (record,) = machine.measure([Trial(workload, "key", TILE, 1)], 60.0)
        assert setting.is_of(record)


def test_when_the_deadline_has_passed_nothing_is_built() -> None:
    def build(trials: Sequence[Trial], *, stop_requested: StopRequest = never_stops) -> Built:
        raise AssertionError("built")

    machine = CpuMachine(TARGET, build)
    assert list(machine.measure([Trial(WORKLOAD, "key", TILE, 1)], 0.0)) == []
    assert list(machine.measure([], 60.0)) == []


def test_at_the_deadline_what_was_measured_is_still_told(scaling: Build) -> None:
    machine = CpuMachine(TARGET, scaling, clock=Clock())
    trials = [Trial(WORKLOAD, f"key{at}", TILE, 1) for at in range(5)]
    # The clock is read once to begin with and once more before the build: at second 5 two trials have run.
    records = list(machine.measure(trials, 4.0))
    assert [(record.workload, record.samples) for record in records] == [("key0", 1), ("key1", 1)]


def test_after_a_stop_request_what_was_measured_is_still_told(scaling: Build) -> None:
    trials = [Trial(WORKLOAD, f"key{at}", TILE, 1) for at in range(5)]
    # Asked once before the build and once for each of five trials prepared: two samples are taken.
    asked = iter([False] * 8)
    machine = CpuMachine(TARGET, scaling, stop_requested=lambda: next(asked, True))
    records = list(machine.measure(trials, 60.0))
    assert [(record.workload, record.samples) for record in records] == [("key0", 1), ("key1", 1)]


def test_a_build_that_was_called_off_gives_no_records() -> None:
    machine = CpuMachine(TARGET, lambda trials, stop_requested: None)
    assert list(machine.measure([Trial(WORKLOAD, "key", TILE, 1)], 60.0)) == []


def test_a_build_is_called_off_at_the_deadline() -> None:
    """However long the C compiler takes: nothing could be timed any more."""
    asked: list[bool] = []

    def build(trials: Sequence[Trial], *, stop_requested: StopRequest) -> None:
        while not stop_requested():
            asked.append(False)

    machine = CpuMachine(TARGET, build, clock=Clock())
    assert list(machine.measure([Trial(WORKLOAD, "key", TILE, 1)], 5.0)) == []
    assert len(asked) == 3


def test_a_trial_that_is_far_behind_the_best_of_its_workload_is_sampled_no_further(
    scaling: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.devices.cpu.measure.machine.clean_rounds", lambda rates: frozenset(range(len(rates))))
    machine = CpuMachine(TARGET, scaling, samples=9)
    other = replace(TILE, algorithm="contraction")
    winner, loser = machine.measure([Trial(WORKLOAD, "key", TILE, 1), Trial(WORKLOAD, "key", other, 1)], 60.0)
    assert (winner.samples, loser.samples) == (9, LEAST_ROUNDS)


def test_what_was_built_is_measured_again_without_being_built_again(
    scaling: Build,
) -> None:
    built: list[list[str]] = []

    def build(trials: Sequence[Trial], *, stop_requested: StopRequest = never_stops) -> Built | None:
        built.append([trial.key for trial in trials])
        return scaling(trials, stop_requested=stop_requested)

    machine = CpuMachine(TARGET, build, samples=3)
    trials = [Trial(WORKLOAD, f"key{at}", TILE, 1) for at in range(3)]
    first = {record.workload: record.seconds for record in machine.measure(trials[:2], 60.0)}
    again = {record.workload: record.seconds for record in machine.measure(trials[::-1], 60.0)}
    assert built == [["key0", "key1"], ["key2"]]
    assert list(again) == ["key2", "key1", "key0"]
    # The first of each library is the quick one, a thousand times quicker than the other.
    assert again["key1"] > 30 * max(again["key0"], again["key2"])
    assert first["key1"] > 30 * first["key0"]


def test_what_cannot_be_measured_is_refused(scaling: Build, tmp_path: Path) -> None:
    with pytest.raises(TargetUnavailable, match="cannot be measured on this machine"):
        CpuMachine(replace(TARGET, hardware=""), scaling)
    with pytest.raises(TargetUnavailable, match="wants 3 lanes of 2"):
        list(CpuMachine(TARGET, scaling).measure([Trial(WORKLOAD, "key", TILE, 3)], 60.0))
    made = library(tmp_path)
    faults = {
        "1 trials were built into 0 entries": Built(made, ()),
        "does not export nowhere": Built(made, (Entry("nowhere", OPERANDS, 1),)),
        "has 2 operands for a workload of 3": Built(made, (Entry("tw_time", OPERANDS[:2], 1),)),
    }
    for says, built in faults.items():
        machine = CpuMachine(TARGET, partial(_as_built, built))
        with pytest.raises(InternalError, match=says):
            list(machine.measure([Trial(WORKLOAD, "key", TILE, 1)], 60.0))


def _as_built(built: Built, trials: Sequence[Trial], *, stop_requested: StopRequest) -> Built:
    return built


def test_rounds_in_which_a_core_was_taken_away_do_not_count() -> None:
    assert clean_rounds([100, 99, 60, 101, 98]) == {0, 1, 3, 4}
    assert clean_rounds([]) == frozenset()
    assert clean_rounds([5.0]) == {0}


def test_when_few_rounds_are_clean_the_better_half_counts() -> None:
    assert clean_rounds([100, 10, 20, 30, 99, 25, 22, 21, 20]) >= {0, 4, 3}
    assert clean_rounds([100, 50]) == {0}


def test_a_description_tells_shapes_and_the_layouts_that_are_not_plain() -> None:
    slots = (Slot("x", X), Slot("w", W))
    workload = replace(WORKLOAD, kernel=replace(KERNEL, inputs=slots))
    assert workload.shapes == "f32[64], f32[64] -> f32[64] <0 0%16>"
