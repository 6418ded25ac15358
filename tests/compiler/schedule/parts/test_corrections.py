"""Divisions corrected by what parts of them took, against seconds that are known."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from compiler.ir.plans.parts import Part, Parts, Turns
from compiler.schedule.parts.corrections import Ran, corrected
from compiler.schedule.parts.dividing import seconds_of, stages_of
from compiler.schedule.solvers.ideals import Division, Tensor
from compiler.schedule.solvers.least_load import equal_devices
from tests.compiler.schedule.solvers.test_least_load import random_division
from tests.seeds import each

CHAIN = Division([(), (0,), (1,)], [[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]])
NAMES = ("cpu:0", "cpu:1")


def parts_of(*stages: tuple[int, tuple[int, ...]]) -> Parts:
    return Parts(NAMES, tuple(Part(device, calls) for device, calls in stages), (), "by hand")


def test_without_runs_nothing_is_corrected() -> None:
    assert corrected(CHAIN, []) is CHAIN


def test_calls_take_what_their_part_took_and_others_as_much_longer_as_their_device() -> None:
    ran = Ran(parts_of((0, (0, 1)), (1, (2,))), [6.0, 3.0])
    assert corrected(CHAIN, [ran]).seconds == [[2.0, 4.0, 6.0], [3.0, 3.0, 3.0]]


def test_a_device_that_had_nothing_is_as_far_off_as_the_others() -> None:
    assert corrected(CHAIN, [Ran(parts_of((0, (0, 1, 2))), [9.0])]).seconds == [[1.5, 3.0, 4.5], [3.0, 3.0, 3.0]]


def test_of_several_runs_the_last_counts_for_its_calls_and_all_for_the_device() -> None:
    first, second = Ran(parts_of((0, (0, 1))), [6.0]), Ran(parts_of((0, (1,))), [1.0])
    assert corrected(CHAIN, [first, second]).seconds[0] == pytest.approx([2.0, 1.0, 3.0 * 7 / 5])


def test_equal_devices_stay_equal_while_their_parts_are_alike_and_know_what_each_had() -> None:
    equal = replace(CHAIN, seconds=[[1.0, 2.0, 3.0]] * 2)
    turns = Turns(2, (0,)), Turns(2, (1,))
    both = Parts(NAMES, tuple(Part(at, (0, 1, 2), turns=one) for at, one in enumerate(turns)), (), "by hand")
    alike = corrected(equal, [Ran(both, [6.0, 6.5])])
    assert alike.seconds[0] == pytest.approx([6.25 / 6, 12.5 / 6, 18.75 / 6])
    assert len(equal_devices(alike)) == 1
    apart = corrected(equal, [Ran(both, [6.0, 6.7])])
    assert apart.seconds[0] == pytest.approx([1.0, 2.0, 3.0])
    assert apart.seconds[1] == pytest.approx([6.7 / 6, 13.4 / 6, 20.1 / 6])
    staged = corrected(equal, [Ran(parts_of((0, (0, 1)), (1, (2,))), [3.0, 3.15])])
    assert staged.seconds[0] == pytest.approx([1.0, 2.0, 3.15])
    assert len(equal_devices(staged)) == 1
    third = replace(equal, seconds=[[1.0, 2.0, 3.0]] * 3)
    names = (*NAMES, "cpu:2")
    found = corrected(third, [Ran(replace(parts_of((0, (0,)), (1, (1,))), devices=names), [2.0, 4.0])])
    assert found.seconds[2] == pytest.approx([2.0, 4.0, 6.0]), "also one that had nothing"
    assert len(equal_devices(found)) == 1


def test_a_part_that_did_no_frame_says_nothing() -> None:
    assert corrected(CHAIN, [Ran(parts_of((0, (0,)), (1, (1, 2))), [0.0, 8.0])]).seconds[1] == [4.0, 4.0, 4.0]
    assert corrected(CHAIN, [Ran(parts_of((0, (0, 1, 2))), [0.0])]) is CHAIN


def test_reading_what_another_device_wrote_is_part_of_what_was_foreseen() -> None:
    division = replace(CHAIN, tensors=[Tensor(4, 0b010, 0b100)], byte_s=0.5)
    ran = Ran(parts_of((0, (0, 1)), (1, (2,))), [3.0, 8.0])
    assert seconds_of(division, stages_of(ran.parts)) == [3.0, 4.0]
    assert corrected(division, [ran]).seconds[1][2] == 4.0


def test_the_busiest_device_has_most_by_the_frames_that_it_does() -> None:
    turns = Turns(4, (0, 1, 3)), Turns(4, (2,))
    parts = Parts(NAMES, tuple(Part(at, (0, 1, 2), turns=one) for at, one in enumerate(turns)), (), "by hand")
    assert Ran(parts, [2.0, 8.0]).busiest_s == 2.0
    assert Ran(parts, [4.0, 8.0]).busiest_s == 3.0


@each(range(40))
def test_corrected_by_a_run_the_run_is_predicted_as_it_was(seed: int) -> None:
    """Where handing over is free: what is read of other devices is not made slower with the calls."""
    random = Random(seed)
    division = replace(random_division(random), byte_s=0.0)
    devices = [random.randrange(len(division.seconds)) for _ in division.before]
    parts = parts_of(*((device, (call,)) for call, device in enumerate(devices)))
    took = [random.uniform(0.5, 3.0) for _ in devices]
    found = corrected(division, [Ran(parts, took)])
    assert seconds_of(found, stages_of(parts)) == pytest.approx(took)


def test_the_caller_is_on_the_core_with_least_to_do_and_takes_what_it_took_last() -> None:
    parts = parts_of((0, (0, 1)), (1, (2,)))
    assert Ran(parts, [4.0, 2.5], 1.0).busiest_s == 4.0
    assert Ran(parts, [4.0, 2.5], 2.0).busiest_s == 4.5
    assert Ran(replace(parts, apart=(1,)), [4.0, 2.5], 2.0).busiest_s == 6.0, "a device that is no core has no caller"
    shared = replace(CHAIN, caller_s=0.25)
    assert corrected(shared, [Ran(parts, [4.0, 2.5])]).caller_s == 0.25
    assert corrected(shared, [Ran(parts, [4.0, 2.5], 1.0), Ran(parts, [4.0, 2.5], 2.0)]).caller_s == 2.0


def test_a_frame_by_itself_takes_what_parts_took_so_and_in_flight_all_is_as_without_it() -> None:
    slowed = replace(CHAIN, slowdown=[1.5, 1.0])
    parts, took = parts_of((0, (0, 1)), (1, (2,))), [9.0, 3.0]
    found, without = corrected(slowed, [Ran(parts, took, alone=[4.5, 2.0])]), corrected(slowed, [Ran(parts, took)])
    assert found.slowdown == pytest.approx([2.0, 1.5])
    assert found.seconds[0] == pytest.approx([1.5, 3.0, 4.5])
    assert found.seconds[1] == pytest.approx([2.0, 2.0, 2.0])
    for own, other in zip(found.in_flight.seconds, without.in_flight.seconds, strict=True):
        assert own == pytest.approx(other)
    unknown = [Ran(parts, took, alone=[4.5, 2.0]), Ran(parts, took)]
    assert corrected(slowed, unknown).slowdown == slowed.slowdown
    assert corrected(slowed, [Ran(parts, took, alone=[0.0, 0.0])]).slowdown == slowed.slowdown
    copied = Ran(replace(parts, apart=(1,)), took, alone=[4.5, 2.0])
    assert corrected(slowed, [copied]).slowdown == slowed.slowdown, "of copies it is not known"


def test_of_several_runs_each_call_is_slowed_down_as_in_its_own_and_the_whole_as_all_of_them() -> None:
    """The last run had one call alone, which was faster in flight than by itself."""
    flat = replace(CHAIN, seconds=[[2.0, 2.0, 2.0]] * 2)
    first = Ran(parts_of((0, (0, 1, 2))), [12.0], alone=[6.0])
    second = Ran(parts_of((0, (2,))), [2.0], alone=[4.0])
    found = corrected(flat, [first, second])
    assert sum(found.seconds[0]) == pytest.approx(2.0 + 2.0 + 4.0)
    assert found.in_flight.seconds[0] == pytest.approx([4.0, 4.0, 2.0])


def test_equal_devices_are_slowed_down_alike_where_their_parts_were() -> None:
    equal = replace(CHAIN, seconds=[[1.0, 2.0, 3.0]] * 2)
    turns = Turns(2, (0,)), Turns(2, (1,))
    both = Parts(NAMES, tuple(Part(at, (0, 1, 2), turns=one) for at, one in enumerate(turns)), (), "by hand")
    found = corrected(equal, [Ran(both, [6.6, 6.6], alone=[6.0, 5.9])])
    assert len(equal_devices(found.in_flight)) == 1
    assert found.slowdown[0] == found.slowdown[1] == pytest.approx(6.6 / 5.95)
    assert found.seconds[0] == found.seconds[1]
