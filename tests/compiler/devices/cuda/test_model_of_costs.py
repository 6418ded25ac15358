"""Loads of launches by the model of costs: weights that come from memory, and code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.devices.cuda import model
from compiler.devices.cuda.model import Need
from compiler.devices.cuda.target import PROFILES

L4 = next(one for one in PROFILES if one.name == "cuda:sm_89")


def test_a_launch_takes_as_long_as_its_weights_take_to_come_from_memory() -> None:
    alone = model.seconds(1000.0, L4)
    plain = model.load([(alone, 58)], 1.0, L4)
    assert plain.work_s == pytest.approx(1e-6)
    loaded = model.load([(alone, 58)], 1.0, L4, weights=3e6)
    assert loaded.work_s == pytest.approx(3e6 / 300 * 1e-9)
    assert (loaded.gap_s, loaded.start_s) == (plain.gap_s, plain.start_s)
    assert model.load([(alone, 58)], 1.0, L4, weights=3e4).work_s == plain.work_s


def test_code_is_charged_by_the_kib_and_by_what_the_target_says() -> None:
    one = model.code_of("text", 4096, replace(L4, code_ns=100.0))
    assert (one.name, one.bytes, one.kept) == ("text", 4096, 128 << 10)
    assert one.seconds == pytest.approx(400e-9)
    assert model.load([(1e-5, 1)], 1.0, L4, code=[one]).code == (one,)


def test_resident_blocks_wait_for_weights_from_memory_and_hand_over_as_the_target_says() -> None:
    need = Need(model.seconds(1000.0, L4), 58, 128, 64, 0)
    plain, loaded = (model.resident([replace(need, weights=size)], 128, 0, L4) for size in (0.0, 3e6))
    assert plain is not None
    assert loaded is not None
    assert (plain.calls[0].busy_s, loaded.calls[0].busy_s) == pytest.approx((1e-6, 1e-5))
    slow = model.resident([need], 128, 0, replace(L4, handover_ns=5000.0))
    assert slow is not None
    assert slow.handover_s == pytest.approx(5e-6)
