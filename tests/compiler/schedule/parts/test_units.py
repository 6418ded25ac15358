"""Which calls stay together where devices have memories of their own."""

from __future__ import annotations

from random import Random

from compiler.ir.plans.transfers import Transfers
from compiler.schedule.parts.units import units_of
from compiler.schedule.solvers.ideals import Division, Tensor
from compiler.schedule.solvers.sets import bits
from tests.compiler.schedule.solvers.test_least_load import random_division
from tests.seeds import each

APART = Transfers(1.0, 1.0, 1.0, 1.0)


def written_together(before: list[tuple[int, ...]], *writers: int) -> Division:
    tensors = [Tensor(4, one, 0) for one in writers]
    return Division(before, [[1.0] * len(before), [2.0] * len(before)], tensors, transfers=(None, APART))


def test_what_lies_between_two_writers_of_one_storage_stays_with_them() -> None:
    """0 -> 1 -> 2 -> 3, of which 1 and 3 write one storage."""
    units = units_of(written_together([(), (0,), (1,), (2,)], 0b1010))
    assert units.calls == [0b0001, 0b1110]
    assert units.division.before == [[], [0]]
    assert units.division.seconds == [[1.0, 3.0], [2.0, 6.0]]
    assert [one.writers for one in units.division.tensors] == [0b10]
    assert units.expanded([(1, 0b01), (0, 0b10)]) == ((1, 0b0001), (0, 0b1110))


def test_units_that_read_from_each_other_are_one() -> None:
    """0 -> 2 and 3 -> 1; 0 and 1 write one storage, 2 and 3 another."""
    assert units_of(written_together([(), (3,), (0,), ()], 0b0011, 0b1100)).calls == [0b1111]


def test_where_devices_share_a_memory_each_call_is_by_itself() -> None:
    division = Division([(), (0,)], [[1.0, 1.0]], [Tensor(4, 0b11, 0)], transfers=(None,))
    units = units_of(division)
    assert units.division is division
    assert units.calls == [0b01, 0b10]


@each(range(60))
def test_units_hold_each_call_once_all_writers_of_a_storage_and_come_after_what_they_read(seed: int) -> None:
    random = Random(seed)
    division = random_division(random)
    calls = range(len(division.before))
    shared = [Tensor(1, sum(1 << call for call in calls if random.random() < 0.3), 0) for _ in range(2)]
    tensors = [*division.tensors, *(one for one in shared if one.writers)]
    apart = Division(division.before, division.seconds, tensors, transfers=[APART] * len(division.seconds))
    units = units_of(apart)
    done = 0
    for own, before in zip(units.calls, units.division.before, strict=True):
        assert own
        assert not own & done
        assert all((done | own) >> one & 1 for call in bits(own) for one in division.before[call])
        assert sum(units.calls[at] for at in before) & done == sum(units.calls[at] for at in before)
        done |= own
    assert done == division.whole
    for tensor in tensors:
        assert any(tensor.writers & ~own == 0 for own in units.calls)
