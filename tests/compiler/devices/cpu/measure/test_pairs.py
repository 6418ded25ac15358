from __future__ import annotations

import os
import threading
from itertools import combinations
from pathlib import Path

import pytest

from compiler.devices.cpu.measure.pairs import at_once, places_of, rounds_of
from compiler.devices.cpu.target import this_machine
from compiler.ir.machine import Record
from compiler.ir.plans.lanes import Handover, Pair
from compiler.knowledge.making import handover_record
from tests.servers import GUARD_S


def apart(*cores: int) -> dict[int, str]:
    return {core: str(core) for core in cores}


@pytest.mark.parametrize(("count", "rounds"), [(2, 1), (3, 3), (4, 3), (5, 5), (6, 5), (7, 7), (8, 7)])
def test_every_pair_has_its_turn_once_in_as_few_rounds_as_there_can_be(count: int, rounds: int) -> None:
    cores = [3 * at + 1 for at in range(count)]
    found = rounds_of(cores, apart(*cores))
    assert len(found) == rounds
    assert sorted(pair for each in found for pair in each) == sorted(combinations(cores, 2))
    for each in found:
        busy = [core for pair in each for core in pair]
        assert len(busy) == len({*busy})


def test_threads_of_one_core_are_not_at_work_for_two_pairs_at_a_time() -> None:
    places = {at: f"core {at % 4}" for at in range(8)}
    found = rounds_of(range(8), places)
    assert sorted(pair for each in found for pair in each) == sorted(combinations(range(8), 2))
    assert len(found) < 28
    for each in found:
        held = [{places[core] for core in pair} for pair in each]
        assert sum(map(len, held)) == len(set().union(*held))


def test_a_core_lies_where_the_system_lists_its_threads(tmp_path: Path) -> None:
    first = min(os.sched_getaffinity(0))
    listed = tmp_path / f"cpu{first}" / "topology" / "thread_siblings_list"
    listed.parent.mkdir(parents=True)
    listed.write_text("0,64\n")
    assert places_of([0, 900], tmp_path) == {0: "0,64", 900: "900"}, "a core that this process has not is by itself"
    listed.unlink()
    assert places_of([0], tmp_path) == {0: str(first)}


def test_pairs_of_a_round_are_measured_at_the_same_time() -> None:
    """Neither ends before both have begun."""
    begun = threading.Barrier(2)

    def measured(pair: Pair) -> Record | None:
        begun.wait(timeout=GUARD_S)
        return handover_record(Handover.of(50.0), this_machine(), pair) if pair != (2, 3) else None

    found = at_once([(0, 1), (2, 3)], measured)
    assert [*found] == [(0, 1)]
    assert found[0, 1].variant["pair"] == [0, 1]


def test_what_a_measurement_raises_is_raised() -> None:
    def measured(pair: Pair) -> Record | None:
        raise ValueError(f"no threads for {pair}")

    with pytest.raises(ValueError, match="no threads"):
        at_once([(0, 1)], measured)
