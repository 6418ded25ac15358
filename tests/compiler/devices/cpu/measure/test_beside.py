from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cpu.measure import beside as beside_module
from compiler.devices.cpu.measure.beside import BEYOND_L3, MOST, Load, Loads, beside_of, measure_beside
from compiler.devices.cpu.measure.handover import cores
from compiler.devices.cpu.measure.machine import Built, CpuMachine, Entry
from compiler.devices.cpu.measure.timer import STREAM_CHUNK, TIMER_SOURCE, Sample, Timer
from compiler.devices.cpu.target import CpuTarget
from compiler.ir.buffers import Buffer
from compiler.ir.lanes import Beside
from compiler.ir.machine import Record, Setting, Trial, Workload
from compiler.ir.parse import parse_kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Level, Tile
from compiler.knowledge.kinds import PAIR
from tests.compiler.devices.cpu.measure.libraries import built

TARGET = CpuTarget(
    "cpu:test",
    "any",
    (),
    (),
    vector_floats=4,
    vector_registers=16,
    l2_bytes=64 * 1024,
    l3_bytes=512 * 1024,
    hardware="cpu:test/0",
    lanes=2,
)
TILE = Tile("loops", (Level("L1", (("m", 8),)),))
X = TensorType(DType.F32, (64,))
WORKLOAD = Workload(
    parse_kernel("kernel Double(in x: f32[64]; out y: f32[64]) for i:64 y[i] = add(x[i], x[i])"),
    (Buffer.whole(0, X),),
    (Buffer.whole(1, X),),
    (False,),
)
OPERANDS = ((DType.F32, 64), (DType.F32, 64))
KERNELS = """
void twice(void *const *p, char *scratch, long begin, long end) {
    const float *x = p[0];
    float *y = p[1];
    for (long i = 8 * begin; i < 8 * end; i++) y[i] = x[i] + x[i];
}
/* Counts its runs. */
void counted(void *const *p, char *scratch, long begin, long end) {
    __atomic_add_fetch((long *)p[0], 1, __ATOMIC_SEQ_CST);
}
/* Does not return before the other has run again. */
void meets(void *const *p, char *scratch, long begin, long end) {
    long *others = p[0], *mine = p[1], seen = __atomic_load_n(others, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(others, __ATOMIC_SEQ_CST) == seen);
    *mine += 1;
}
"""
needs_two = pytest.mark.skipif(cores() < 2, reason="this process has one core: nothing runs beside anything")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return built(tmp_path_factory.mktemp("beside"), KERNELS, TIMER_SOURCE, flags=("-Wno-psabi",))


def sample(timer: Timer, symbol: str, table: np.ndarray, repeats: int) -> Sample:
    return Sample(
        kernel=timer.address(symbol),
        tables=table.ctypes.data,
        pointers=len(table),
        copies=1,
        tiles=1,
        lanes=1,
        repeats=repeats,
    )


@needs_two
def test_the_second_kernel_runs_all_the_time_that_the_first_one_does(library: bytes) -> None:
    counters = np.zeros(16, np.int64)
    other = np.array([counters.ctypes.data], np.uintp)
    both = np.array([counters.ctypes.data, counters[8:].ctypes.data], np.uintp)
    with Timer(library) as timer:
        seconds = timer.beside(sample(timer, "meets", both, 50), sample(timer, "counted", other, 1))
        assert counters[8] == 50
        assert counters[0] >= 50
        assert min(seconds) > 0
        alone = timer.beside(sample(timer, "counted", other, 7), None)
        assert alone[0] > 0
        assert alone[1] == 0


def test_the_load_reads_on_where_it_left_off_and_begins_again_at_the_end(library: bytes) -> None:
    load = Load.of(TARGET)
    chunks = BEYOND_L3 * TARGET.l3_bytes // STREAM_CHUNK
    assert load.stream.bytes == len(load.memory) == chunks * STREAM_CHUNK
    with Timer(library) as timer:
        assert timer.time(load.sample(timer, 3)) > 0
        assert load.stream.at == 3 * STREAM_CHUNK
        timer.time(load.sample(timer, chunks - 1))
        assert load.stream.at == 2 * STREAM_CHUNK
        other = load.another()
        timer.time(other.sample(timer))
        assert (load.stream.at, other.stream.at) == (2 * STREAM_CHUNK, (chunks // 2 + 1) * STREAM_CHUNK)
        assert ctypes.addressof(load.stream) != ctypes.addressof(other.stream)


@needs_two
@pytest.mark.parametrize("weights", ["cache", "memory"])
def test_a_record_says_what_a_kernel_suffers_and_presses(
    library: bytes, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Virtual cores may move while a kernel is measured, which then has no record.
    monkeypatch.setattr(beside_module, "state_now", lambda timer: "near")
    setting = Setting("cache" if weights == "cache" else "memory", "gcc 12")
    asked: list[int] = []

    def build(trials: Sequence[Trial], *, hurry: object) -> Built:
        asked.append(len(trials))
        return Built(library, tuple(Entry("twice", OPERANDS, 8) for _ in trials))

    machine = CpuMachine(TARGET, build, setting=setting)
    trials = [Trial(WORKLOAD, f"key{at}", replace(TILE, algorithm=f"a{at}"), 1) for at in range(2)]
    found = list(measure_beside(machine, trials, math.inf))
    assert asked == [2]
    assert [record.workload for record in found] == ["key0", "key1"]
    for record in found:
        assert (record.kind, record.target, record.hardware, record.threads) == (PAIR.name, "cpu:test", "cpu:test/0", 2)
        assert 0 <= record.variant["suffers"] < 1000
        assert 0 <= record.variant["presses"] <= MOST
        assert 0 < record.p10 <= record.seconds <= record.p90
        assert setting.is_of(record)
        told = beside_of([record], TARGET, setting, "near")[record.workload]
        assert told == Beside(record.variant["suffers"], record.variant["presses"])


@needs_two
def test_a_kernel_while_which_the_cores_moved_has_no_record(library: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter(["near", "far", "far", "far"])
    monkeypatch.setattr(beside_module, "state_now", lambda timer: next(states))
    built = Built(library, (Entry("twice", OPERANDS, 8),) * 2)
    trials = [Trial(WORKLOAD, f"key{at}", replace(TILE, algorithm=f"a{at}"), 1) for at in range(2)]
    (record,) = measure_beside(CpuMachine(TARGET, lambda trials, hurry: built), trials, math.inf)
    assert (record.workload, record.variant["state"]) == ("key1", "far")


def test_slowdowns_that_vary_from_one_time_to_the_next_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel that takes 1 alone, and a load that takes 2: the fastest round beside each other counts."""

    class Timed:
        def __init__(self, beside: Sequence[float], load: float) -> None:
            self.beside_s, self.load_s = iter(beside), load

        def time(self, sample: object) -> float:
            return 1.0

        def beside(self, one: object, other: object) -> tuple[float, float]:
            alone = 1.0 if one is None else 2.0
            return (next(self.beside_s), self.load_s) if other else (alone, 0.0)

    class Still:
        operands = type("NoOperands", (), {"cold": ()})

        def sample(self, repeats: int) -> None:
            return None

    monkeypatch.setattr(Load, "sample", lambda self, timer, repeats=1: object())
    loads = Loads(Load(np.zeros(STREAM_CHUNK, np.uint8)), 1, 2.0, 3.0)

    def found(beside: Sequence[float], load: float) -> Beside:
        return beside_module._measured(Still(), Timed(beside, load), loads).beside  # type: ignore[arg-type]

    assert found([9.0, 1.5, 1.25, 1.5, 5.0], 2.5) == Beside(0.25, 0.5)
    assert found([9.0, 1.3, 1.09, 1.4, 5.0], 2.18) == Beside(0.0, 0.0)
    assert found([0.9] * 5, 1.0) == Beside(0.0, 0.0)
    assert found([1.5] * 5, 99.0) == Beside(0.5, MOST)


def test_nothing_is_measured_when_the_time_is_up_or_somebody_is_in_a_hurry(library: bytes) -> None:
    def build(trials: Sequence[Trial], *, hurry: object) -> Built:
        raise AssertionError("built")

    trials = [Trial(WORKLOAD, "key", TILE, 1)]
    assert list(measure_beside(CpuMachine(TARGET, build), trials, time.monotonic() - 1)) == []
    hurried = CpuMachine(TARGET, build, hurry=lambda: True)
    assert list(measure_beside(hurried, trials, time.monotonic() + 9)) == []
    assert list(measure_beside(CpuMachine(TARGET, build), [], time.monotonic() + 9)) == []


SETTING = Setting("cache", "gcc 12")


def pair(key: str, state: str, suffers: object, presses: object = 0.5) -> Record:
    variant = {"suffers": suffers, "presses": presses, "state": state, **SETTING.to_json()}
    return Record(PAIR.name, key, "", "", TARGET.name, TARGET.hardware, variant, 2, 1e-3, 1e-3, 1e-3, 5)


def test_records_of_this_state_count_before_those_of_another_and_later_before_earlier() -> None:
    records = [pair("a", "near", 0.1), pair("a", "far", 0.2), pair("a", "near", 0.3), pair("b", "far", 0.4)]
    for order in (records, [records[1], records[0], records[2], records[3]]):
        assert beside_of(order, TARGET, SETTING, "near") == {"a": Beside(0.3, 0.5), "b": Beside(0.4, 0.5)}
        assert beside_of(order, TARGET, SETTING, "far") == {"a": Beside(0.2, 0.5), "b": Beside(0.4, 0.5)}


@pytest.mark.parametrize("wrong", [None, "much", True, -0.1, float("nan"), float("inf"), 1e308, 10**400])
def test_records_of_something_else_or_of_what_cannot_be_are_not_used(wrong: object) -> None:
    good = pair("a", "near", 0.1)
    assert beside_of([pair("a", "near", wrong), pair("a", "near", 0.1, wrong)], TARGET, SETTING, "near") == {}
    for other in ({"kind": "kernel"}, {"hardware": "elsewhere"}, {"target": "cpu:other"}, {"compiler": "0.0.1"}):
        assert beside_of([replace(good, **other)], TARGET, SETTING, "near") == {}  # type: ignore[arg-type]
    assert beside_of([good], TARGET, Setting("memory", "gcc 12"), "near") == {}
