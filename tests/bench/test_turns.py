from __future__ import annotations

import itertools

import numpy as np

from bench.turns import LEAST_S, taken_in_turns


def test_each_way_has_its_turn_in_every_round_and_two_runs_do_not_count() -> None:
    ticks = itertools.count()
    turns: list[int] = []
    times = taken_in_turns([lambda: turns.append(0), lambda: turns.append(1)], 3, lambda: float(next(ticks)))
    assert [len(own) for own in times] == [3, 3]
    assert turns == [0, 0, 1, 1, 0, 1, 1, 0, 0, 1]


def test_a_short_run_is_repeated_until_a_turn_lasts() -> None:
    now = 0.0
    runs = [0, 0]

    def lasts(way: int, seconds: float) -> None:
        nonlocal now
        now += seconds
        runs[way] += 1

    times = taken_in_turns([lambda: lasts(0, LEAST_S / 5), lambda: lasts(1, 2 * LEAST_S)], 2, lambda: now)
    assert runs == [2 + 2 * 5, 2 + 2]
    np.testing.assert_allclose(times, [[LEAST_S / 5] * 2, [2 * LEAST_S] * 2])
