"""What kernels should take that share a launch."""

from __future__ import annotations

import pytest

from compiler.targets.cuda import resolve
from compiler.tile.algorithms.cuda.model import seconds, seconds_together

H200 = resolve("cuda:sm_90")
SMALL, FULL = H200.multiprocessors // 4, H200.multiprocessors


def test_small_kernels_together_take_as_long_as_the_longest() -> None:
    one, other = (seconds(3000.0, H200), SMALL), (seconds(1000.0, H200), SMALL)
    assert seconds_together([one, other], H200) == pytest.approx(one[0])
    assert seconds_together([one], H200) == pytest.approx(one[0])


def test_kernels_that_fill_the_device_take_what_all_their_work_takes_and_one_launch() -> None:
    one, other = (seconds(3000.0, H200), FULL), (seconds(1000.0, H200), 5 * FULL)
    assert seconds_together([one, other], H200) == pytest.approx(seconds(4000.0, H200))
    half = (other[0], FULL // 2)
    assert seconds_together([one, half], H200) == pytest.approx(seconds(3500.0, H200))


def test_what_was_measured_to_take_less_than_a_launch_has_no_work() -> None:
    assert seconds_together([(1e-9, FULL)] * 3, H200) == pytest.approx(seconds(0.0, H200))
