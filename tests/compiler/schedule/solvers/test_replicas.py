"""Turns of replicas against brute force."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from compiler.ir.plans.parts import Turns
from compiler.schedule.solvers.ideals import Division
from compiler.schedule.solvers.replicas import MOST_TURNS, WORTH, dealt, replicated
from tests.seeds import each


@each(range(60))
def test_turns_come_near_to_the_best_of_all_rounds(seed: int) -> None:
    random = Random(seed)
    seconds = [random.uniform(1.0, 6.0) for _ in range(random.randint(2, 4))]
    turns = dealt(seconds)
    every = turns[0].every
    assert sorted(turn for one in turns for turn in one.own) == [*range(every)]
    load = max(one.share * own for one, own in zip(turns, seconds, strict=True))
    rounds = product(range(1, MOST_TURNS + 1), repeat=len(seconds))
    best = min(
        max(count * own for count, own in zip(counts, seconds, strict=True)) / sum(counts)
        for counts in rounds
        if sum(counts) <= MOST_TURNS
    )
    assert best <= load * (1 + 1e-12)
    assert load * WORTH <= best * (1 + 1e-12)


def test_equal_devices_have_a_turn_each_and_faster_ones_more_spread_over_the_round() -> None:
    assert dealt([2.0, 2.0, 2.0]) == (Turns(3, (0,)), Turns(3, (1,)), Turns(3, (2,)))
    assert dealt([1.0, 3.0]) == (Turns(4, (0, 1, 3)), Turns(4, (2,)))
    assert dealt([1.0]) == (Turns(),)
    assert dealt([0.0, 0.0]) == (Turns(2, (0,)), Turns(2, (1,)))


@pytest.mark.parametrize(("frame", "before"), [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (9, 7)])
def test_turns_before_a_frame_are_counted_over_rounds(frame: int, before: int) -> None:
    assert Turns(4, (0, 1, 3)).before(frame) == before


def test_the_fastest_devices_are_the_first_to_have_the_whole_model() -> None:
    division = Division([(), (0,)], [[3.0, 1.0], [9.0, 9.0], [1.0, 1.0]])
    assert replicated(division) == [((0, 3), (2, 3)), ((0, 3), (1, 3), (2, 3))]
