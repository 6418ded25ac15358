from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.devices.cpu.target import this_machine
from compiler.ir.machine import Record, Setting
from compiler.ir.plans.lanes import LaneCosts
from compiler.knowledge.kinds import HANDOVER
from compiler.steps.costs.lanes import (
    USUAL,
    WAKE_SECONDS,
    byte_seconds,
    elsewhere,
    handovers,
    lane_costs,
    synchronisation_seconds,
    upgrade_seconds,
)

TARGET = replace(this_machine(), lanes=2)
SETTING = Setting("cache", "gcc 12")


def handed_over(ns: float, **variant: object) -> Record:
    seconds = (1e-9 * ns, 1e-9 * ns, 1e-9 * ns)
    return Record(HANDOVER.name, HANDOVER.name, "", "", TARGET.name, TARGET.hardware, variant, 2, *seconds, 1)


def test_lanes_cost_what_the_record_says() -> None:
    near = lane_costs(handed_over(50.0, byte_s=5e-12, upgrade_s=2e-11))
    assert near.split_s == pytest.approx(2 * 50e-9 + WAKE_SECONDS)
    assert (near.byte_s, near.upgrade_s) == (5e-12, 2e-11)
    assert lane_costs(handed_over(200.0)) == LaneCosts(2 * 200e-9 + WAKE_SECONDS)
    assert lane_costs(None) == LaneCosts(synchronisation_seconds(None))


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
    of_a_pair = handed_over(400.0, pair=[0, 1])
    assert handovers([*records, of_a_pair], TARGET) == handovers(records, TARGET), "it is no figure of the machine"


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
