"""What kernels should take and need that share a launch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from compiler.devices.cuda.model import BLOCK_NS, load, seconds
from compiler.devices.cuda.target import resolve
from compiler.schedule.gpu.launch_load import LaunchLoad

H200 = resolve("cuda:sm_90")
SMALL, FULL = H200.multiprocessors // 4, H200.multiprocessors


def together(kernels: Sequence[tuple[float, int]]) -> LaunchLoad:
    return load(kernels, 0.5, H200)


def test_a_kernel_alone_keeps_as_many_multiprocessors_at_work_as_it_has_blocks() -> None:
    one = together([(seconds(3000.0, H200), SMALL)])
    assert (one.gap_s, one.start_s, one.work_s) == pytest.approx((1e-9 * H200.launch_ns, 1e-9 * BLOCK_NS, 3e-6))
    assert one.seconds == pytest.approx(seconds(3000.0, H200))
    assert one.slots == 0.5
    assert one.share == pytest.approx(0.25)
    assert together([(seconds(3000.0, H200), 5 * FULL)]).share == 1.0
    assert load([(seconds(0.0, H200), FULL)], 3.0, H200).slots == 1.0


def test_small_kernels_together_take_as_long_as_the_longest() -> None:
    one, other = (seconds(3000.0, H200), SMALL), (seconds(1000.0, H200), SMALL)
    assert together([one, other]).seconds == pytest.approx(one[0])
    assert together([one, other]).share == pytest.approx((3 + 1) / 4 / 3)


def test_kernels_that_fill_the_device_take_what_all_their_work_takes_and_one_launch() -> None:
    one, other = (seconds(3000.0, H200), FULL), (seconds(1000.0, H200), 5 * FULL)
    assert together([one, other]).seconds == pytest.approx(seconds(4000.0, H200))
    assert together([one, other]).share == pytest.approx(1.0)
    half = (other[0], FULL // 2)
    assert together([one, half]).seconds == pytest.approx(seconds(3500.0, H200))


def test_what_was_measured_to_take_less_than_a_launch_has_no_work() -> None:
    early = together([(1e-9, FULL)] * 3)
    assert early.seconds == pytest.approx(1e-9)
    assert (early.work_s, early.share) == (0.0, 0.0)
