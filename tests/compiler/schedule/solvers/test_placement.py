"""Placements for latency against brute force over small random graphs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from random import Random

import pytest

from compiler.schedule.solvers.ideals import Crossing, Division, Tensor
from compiler.schedule.solvers.placement import Forks, placement
from compiler.schedule.solvers.sets import bits
from tests.compiler.schedule.solvers.test_least_load import (
    is_closed,
    random_division,
    taking_over_s,
    with_copies,
    with_pairs,
)
from tests.seeds import each


def least(division: Division) -> float:
    """Over every sequence of moves, calls and forks, calls of a fork given to devices one by one."""
    homes = range(len(division.seconds))

    @cache
    def left(done: int, home: int, may_move: bool) -> float:
        if done == division.whole:
            return 0.0
        found = []
        if may_move:
            moves = [(other, taking_over_s(division, done, home, other)) for other in homes if other != home]
            found += [seconds + left(done, other, False) for other, seconds in moves]
        rest = bits(division.whole & ~done)
        for chosen in product((None, *homes), repeat=len(rest)):
            own = {call: on for call, on in zip(rest, chosen, strict=True) if on is not None}
            calls = sum(1 << call for call in own)
            if not calls or not is_closed(division, done | calls):
                continue
            if len(own) == 1:
                if (call := rest[chosen.index(home)] if home in chosen else None) is not None:
                    found.append(division.seconds[home][call] + left(done | calls, home, True))
            elif len({*own.values()}) > 1 and all(
                own[one] == on for call, on in own.items() for one in division.before[call] if one in own
            ):
                stages = tuple(
                    (device, sum(1 << call for call, on in own.items() if on == device)) for device in {*own.values()}
                )
                found.append(Forks(division, done, calls).cost(home, stages)[0] + left(done | calls, home, True))
        return min(found)

    return min(left(0, home, False) for home in homes)


@each(range(40))
def test_a_device_with_a_memory_of_its_own_is_never_worse_than_the_whole_there(seed: int) -> None:
    random = Random(seed)
    division = with_copies(random, random_division(random, most=5))
    stages, seconds = placement(division)
    assert sum(calls for _, calls in stages) == division.whole
    assert seconds <= min(division.part_s(home, division.whole) for home in range(len(division.seconds))) + 1e-9
    if len(stages) == 1:
        assert seconds == pytest.approx(division.part_s(*stages[0]))


@each(range(80))
def test_no_placement_of_these_steps_ends_earlier(seed: int) -> None:
    random = Random(seed)
    division = random_division(random, most=5)
    if seed >= 60:
        division = with_pairs(random, division, most=3)
    stages, seconds = placement(division)
    assert abs(seconds - least(division)) < 1e-9
    done = 0
    for _, calls in stages:
        assert calls
        assert not done & calls
        done |= calls
        assert is_closed(division, done)
    assert done == division.whole
    assert seconds <= min(division.work_s(home, division.whole) for home in range(len(division.seconds))) + 1e-9


def test_two_long_branches_run_at_the_same_time_and_short_ones_do_not() -> None:
    before = [(), (0,), (0,), (1, 2)]
    tensors = [Tensor(0, 1, 0b0110), Tensor(0, 0b0010, 0b1000), Tensor(0, 0b0100, 0b1000)]
    division = Division(before, [[1.0, 8.0, 8.0, 1.0], [1.5, 9.0, 9.0, 1.5]], tensors, handover_s=1.0)
    stages, seconds = placement(division)
    assert seconds == 1.0 + (1.0 + 9.0 + 1.0) + 1.0
    assert sorted(device for device, calls in stages if calls in (0b0010, 0b0100)) == [0, 1]
    short = Division(before, [[1.0, 1.0, 1.0, 1.0], [1.5] * 4], tensors, handover_s=1.0)
    assert placement(short) == (((0, 0b1111),), 4.0)


def test_branches_run_on_two_devices_that_are_near_to_each_other() -> None:
    before, far = [(), (0,), (0,), (1, 2)], Crossing(6.0)
    tensors = [Tensor(1, 0b0001, 0b0110), Tensor(1, 0b0010, 0b1000), Tensor(1, 0b0100, 0b1000)]
    division = Division(before, [[1.0, 8.0, 8.0, 1.0]] * 3, tensors, handover_s=1.0)
    for pairs, used, ends in (
        ([], {0, 1}, 12.0),
        ([(0, 1)], {0, 2}, 12.0),
        ([(0, 1), (0, 2)], {1, 2}, 12.0),
        ([(0, 1), (0, 2), (1, 2)], {0}, 18.0),
    ):
        stages, seconds = placement(replace(division, pairs=dict.fromkeys(pairs, far)))
        assert ({device for device, _ in stages}, seconds) == (used, ends)
