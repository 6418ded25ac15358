from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest

from compiler.codegen.build import find_toolchain
from compiler.codegen.calls import workload_of
from compiler.devices.cpu.device import build_trials
from compiler.devices.cpu.emit.lower import count_tiles
from compiler.devices.cpu.measure import stages
from compiler.devices.cpu.measure.machine import CpuMachine
from compiler.devices.cpu.measure.stages import CpuStageClock, Layout, run_stage
from compiler.devices.cpu.measure.timer import TIMER_SOURCE, TimedStage, TimedTask, TimedWait, Timer
from compiler.devices.cpu.target import this_machine
from compiler.devices.kinds import propose
from compiler.fuse import fuse
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record, Setting, Trial, Workload
from compiler.ir.plans.lanes import StageClock
from compiler.ir.plans.plan import Task, Wait
from compiler.ir.tile import Tile
from compiler.knowledge.budget import TuningBudget
from compiler.knowledge.kinds import STAGE
from compiler.trace import never_stops
from compiler.tuning.tune import workload_key
from tests.compiler.devices.cpu.measure.libraries import built
from tests.compiler.networks import Network, graph_of

TARGET = replace(this_machine(), lanes=2)
# Writes down when each task began and ended: p[0] is the counter that all share, p[1] a row of (begin, end) by tile and
# run.
LOGGED = """
void logged(void *const *p, char *scratch, long begin, long end) {
    long *clock = p[0], (*rows)[2] = p[1];
    rows[begin][0] = __atomic_add_fetch(clock, 1, __ATOMIC_SEQ_CST);
    rows[begin][1] = __atomic_add_fetch(clock, 1, __ATOMIC_SEQ_CST);
}
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return built(tmp_path_factory.mktemp("stages"), LOGGED, TIMER_SOURCE, flags=("-Wno-psabi",))


def random_tasks(random: np.random.Generator, lanes: int, count: int) -> list[Task]:
    """Task t runs tile t; each waits for up to two tasks before it, on any lane."""
    tasks: list[Task] = []
    for number in range(count):
        waits = []
        for at in random.choice(number, min(number, 2), replace=False) if number else ():
            lane = tasks[at].lane
            waits.append(Wait(lane, 1 + sum(one.lane == lane for one in tasks[:at])))
        tasks.append(Task(0, int(random.integers(lanes)), number, number + 1, tuple(waits)))
    return tasks


def test_every_task_runs_once_in_every_run_and_after_what_it_waits_for(logged: bytes) -> None:
    """The counter all tasks share tells which began before which ended, whatever the machine is doing."""
    random = np.random.default_rng(7)
    runs = 25
    with Timer(logged) as timer:
        for lanes in (1, 2, 3, 2, 3):
            tasks = random_tasks(random, lanes, 14)
            clock = np.zeros(8, np.int64)
            rows = np.zeros((runs, len(tasks), 2), np.int64)
            tables = np.array([[clock.ctypes.data, rows[run].ctypes.data] for run in range(runs)], np.uintp)
            ordered = [task for lane in range(lanes) for task in tasks if task.lane == lane]
            waits = [
                (TimedWait * len(task.waits))(*(TimedWait(w.lane, w.count) for w in task.waits)) for task in ordered
            ]
            timed = (TimedTask * len(tasks))(
                *(
                    TimedTask(
                        timer.address("logged"), tables.ctypes.data, 2, runs, task.first, task.last, wait, len(wait)
                    )
                    for task, wait in zip(ordered, waits, strict=True)
                )
            )
            firsts = [sum(task.lane < lane for task in tasks) for lane in range(lanes + 1)]
            seconds = (ctypes.c_double * runs)()
            first = (ctypes.c_long * len(firsts))(*firsts)
            timer.stage(TimedStage(tasks=timed, first=first, lanes=lanes, runs=runs, seconds=seconds))
            assert all(0 < took < math.inf for took in seconds)
            assert clock[0] == 2 * len(tasks) * runs
            for run in range(runs):
                # Runs do not overlap.
                assert rows[run].min() == 2 * len(tasks) * run + 1
                for at, task in enumerate(tasks):
                    before = [one for one in range(at) if tasks[one].lane == task.lane][-1:]
                    for wait in task.waits:
                        before.append([one for one in range(at) if tasks[one].lane == wait.lane][wait.count - 1])
                    assert all(rows[run, one, 1] < rows[run, at, 0] for one in before)


def branches() -> KernelGraph:
    """Two chains of two convolutions from one input, joined by an addition; weights of both kinds."""
    net = Network()
    x = net.input(1, 8, 10, 10)
    ends = []
    for count in (12, 20):
        one = net.node("Conv", [x, net.weight(count, 8, 3, 3)], (1, count, 10, 10), pads=[1] * 4)
        one = net.node("Relu", [one], (1, count, 10, 10))
        ends.append(net.node("Conv", [one, net.weight(8, count, 1, 1)], (1, 8, 10, 10)))
    sums = net.node("Softmax", [net.node("Add", ends, (1, 8, 10, 10))], (1, 8, 10, 10), axis=1)
    return fuse(graph_of(net.model([sums]))).kernels


KERNELS = branches()
WORKLOADS = [workload_of(KERNELS, call) for call in KERNELS.calls]
KEYS = [workload_key(workload) for workload in WORKLOADS]
TILES: dict[int, Tile] = {at: propose(workload, TARGET, 2)[0].tile for at, workload in enumerate(WORKLOADS)}
COUNTS = {at: count_tiles(workload, TILES[at], TARGET) for at, workload in enumerate(WORKLOADS)}


def machine(setting: Setting | None = None) -> CpuMachine:
    build = partial(build_trials, target=TARGET, toolchain=find_toolchain(), jobs=2)
    return CpuMachine(TARGET, build, setting=setting or Setting("cache", "gcc 12"))


@pytest.fixture(scope="module")
def cores() -> CpuMachine:
    found = machine()
    assert found.built([Trial(WORKLOADS[at], KEYS[at], TILES[at], 1) for at in TILES], lambda: False)
    return found


def readers(call: int) -> list[int]:
    written = {KERNELS.buffers[id].storage for id in KERNELS.calls[call].outputs}
    return [
        at
        for at, other in enumerate(KERNELS.calls)
        if at > call and any(KERNELS.buffers[id].storage in written for id in other.inputs)
    ]


def spread_over(lanes: int, random: np.random.Generator) -> list[Task]:
    """Every call on a lane of its own choosing, or split over two, after all that it reads."""
    tasks: list[Task] = []
    ended: dict[int, list[Wait]] = {}
    for call, count in COUNTS.items():
        waits = tuple(wait for before, made in ended.items() if call in readers(before) for wait in made)
        first = int(random.integers(lanes))
        parts = [(0, count)] if lanes == 1 or count < 2 else [(0, count // 2), (count // 2, count)]
        ended[call] = []
        for number, (begin, end) in enumerate(parts):
            lane = (first + number) % lanes
            tasks.append(Task(call, lane, begin, end, waits))
            ended[call].append(Wait(lane, sum(task.lane == lane for task in tasks)))
    return tasks


def outputs_after(cores: CpuMachine, tasks: Sequence[Task]) -> list[np.ndarray]:
    """All storages that the calls write, after the tasks ran on them."""
    trials = {at: Trial(WORKLOADS[at], KEYS[at], TILES[at], 1) for at in TILES}
    placed = Layout(KERNELS, 0, seed=3).place({at: cores.entry(trial)[1] for at, trial in trials.items()})
    seconds = run_stage(cores, placed, trials, tasks, 4)
    assert len(seconds) == 4
    assert all(0 < took < math.inf for took in seconds)
    written = [KERNELS.buffers[id] for call in KERNELS.calls for id in call.outputs]
    return [placed.storages[one.storage].view(one.dtype.numpy)[: one.span].copy() for one in written]


def test_calls_on_several_lanes_compute_what_they_compute_one_after_another(cores: CpuMachine) -> None:
    random = np.random.default_rng(5)
    wanted = outputs_after(cores, spread_over(1, random))
    assert all(np.isfinite(one).any() for one in wanted)
    for _ in range(4):
        for got, want in zip(outputs_after(cores, spread_over(2, random)), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_constants_lie_in_so_many_copies_that_no_run_finds_those_of_the_run_before() -> None:
    found = machine()
    trials = {at: Trial(WORKLOADS[at], KEYS[at], TILES[at], 1) for at in TILES}
    assert found.built([*trials.values()], lambda: False)
    entries = {at: found.entry(trial)[1] for at, trial in trials.items()}
    layout = Layout(KERNELS, 64 * 1024, seed=0)
    placed = layout.place(entries)
    assert len(placed.constants) >= 64 * 1024
    for call, table in placed.tables.items():
        for slot, id in enumerate((*KERNELS.calls[call].inputs, *KERNELS.calls[call].outputs)):
            distinct = {int(pointer) for pointer in table[:, slot]}
            assert len(distinct) == (len(table) if id in KERNELS.constants else 1)
    # What the calls read of the rest and none of them writes is the network's input.
    storages = {KERNELS.buffers[id].storage for id in KERNELS.inputs}
    assert len(placed.read) == len(storages)


@dataclass(frozen=True)
class Cut:
    """What stages are cut from: `compiler.devices.device.Staged`."""

    kernels: KernelGraph
    workloads: Sequence[Workload]
    keys: Sequence[str]
    lanes: int
    setting: Setting
    state: str


@dataclass
class Recorded:
    """A clock and the records it makes."""

    clock: CpuStageClock
    records: list[Record] = field(default_factory=list)


def clock(
    cores: CpuMachine | None, known: Sequence[Record] = (), *, budget_s: float = 60.0, state: str = "near"
) -> Recorded:
    setting = Setting("cache", "gcc 12")
    records: list[Record] = []
    budget = TuningBudget(
        budget_s, stop_requested=cores.stop_requested if cores else never_stops, shares={"stages": 1.0}
    )
    share = budget.share("stages")
    staged = Cut(KERNELS, WORKLOADS, KEYS, 2, setting, state)
    made = CpuStageClock(cores, staged, TARGET, known, share, add_record=records.append)
    return Recorded(made, records)


@pytest.fixture
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores that stay near to each other."""
    monkeypatch.setattr(stages, "state_now", lambda timer: "near")


TASKS = spread_over(2, np.random.default_rng(0))


@pytest.mark.usefixtures("at_rest")
def test_what_was_timed_is_known_to_whoever_has_the_records(cores: CpuMachine) -> None:
    first = clock(cores)
    asks: StageClock = first.clock
    took = asks.seconds(TILES, TASKS)
    assert took is not None
    assert 0 < took < math.inf
    assert asks.seconds(TILES, TASKS) == took
    (record,) = first.records
    assert (record.kind, record.threads, record.seconds) == (STAGE.name, 2, took)
    assert record.is_plausible
    for reader in (clock(cores, first.records), clock(None, first.records)):
        assert reader.clock.seconds(TILES, TASKS) == took
        assert not reader.records
    (earlier,) = [replace(one, compiler="0.1.0+before") for one in first.records]
    held = clock(None, [earlier])
    assert held.clock.seconds(TILES, TASKS) == held.clock.seconds(TILES, TASKS) == took
    assert held.records == first.records
    fixed = replace(earlier, variant={**earlier.variant, "source": "before"})
    assert clock(None, [fixed]).clock.seconds(TILES, TASKS) is None
    assert clock(None, first.records, state="far").clock.seconds(TILES, TASKS) is None
    assert clock(None).clock.seconds(TILES, TASKS) is None


@pytest.mark.usefixtures("at_rest")
def test_other_tasks_tiles_or_calls_are_timed_for_themselves(cores: CpuMachine) -> None:
    recorded = clock(cores)
    other_tile = {**TILES, 0: next(one.tile for one in propose(WORKLOADS[0], TARGET, 2) if one.tile != TILES[0])}
    count = count_tiles(WORKLOADS[0], other_tile[0], TARGET)
    asked = [
        (TILES, TASKS),
        (TILES, spread_over(1, np.random.default_rng(0))),
        (TILES, [Task(0, 0, 0, COUNTS[0])]),
        (TILES, [Task(0, 1, 0, COUNTS[0])]),
        (TILES, [Task(1, 0, 0, COUNTS[1])]),
        (other_tile, [Task(0, 0, 0, count)]),
    ]
    assert all(recorded.clock.seconds(tiles, tasks) for tiles, tasks in asked)
    assert len({record.workload for record in recorded.records}) == len(asked)


@pytest.mark.usefixtures("at_rest")
def test_what_cannot_run_by_itself_is_not_timed(cores: CpuMachine) -> None:
    recorded = clock(cores)
    end = COUNTS[0]
    assert recorded.clock.seconds(TILES, []) is None
    assert recorded.clock.seconds(TILES, [Task(0, 2, 0, end)]) is None
    assert recorded.clock.seconds(TILES, [Task(0, 0, 0, end, (Wait(1, 1),))]) is None
    assert recorded.clock.seconds(TILES, [Task(0, 0, 0, end), Task(1, 0, 0, COUNTS[1], beside=True)]) is None
    assert not recorded.records


def test_cores_that_move_meanwhile_give_no_time(cores: CpuMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter(["near", "far"])
    monkeypatch.setattr(stages, "state_now", lambda timer: next(states))
    recorded = clock(cores)
    assert recorded.clock.seconds(TILES, TASKS) is None
    assert recorded.clock.seconds(TILES, TASKS) is None  # it is not tried again
    assert not recorded.records


@pytest.mark.usefixtures("at_rest")
def test_when_the_budget_is_spent_no_later_clock_with_no_more_measures(cores: CpuMachine) -> None:
    first = clock(cores, budget_s=1e-9)
    assert first.clock.seconds(TILES, TASKS) is None or first.clock.share.spent >= 1e-9
    alone = [Task(0, 0, 0, COUNTS[0])]
    assert first.clock.seconds(TILES, alone) is None
    first.clock.done()
    marker = first.records[-1]
    assert (marker.kind, marker.variant["budget_s"]) == (STAGE.name, 1e-9)
    assert marker.is_plausible
    again = clock(cores, first.records, budget_s=1e-9)
    assert again.clock.seconds(TILES, alone) is None
    again.clock.done()
    assert again.clock.share.spent == 0
    assert not again.records
    assert clock(cores, first.records, budget_s=60.0).clock.seconds(TILES, alone)


@pytest.mark.usefixtures("at_rest")
def test_who_is_after_a_stop_request_is_not_kept(cores: CpuMachine) -> None:
    stopping = replace(cores, stop_requested=lambda: True)
    recorded = clock(stopping)
    assert recorded.clock.seconds(TILES, TASKS) is None
    recorded.clock.done()
    assert not recorded.records
