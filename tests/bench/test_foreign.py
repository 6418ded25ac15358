from __future__ import annotations

import numpy as np

from bench.foreign import apart, sound


def test_outputs_are_compared_over_all_runs_and_told_relative_to_the_largest_value() -> None:
    theirs = [[np.array([[2.0, -4.0]], np.float32), np.array([], np.float32)], [np.array([3, 5])]]
    assert apart(theirs, theirs) == 0.0
    ours = [[np.array([[2.0, -3.0]], np.float32), np.array([], np.float32)], [np.array([3, 4])]]
    assert apart(ours, theirs) == 0.25
    assert apart(theirs[:1], theirs) == float("inf")
    assert apart([[theirs[0][0][0], theirs[0][1]], theirs[1]], theirs) == float("inf")


def test_the_sound_is_the_same_each_time_and_no_louder_than_a_sound_may_be() -> None:
    assert sound().shape == (64_000,)
    assert np.array_equal(sound(), sound())
    assert 0.1 < np.abs(sound()).max() <= 1.0
