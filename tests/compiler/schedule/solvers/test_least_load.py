"""Ideals and pipelines against brute force over small random graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, groupby
from operator import itemgetter
from random import Random

import pytest

from compiler.ir.plans.transfers import Transfers
from compiler.schedule.solvers import least_load as solver
from compiler.schedule.solvers.ideals import Crossing, Division, Stage, Tensor, ideals
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


def with_pairs(random: Random, division: Division, most: int = 4) -> Division:
    """On up to so many devices, some of them equal, of which some pairs cost each other more, or less, than others."""
    seconds = [random.choice(division.seconds) for _ in range(random.randint(2, most))]
    costs = [Crossing(random.choice((0.0, 2.0)), random.choice((0.0, 1.0))) for _ in range(2)]
    pairs = {pair: random.choice(costs) for pair in combinations(range(len(seconds)), 2) if random.random() < 0.8}
    return replace(division, seconds=seconds, pairs=pairs)


def taking_over_s(division: Division, ideal: int, one: int, other: int) -> float:
    """What a device pays that goes on from an ideal where another one has come: it waits, and reads what crosses."""
    crossing = sum(tensor.bytes for tensor in division.tensors if tensor.writers & ideal and tensor.readers & ~ideal)
    costs = division.pairs.get((min(one, other), max(one, other)), Crossing(division.handover_s, division.byte_s))
    return costs.handover_s + costs.byte_s * crossing if ideal else 0.0


def loads(
    division: Division, done: int, free: frozenset[int], most: int = 1, last: int | None = None
) -> Iterator[float]:
    """The largest load of every way to do what is left in stages, each on at most so many equal devices of the free.

    `last` is the device, or one of those, that had the stage before.
    """
    if done == division.whole:
        yield 0.0
    for ideal in every_ideal(division):
        if ideal & done != done or ideal == done:
            continue
        for count in range(1, most + 1):
            for devices in combinations(sorted(free), count):
                if len({tuple(division.seconds[device]) for device in devices}) > 1:
                    continue
                taken = 0.0 if last is None else taking_over_s(division, done, last, devices[0])
                own = taken + division.part_s(devices[0], ideal & ~done)
                left = loads(division, ideal, free - {*devices}, most, devices[-1])
                yield from (max(own / count, rest) for rest in left)


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
    assert load == pytest.approx(min(loads(division, 0, frozenset(range(len(division.seconds))))))
    assert reached(division, stages) == pytest.approx(load)
    assert len({calls for _, calls in stages}) == len(stages)


@each(range(60))
def test_none_has_where_pairs_of_devices_differ(seed: int) -> None:
    random = Random(seed)
    division = with_pairs(random, random_division(random, most=5))
    stages, load = least_load(division)
    assert load == pytest.approx(min(loads(division, 0, frozenset(range(len(division.seconds))))))
    assert reached(division, stages) == pytest.approx(load)


CHAIN_OF_FOUR = Division(
    [(), (0,), (1,), (2,)],
    [[4.0] * 4] * 4,
    [Tensor(size, 1 << call, 2 << call) for call, size in enumerate((2, 1, 2))],
    handover_s=0.5,
    byte_s=0.25,
)


def test_a_pair_of_devices_that_is_far_does_not_follow_each_other() -> None:
    near, load = least_load(CHAIN_OF_FOUR)
    assert (near, load) == (((0, 0b0001), (1, 0b0010), (2, 0b0100), (3, 0b1000)), 5.0)
    far, load = least_load(replace(CHAIN_OF_FOUR, pairs={(1, 2): Crossing(9.0, 9.0)}))
    assert load == 5.0
    assert [calls for _, calls in far] == [0b0001, 0b0010, 0b0100, 0b1000]
    order = [device for device, _ in far]
    assert sorted(order) == [0, 1, 2, 3]
    assert abs(order.index(1) - order.index(2)) > 1


def test_two_pairs_that_are_near_hand_least_from_one_to_the_other() -> None:
    apart = Crossing(1.0, 1.0)
    across = dict.fromkeys([(0, 2), (0, 3), (1, 2), (1, 3)], apart)
    stages, load = least_load(replace(CHAIN_OF_FOUR, pairs=across))
    assert load == 6.0, "one byte goes across, which waits and reads for 2; two would for 3"
    assert {frozenset(device for device, _ in half) for half in (stages[:2], stages[2:])} == {
        frozenset((0, 1)), frozenset((2, 3))
    }  # fmt: skip


def test_a_device_that_is_far_from_all_others_has_nothing_where_that_costs_more_than_its_work() -> None:
    far = {(device, 3): Crossing(20.0, 0.0) for device in range(3)}
    stages, load = least_load(replace(CHAIN_OF_FOUR, pairs=far))
    assert 3 not in [device for device, _ in stages]
    assert load == 8.0
    assert len(least_load(CHAIN_OF_FOUR)[0]) == 4


def test_of_many_devices_that_are_all_unlike_the_mean_of_pairs_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = {pair: Crossing(0.25 * (1 + at % 3), 0.0) for at, pair in enumerate(combinations(range(8), 2))}
    calls = 8
    chain = Division([(), *((call,) for call in range(calls - 1))], [[4.0] * calls] * 8, pairs=pairs)
    assert least_load(chain)[1] == 4.5, "no two follow each other that cost each other 0.75"
    monkeypatch.setattr(solver, "MOST_STEPS", 1000)
    assert least_load(chain) == least_load(chain.levelled)
    assert chain.levelled.handover_s == pytest.approx(sum(one.handover_s for one in pairs.values()) / len(pairs))


@each(range(40))
def test_none_has_where_devices_have_memories_of_their_own(seed: int) -> None:
    random = Random(seed)
    division = with_copies(random, random_division(random, most=5))
    stages, load = least_load(division)
    assert load == pytest.approx(min(loads(division, 0, frozenset(range(len(division.seconds))))))
    assert reached(division, stages) == pytest.approx(load)


def with_copies(random: Random, division: Division) -> Division:
    """Of some devices; what the first call reads the caller gives, and is given the last ones' results."""
    how = Transfers(0.5, 0.25, random.choice((0.0, 0.125)), 0.25)
    last = [call for call in range(len(division.before)) if not any(call in one for one in division.before)]
    tensors = [*division.tensors, Tensor(3, 0, 1), *(Tensor(2, 1 << call, 0, leaves=True) for call in last)]
    transfers = [random.choice((None, how)) for _ in division.seconds]
    return replace(division, tensors=tensors, transfers=transfers)


@each(range(40))
def test_none_whose_stages_equal_devices_may_share_has_a_smaller_one_either(seed: int) -> None:
    random = Random(seed)
    division = random_division(random, most=5)
    seconds = [random.choice(division.seconds[:2]) for _ in range(random.randint(2, 4))]
    division = replace(division, seconds=seconds)
    stages, load = least_load(division, replicated=True)
    assert load == pytest.approx(min(loads(division, 0, frozenset(range(len(seconds))), most=4)))
    assert reached(division, stages) == pytest.approx(load)
    assert load <= least_load(division)[1]


def reached(division: Division, stages: Sequence[Stage]) -> float:
    """The largest load of a device; the stages must be a division."""
    done, found, last = 0, 0.0, 0
    for calls, replicas in groupby(stages, key=itemgetter(1)):
        devices = [device for device, _ in replicas]
        assert calls
        assert not done & calls
        own = taking_over_s(division, done, last, devices[0]) + division.part_s(devices[0], calls)
        found, last = max(found, own / len(devices)), devices[-1]
        done |= calls
        assert is_closed(division, done)
    assert done == division.whole
    assert len({device for device, _ in stages}) == len(stages)
    return found


def test_a_stage_that_cannot_be_cut_is_shared_by_equal_devices() -> None:
    """A call that only the second kind of device does well, in the middle of others."""
    fast, slow = [1.0, 8.0, 1.0], [9.0, 4.0, 9.0]
    stages, load = least_load(Division([(), (0,), (1,)], [slow, fast, slow, fast]), replicated=True)
    assert stages == ((1, 0b001), (0, 0b010), (2, 0b010), (3, 0b100))
    assert load == 2.0


def test_a_device_that_would_slow_the_pipeline_down_has_nothing() -> None:
    stages, load = least_load(Division([(), (0,)], [[1.0, 1.0], [9.0, 9.0]]))
    assert stages == ((0, 0b11),)
    assert load == 2.0


def test_halves_of_a_chain_go_to_two_equal_devices() -> None:
    stages, load = least_load(Division([(), (0,), (1,), (2,)], [[1.0] * 4, [1.0] * 4]))
    assert load == 2.0
    assert sorted(calls for _, calls in stages) == [0b0011, 0b1100]
