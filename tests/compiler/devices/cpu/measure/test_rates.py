from __future__ import annotations

from dataclasses import asdict, fields, replace

import pytest

from compiler.codegen.build import find_toolchain
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.measure.rates import measure_rates, rates_of
from compiler.devices.cpu.measure.timer import TIMER_SOURCE
from compiler.devices.cpu.rates import Rates
from compiler.devices.cpu.target import BF16_DOT, PROFILES, this_machine
from compiler.ir.machine import Record

TARGET = replace(PROFILES[1], hardware="cpu:test/0", lanes=4)


def record(name: str, seconds: float, threads: int = 1) -> Record:
    spread = (seconds, seconds, seconds)
    return Record("machine", name, "machine", "", TARGET.name, TARGET.hardware, {}, threads, *spread, 7)


def known() -> list[Record]:
    seconds = {"fma_per_ns": 0.125e-9, "l1_per_ns": 2e-12, "l2_per_ns": 5e-12, "l3_per_ns": 10e-12}
    seconds |= {"memory_per_ns": 25e-12}
    shared = {"all_l3_per_ns": 20e-12, "all_memory_per_ns": 100e-12}
    return [record(name, s) for name, s in seconds.items()] + [record(name, s, 4) for name, s in shared.items()]


def test_what_all_cores_reach_together_is_told_for_each_of_them() -> None:
    found = rates_of(known(), TARGET)
    assert found is not None
    rates, used = found
    want = Rates(8.0, 500.0, 200.0, 100.0, 40.0, 200.0, 40.0, measured=True)
    assert asdict(rates) == pytest.approx(asdict(want))
    others = {"in_memory", "measured", "dots_per_fma"}
    assert {one.workload for one in used} == {field.name for field in fields(Rates)} - others


def test_dot_products_are_told_in_multiply_adds_where_they_were_measured() -> None:
    found = rates_of([*known(), record("bf16_dot", 0.5e-9)], TARGET)
    assert found is not None
    assert found[0].dots_per_fma == pytest.approx(0.25)
    assert "bf16_dot" in {one.workload for one in found[1]}


def test_the_last_record_of_a_rate_counts_and_those_of_other_machines_do_not() -> None:
    elsewhere = [replace(one, hardware="elsewhere", seconds=1.0) for one in known()]
    again = replace(known()[0], seconds=0.25e-9)
    found = rates_of([*elsewhere, *known(), again], TARGET)
    assert found is not None
    assert found[0].fma_per_ns == pytest.approx(4.0)
    assert rates_of(elsewhere, TARGET) is None
    assert rates_of(known()[1:], TARGET) is None
    assert rates_of([replace(one, kind="kernel") for one in known()], TARGET) is None


def test_this_machine_is_measured_and_the_records_read_back() -> None:
    target = replace(this_machine(), l3_bytes=4 * 1024**2)
    records = measure_rates(build_library({"timer.c": TIMER_SOURCE}, target, find_toolchain()), target)
    found = rates_of([Record.from_json(one.to_json()) for one in records], target)
    assert found is not None
    rates, used = found
    assert used == records
    assert all(rate > 0 for name, rate in asdict(rates).items() if name.endswith("_per_ns"))
    # No level is slower than one far beyond it: ten times as much as any noise.
    assert rates.l1_per_ns > rates.memory_per_ns / 10
    assert {one.threads for one in records} == {1, target.lanes}
    assert (rates.dots_per_fma is not None) == (BF16_DOT in target.features)


def test_constants_arrive_from_where_they_are() -> None:
    rates = Rates(l3_per_ns=100.0, memory_per_ns=40.0)
    assert (rates.weights_per_ns, replace(rates, in_memory=True).weights_per_ns) == (100.0, 40.0)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_rates_of_an_unknown_machine_fall_from_level_to_level(profile) -> None:  # type: ignore[no-untyped-def]
    rates = profile.rates
    assert rates.l1_per_ns > rates.l2_per_ns > rates.memory_per_ns
    assert rates.l3_per_ns > rates.memory_per_ns
