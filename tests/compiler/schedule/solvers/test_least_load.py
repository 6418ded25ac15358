"""Ideals and pipelines against brute force over small random graphs."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from compiler.schedule.solvers.ideals import Division, Tensor, ideals
from compiler.schedule.solvers.least_load import least_load
from compiler.schedule.solvers.sets import bits
from tests.seeds import each


def random_division(random: Random, most: int = 7) -> Division:
    """Calls with up to three predecessors on two or three devices, whole seconds; taking over may cost something."""
    count, devices = random.randint(1, most), random.randint(1, 3)
    before = [
        tuple(sorted(random.sample(range(call), min(call, random.choice((0, 1, 1, 2)))))) for call in range(count)
    ]
    seconds = [[float(random.randint(1, 9)) for _ in before] for _ in range(devices)]
    tensors = [
        Tensor(random.randint(0, 4), 1 << call, readers)
        for call in range(count)
        if (readers := sum(1 << one for one in range(count) if call in before[one]))
    ]
    return Division(before, seconds, tensors, random.choice((0.0, 0.5)), random.choice((0.0, 0.25)))


def is_closed(division: Division, calls: int) -> bool:
    return all(calls >> one & 1 for call in bits(calls) for one in division.before[call])


def every_ideal(division: Division) -> list[int]:
    return [calls for calls in range(division.whole + 1) if is_closed(division, calls)]


def loads(division: Division, done: int, free: frozenset[int]) -> Iterator[float]:
    """The largest load of every way to do what is left in stages on devices that are free."""
    if done == division.whole:
        yield 0.0
    for ideal in every_ideal(division):
        if ideal & done != done or ideal == done:
            continue
        for device in free:
            own = division.taking_over_s(done) + division.work_s(device, ideal & ~done)
            yield from (max(own, rest) for rest in loads(division, ideal, free - {device}))


@each(range(60))
def test_ideals_are_all_sets_that_hold_what_their_calls_read(seed: int) -> None:
    division = random_division(Random(seed))
    found = ideals(division.before, 1 << 7)
    assert len({*found}) == len(found)
    assert {*found} == {*every_ideal(division)}


@each(range(20))
def test_too_many_ideals_leave_prefixes(seed: int) -> None:
    division = random_division(Random(seed))
    found = ideals(division.before, 1)
    prefixes = {(1 << count) - 1 for count in range(len(division.before) + 1)}
    assert prefixes <= {*found} <= {*every_ideal(division)}


@each(range(80))
def test_no_pipeline_has_a_smaller_largest_load(seed: int) -> None:
    division = random_division(Random(seed), most=6)
    stages, load = least_load(division)
    assert load == min(loads(division, 0, frozenset(range(len(division.seconds)))))
    done, reached = 0, 0.0
    for device, calls in stages:
        assert calls
        assert not done & calls
        reached = max(reached, division.taking_over_s(done) + division.work_s(device, calls))
        done |= calls
        assert is_closed(division, done)
    assert done == division.whole
    assert reached == load
    assert len({device for device, _ in stages}) == len(stages)


def test_a_device_that_would_slow_the_pipeline_down_has_nothing() -> None:
    stages, load = least_load(Division([(), (0,)], [[1.0, 1.0], [9.0, 9.0]]))
    assert stages == ((0, 0b11),)
    assert load == 2.0


def test_halves_of_a_chain_go_to_two_equal_devices() -> None:
    stages, load = least_load(Division([(), (0,), (1,), (2,)], [[1.0] * 4, [1.0] * 4]))
    assert load == 2.0
    assert sorted(calls for _, calls in stages) == [0b0011, 0b1100]
