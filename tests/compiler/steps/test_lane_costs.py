from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from compiler.codegen.build import find_toolchain
from compiler.codegen.calls import workload_of
from compiler.devices.cpu.device import CpuBackend
from compiler.devices.cpu.emit.lower import count_tiles
from compiler.devices.cpu.measure.machine import CpuMachine
from compiler.devices.cpu.target import PROFILES, this_machine
from compiler.devices.kinds import propose
from compiler.fuse import fuse
from compiler.ir.buffers import KernelGraph
from compiler.ir.lanes import Beside, LaneCosts
from compiler.ir.machine import Record, Setting, Trial
from compiler.ir.tile import Cost, Menu, Variant
from compiler.knowledge.budget import TuningBudget
from compiler.knowledge.kinds import HANDOVER
from compiler.steps import lane_costs as measuring
from compiler.steps.lane_costs import (
    USUAL,
    WAKE_SECONDS,
    byte_seconds,
    elsewhere,
    handovers,
    lane_costs,
    measured_beside,
    meeting_seconds,
    upgrade_seconds,
)
from compiler.tuning.tune import workload_key
from tests.compiler.networks import Network, graph_of

TARGET = replace(this_machine(), lanes=2)
SETTING = Setting("cache", "gcc 12")


def handed_over(ns: float, **variant: object) -> Record:
    seconds = (1e-9 * ns, 1e-9 * ns, 1e-9 * ns)
    return Record(HANDOVER.name, HANDOVER.name, "", "", TARGET.name, TARGET.hardware, variant, 2, *seconds, 1)


def pair(key: str, suffers: float, state: str = "near") -> Record:
    variant = {"suffers": suffers, "presses": 0.5, "state": state, **SETTING.to_json()}
    return Record("pair", key, "", "", TARGET.name, TARGET.hardware, variant, 2, 1e-3, 1e-3, 1e-3, 5)


def test_lanes_cost_what_the_records_say() -> None:
    records = [pair("a", 0.1), pair("a", 0.3, "far"), pair("b", 0.2), pair("c", 0.2)]
    near = lane_costs(handed_over(50.0, byte_s=5e-12, upgrade_s=2e-11), records, TARGET, SETTING, ["b", "a", "a", "d"])
    assert near.split_s == pytest.approx(2 * 50e-9 + WAKE_SECONDS)
    assert near.byte_s == 5e-12
    assert near.upgrade_s == 2e-11
    assert near.beside == {"a": Beside(0.1, 0.5), "b": Beside(0.2, 0.5)}
    far = lane_costs(handed_over(200.0), records, TARGET, SETTING, ["a"])
    assert far == LaneCosts(2 * 200e-9 + WAKE_SECONDS, 0.0, 0.0, {"a": Beside(0.3, 0.5)})
    assert lane_costs(None, [], TARGET, SETTING, ["a"]) == LaneCosts(meeting_seconds(None))


@pytest.mark.parametrize("wrong", [None, "1", True, -1.0, float("nan"), float("inf"), 1.0, 1e308, 10**400])
def test_a_record_that_says_nothing_true_of_bytes_counts_as_none(wrong: object) -> None:
    assert byte_seconds(handed_over(50.0, byte_s=wrong)) == 0.0
    assert byte_seconds(handed_over(50.0)) == byte_seconds(None) == 0.0
    assert upgrade_seconds(handed_over(50.0, byte_s=1e-11, upgrade_s=wrong)) == 0.0
    assert upgrade_seconds(handed_over(50.0, byte_s=1e-11)) == upgrade_seconds(None) == 0.0


def test_the_last_record_of_each_state_of_the_cores_is_found() -> None:
    records = [handed_over(50.0), handed_over(300.0), handed_over(60.0)]
    elsewhere = [replace(handed_over(70.0), hardware="elsewhere"), replace(handed_over(70.0), kind="plan")]
    assert handovers([*records, *elsewhere], TARGET) == {"near": records[2], "far": records[1]}
    assert handovers(elsewhere, TARGET) == {}


def test_what_a_handover_costs_in_the_other_state_is_told_by_its_record_or_usual() -> None:
    near, far = handed_over(50.0, byte_s=5e-12, upgrade_s=2e-11), handed_over(250.0, byte_s=4e-11, upgrade_s=0.0)
    assert elsewhere(near, [near, far], TARGET) == far
    assert elsewhere(far, [near, far], TARGET) == near
    usual = elsewhere(near, [near], TARGET)
    assert usual is not None
    assert (byte_seconds(usual), upgrade_seconds(usual)) == (USUAL["far"].byte_s, USUAL["far"].upgrade_s)
    assert elsewhere(None, [near, far], TARGET) is None


@pytest.mark.parametrize("variant", [{}, {"upgrade_s": None}, {"upgrade_s": float("nan")}, {"upgrade_s": -1e-11}])
def test_a_record_of_the_other_state_that_does_not_tell_of_upgrades_is_completed_by_what_is_usual(
    variant: dict[str, object],
) -> None:
    found = elsewhere(handed_over(50.0), [handed_over(250.0, byte_s=4e-11, **variant)], TARGET)
    assert found is not None
    assert (found.seconds, byte_seconds(found)) == (handed_over(250.0).seconds, 4e-11)
    assert upgrade_seconds(found) == USUAL["far"].upgrade_s


def network() -> KernelGraph:
    net = Network()
    x = net.node("Conv", [net.input(1, 8, 12, 12), net.weight(8, 8, 3, 3)], (1, 8, 12, 12), pads=[1] * 4)
    return fuse(graph_of(net.model([net.node("Softmax", [x], (1, 8, 12, 12), axis=1)]))).kernels


KERNELS = network()
CONV, SOFTMAX = (workload_of(KERNELS, call) for call in KERNELS.calls)
WORKLOADS = [CONV, CONV, SOFTMAX]
"""Two calls of one kernel, one of another."""


def menus(*seconds: float, source: str = "record") -> list[Menu]:
    found = []
    for workload, took in zip(WORKLOADS, seconds, strict=True):
        best = propose(workload, TARGET, 1)[0].tile
        variant = Variant(best, count_tiles(workload, best, TARGET), 1, Cost(took, source))
        found.append(Menu(workload_key(workload), (variant,)))
    return found


def cores(**change: object) -> CpuMachine:
    machine = CpuBackend(TARGET, find_toolchain()).cores(0, setting=SETTING)
    assert machine is not None
    return replace(machine, **change)  # type: ignore[arg-type]


@dataclass
class Asked:
    """Stands for measuring beside a load: what was asked for, and in which state the cores were."""

    state: str = "near"
    most: int = 99
    seconds: float = 0.0
    keys: list[str] = field(default_factory=list)

    def __call__(self, machine: CpuMachine, trials: Sequence[Trial], end: float) -> Iterator[Record]:
        self.seconds = end - machine.clock()
        self.keys = [trial.key for trial in trials]
        for trial in trials[: self.most]:
            yield pair(trial.key, 0.1, self.state)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found = Asked()
    monkeypatch.setattr(measuring, "measure_beside", found)
    return found


def test_each_kernel_is_measured_once_those_that_take_most_first(asked: Asked) -> None:
    first, last = workload_key(CONV), workload_key(SOFTMAX)
    budget = TuningBudget(100.0, clock=lambda: 0.0, spent={"tiles": 46.0, "lanes": 17.0})
    records = measured_beside(cores(clock=lambda: 0.0), menus(2e-4, 2e-4, 3e-4), WORKLOADS, (), "near", budget)
    assert asked.keys == [first, last]
    assert asked.seconds == pytest.approx(66.0 - 46.0 - 17.0)
    assert [record.workload for record in records[:-1]] == [first, last]
    assert all(record.is_plausible for record in records)
    measured_beside(cores(), menus(1e-4, 1e-4, 3e-4), WORKLOADS, (), "near", TuningBudget(100.0))
    assert asked.keys == [last, first]


def test_what_has_records_in_this_state_is_not_measured_again(asked: Asked) -> None:
    asked.most = 1
    menu = menus(2e-4, 2e-4, 1e-4)
    records = measured_beside(cores(), menu, WORKLOADS, (), "near", TuningBudget(100.0))
    assert len(records) == 2  # one kernel, for which there was time, and that it was tried
    asked.keys = []
    assert measured_beside(cores(), menu, WORKLOADS, records, "near", TuningBudget(100.0)) == []
    assert asked.keys == []
    more = measured_beside(cores(), menu, WORKLOADS, records, "near", TuningBudget(101.0))
    assert asked.keys == [menu[2].workload]
    asked.keys = []
    assert measured_beside(cores(), menu, WORKLOADS, [*records, *more], "near", TuningBudget(1e6)) == []
    measured_beside(cores(), menu, WORKLOADS, [*records, *more], "far", TuningBudget(100.0))
    assert set(asked.keys) == {menu[0].workload, menu[2].workload}


def test_a_kernel_that_would_take_all_the_time_there_is_is_left_out(asked: Asked) -> None:
    """The convolution alone and beside the load, five times each, takes more than two seconds of a hundred."""
    measured_beside(cores(), menus(0.2, 0.2, 1e-3), WORKLOADS, [], "near", TuningBudget(100.0))
    assert asked.keys == [workload_key(SOFTMAX)]


def test_cores_that_moved_meanwhile_and_people_in_a_hurry_may_come_again(asked: Asked) -> None:
    menu = menus(2e-4, 2e-4, 1e-4)
    asked.state = "far"
    records = measured_beside(cores(), menu, WORKLOADS, (), "near", TuningBudget(100.0))
    assert {record.workload for record in records} == {one.workload for one in menu}
    asked.state = "near"
    hurried = measured_beside(cores(hurry=lambda: True), menu, WORKLOADS, (), "near", TuningBudget(100.0))
    assert {record.workload for record in hurried} == {one.workload for one in menu}


def test_nothing_is_measured_without_a_machine_a_second_lane_a_budget_or_a_measured_kernel(asked: Asked) -> None:
    menu = menus(2e-4, 2e-4, 1e-4)
    assert measured_beside(None, menu, WORKLOADS, (), "near", TuningBudget(100.0)) == []
    one_lane = cores(target=replace(TARGET, lanes=1))
    assert measured_beside(one_lane, menu, WORKLOADS, (), "near", TuningBudget(100.0)) == []
    assert measured_beside(cores(), menu, WORKLOADS, (), "near", TuningBudget(0.0)) == []
    assert (
        measured_beside(cores(), menus(1e-4, 1e-4, 1e-4, source="model"), WORKLOADS, (), "near", TuningBudget(100.0))
        == []
    )
    assert measured_beside(cores(), menus(1e-9, 1e-9, 1e-9), WORKLOADS, (), "near", TuningBudget(100.0)) == []
    assert asked.keys == []


def test_records_of_another_target_say_nothing() -> None:
    other = next(profile for profile in PROFILES if not profile.is_here)
    assert lane_costs(None, [pair("a", 0.1)], other, SETTING, ["a"]).beside == {}
