"""The search on a machine that exists only here, with a clock that moves as it is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from compiler.ir.buffers import Buffer
from compiler.ir.machine import Record, Trial, Workload
from compiler.ir.tile import Level, Tile
from compiler.knowledge.kinds import AGAIN
from compiler.trace import StopRequest, never_stops
from compiler.tuning.proposal import Proposal
from compiler.tuning.search import BATCH, CLOSE, FIRST, FIRST_BATCH, Budget, Contest, Search
from tests.parse import parse_kernel

KERNEL = parse_kernel("kernel Relu(in x: f32[8]; out y: f32[8]) for i:8 y[i] = max(x[i], 0.0:f32)")
WORKLOAD = Workload(
    KERNEL, (Buffer.whole(0, KERNEL.inputs[0].type),), (Buffer.whole(1, KERNEL.outputs[0].type),), (False,)
)


def tile(number: int, algorithm: str = "contraction") -> Tile:
    return Tile(algorithm, (Level("register", (("m", 2**number),)),))


def contest(
    key: str, model: Sequence[float], uses: int = 1, algorithms: Sequence[str] = (), cuts: Sequence[int] = ()
) -> Contest:
    """`cuts` are positions of tiles with two blocks of rows."""
    named = algorithms or ["contraction"] * len(model)
    options = [
        Proposal(tile(at, name), seconds, row_blocks=2 if at in cuts else 1)
        for at, (seconds, name) in enumerate(zip(model, named, strict=True))
    ]
    return Contest(key, WORKLOAD, uses, options)


@dataclass
class Machine:
    """Takes what `truth` says for a key's tiles, by position of the extent.

    The clock moves by `each` for each trial.
    """

    truth: Mapping[str, Sequence[float]]
    luck: Callable[[str, int, int], float] = lambda key, at, time: 1.0
    """(key, position, how often it was measured before): what a measurement is off by."""
    each: float = 1.0
    now: float = 0.0
    asked: list[tuple[str, int]] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    hardware: str = "here"
    lanes: int = 1

    def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
        self.batches.append(len(trials))
        end = self.now + deadline_s
        for trial in trials:
            if self.now >= end:
                return
            at = round(math.log2(trial.tile.extent("register", "m")))
            seconds = self.truth[trial.key][at] * self.luck(trial.key, at, self.asked.count((trial.key, at)))
            self.now += self.each
            self.asked.append((trial.key, at))
            variant = {**trial.tile.to_json(), "lanes": 1}
            yield Record("kernel", trial.key, "", "", "cpu", "here", variant, 1, seconds, seconds, seconds, 9)


def search(
    contests: Sequence[Contest],
    machine: Machine,
    seconds: float = 1e9,
    trials: int | None = None,
    stop_requested: StopRequest = never_stops,
    lanes: int = 1,
) -> tuple[Search, list[Record]]:
    run = Search(contests, machine, Budget(seconds, trials, lambda: machine.now), stop_requested, lanes)
    return run, [record for _, record in run.run()]


def test_the_favourites_of_the_dearest_kernels_come_first() -> None:
    truth = {"cheap": [1.0] * 4, "often": [1.0] * 4, "dear": [5.0] * 4}
    machine = Machine(truth)
    contests = [contest(key, truth[key], uses) for key, uses in (("cheap", 1), ("often", 3), ("dear", 1))]
    search(contests, machine, trials=3 * FIRST)
    assert [key for key, _ in machine.asked[: 3 * FIRST : FIRST]] == ["dear", "often", "cheap"]
    assert {at for key, at in machine.asked if key == "dear"} == set(range(FIRST))


def test_each_algorithm_that_may_win_is_tried_before_a_second_tile_of_another() -> None:
    model = [1.0, 1.1, 1.2, 1.9, 2.1]
    one = contest("k", model, algorithms=["direct", "direct", "direct", "winograd", "gemm"])
    assert one.favourites() == [0, 3, 1]
    machine = Machine({"k": model})
    search([one], machine, trials=FIRST)
    assert machine.asked == [("k", 0), ("k", 3), ("k", 1)]


def test_on_several_lanes_one_of_the_first_gives_each_of_them_rows_of_its_own() -> None:
    model = [1.0, 1.1, 1.2, 1.3, 1.4]
    assert contest("k", model, cuts=[3, 4]).favourites(2) == [0, 1, 3]
    assert contest("k", model, cuts=[1, 4]).favourites(2) == [0, 1, 2]
    assert contest("k", model, cuts=[3, 4]).favourites(3) == [0, 1, 2]
    assert contest("k", model, cuts=[3, 4]).favourites() == [0, 1, 2]
    rivals = contest("k", model, algorithms=["direct", "winograd", "gemm", "direct", "direct"], cuts=[3, 4])
    assert rivals.favourites(2) == [0, 1, 2, 3]


def test_what_has_rows_for_each_lane_and_may_keep_up_with_the_leader_is_measured_where_none_is_known_to() -> None:
    """The favourite of those is slow; the search would have stopped at what saves nothing."""
    truth = {"k": [1.0, 1.05, 3.0, 1.02], "cheap": [1e-4] * 4}
    for lanes, cuts, measured in ((1, [2, 3], False), (2, [2, 3], True), (2, [2], False), (2, [1, 2, 3], False)):
        machine = Machine(truth)
        model = {"k": [1.0, 1.05, 1.1, 9.0], "cheap": [1e-4, 1e-4, 1.0, 9.0]}
        search([contest(key, model[key], cuts=cuts) for key in truth], machine, lanes=lanes)
        assert (("k", 3) in machine.asked) is measured
        assert ("cheap", 3) not in machine.asked


def test_what_has_rows_for_each_lane_is_not_measured_past_its_part_of_the_budget() -> None:
    """Of 200 kernels three tiles each are measured first; a second each."""
    truth = {str(key): [1.0, 1.0, 3.0, 1.0] for key in range(200)}
    machine = Machine(truth)
    contests = [contest(key, [1.0, 1.05, 1.1, 9.0], cuts=[2, 3]) for key in truth]
    search(contests, machine, seconds=800.0, lanes=2)
    late = [key for key, at in machine.asked[:680] if at == 3]
    assert 0 < len(late) == len(set(late)) == 80
    assert len(set(machine.asked)) == 680
    assert machine.now <= 800.0


def test_a_known_tile_is_not_measured_but_counts() -> None:
    one = contest("k", [1.0, 1.1, 1.2, 1.3])
    one.costs[1] = 0.9
    one.proven.add(1)
    machine = Machine({"k": [1.0, 1.1, 1.2, 1.3]})
    search([one], machine)
    assert ("k", 1) not in machine.asked
    assert one.leader == 1


def test_the_rest_of_the_budget_goes_where_most_is_expected() -> None:
    """Of a kernel that takes a thousandth of the time nothing more is measured than its favourites."""
    truth = {"large": [1.0] * 30, "small": [0.001] * 30}
    machine = Machine(truth)
    run, _ = search([contest(key, truth[key]) for key in truth], machine)
    tried = [key for key, _ in set(machine.asked)]
    assert tried.count("small") == FIRST
    assert tried.count("large") > 2 * FIRST
    assert run.exhausted


def test_a_search_ends_when_nothing_promising_is_left() -> None:
    """Tiles that the model thinks three times slower, and that it is right about, are left alone."""
    model = [1.0 + 0.001 * at for at in range(4)] + [3.0] * 60
    machine = Machine({"k": model})
    run, _ = search([contest("k", model)], machine)
    assert run.exhausted
    assert run.measured <= 8


def test_what_was_measured_tells_where_to_look_next() -> None:
    """The model takes all tiles for equal; up to the middle each is 4 % faster than the one before.

    The search climbs without trying all.
    """
    truth = [2.0 * 0.96 ** min(at, 40 - at) for at in range(40)]
    machine = Machine({"k": truth})
    one = contest("k", [1.0] * 40)
    run, _ = search([one], machine)
    assert one.best == min(truth)
    assert run.measured < 25


@pytest.mark.parametrize("seed", range(8))
def test_the_search_comes_within_five_percent_of_the_best_with_few_trials(seed: int) -> None:
    """A model that is off by a fifth, smoothly over tiles and at random: 12 kernels of 100 tiles."""
    random = np.random.default_rng(seed)
    truth, contests = {}, []
    for number in range(12):
        model = np.sort(random.uniform(1.0, 6.0, 100))
        off = np.cumsum(random.normal(0, 0.03, 100)) + random.normal(0, 0.05, 100)
        truth[f"k{number}"] = list(model * np.exp(off))
        contests.append(contest(f"k{number}", list(model)))
    machine = Machine(truth)
    run, _ = search(contests, machine)
    reached = sum(truth[one.key][one.leader] for one in contests) / sum(min(truth[one.key]) for one in contests)
    assert reached < 1.05
    assert run.measured < 0.2 * 1200


def test_nothing_is_measured_past_the_seconds_or_the_trials() -> None:
    truth = {f"k{number}": [1.0] * 50 for number in range(10)}
    contests = [contest(key, truth[key]) for key in truth]
    run, records = search(contests, Machine(truth), trials=17)
    assert (run.measured, run.exhausted) == (17, False)
    assert run.spent == 1.0
    machine = Machine(truth)
    run, records = search([contest(key, truth[key]) for key in truth], machine, seconds=20.0)
    assert machine.now <= 20.0
    assert len(records) == len(machine.asked)
    assert not run.exhausted


def test_the_first_batch_is_small_and_later_ones_no_larger_than_the_time_left() -> None:
    truth = {f"k{number}": [1.0] * 50 for number in range(40)}
    machine = Machine(truth)
    search([contest(key, truth[key]) for key in truth], machine, seconds=100.0)
    assert machine.batches[0] == FIRST_BATCH
    # 15 of 100 seconds are kept for leaders, and a tile takes one.
    assert machine.batches[1:4] == [BATCH, BATCH, 85 - FIRST_BATCH - 2 * BATCH]
    assert machine.now == 100.0


def test_after_a_stop_request_the_search_ends_with_the_batch() -> None:
    truth = {f"k{number}": [1.0] * 50 for number in range(10)}
    machine = Machine(truth)
    run, _ = search(
        [contest(key, truth[key]) for key in truth], machine, stop_requested=lambda: len(machine.asked) >= 3
    )
    assert machine.batches == [FIRST_BATCH]
    assert not run.exhausted


def test_a_leader_by_luck_is_found_out() -> None:
    """Tile 1 was lucky by 5 % when it was first measured; measured again beside its rivals it loses."""
    truth = {"k": [1.0, 1.02, 1.5]}
    machine = Machine(truth, luck=lambda key, at, time: 0.95 if (at, time) == (1, 0) else 1.0)
    one = contest("k", truth["k"])
    _, records = search([one], machine)
    assert one.leader == 0
    again = [record for record in records if record.variant.get(AGAIN)]
    assert {round(math.log2(record.variant["levels"]["register"]["m"])) for record in again} == {0, 1}
    assert one.costs == {0: 1.0, 1: 1.02, 2: 1.5}


def test_a_leader_that_falls_back_is_followed_by_one_that_was_measured_again_too() -> None:
    truth = {"k": [1.0, 1.01, 1.02, 1.03, 1.04, 1.05]}
    machine = Machine(truth, luck=lambda key, at, time: 1.0 if time else 0.9 + 0.001 * at)
    one = contest("k", [1.0] * 6)
    search([one], machine)
    assert one.leader in one.proven
    assert one.leader == 0


def test_a_leader_without_a_rival_and_one_known_from_records_are_not_measured_again() -> None:
    alone, known = contest("alone", [1.0, 1.0, 1.0]), contest("known", [1.0, 1.0])
    known.costs |= {0: 0.5, 1: 0.51}
    known.proven |= {0, 1}
    _, records = search([alone, known], Machine({"alone": [1.0, 1.0 + 2 * (CLOSE - 1), 2.0], "known": [0.5, 0.51]}))
    assert not [record for record in records if record.variant.get(AGAIN)]
    assert {record.workload for record in records} == {"alone"}


def test_a_machine_that_measures_nothing_ends_the_search() -> None:
    class Broken(Machine):
        def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
            yield from ()

    one = contest("k", [1.0] * 20)
    run, records = search([one], Broken({}))
    assert records == []
    assert not one.costs
    assert run.measured == 0


@pytest.mark.parametrize("impossible", [0.0, -1.0, math.nan, math.inf])
def test_what_nobody_can_have_measured_is_no_record_and_no_cost(impossible: float) -> None:
    one = contest("k", [1.0, 1.01, 1.02])
    _, records = search([one], Machine({"k": [0.8, impossible, 0.9]}))
    assert {record.seconds for record in records} == {0.8, 0.9}
    assert one.costs == {0: 0.8, 2: 0.9}
    assert one.leader == 0


def test_hints_decide_who_is_a_favourite_and_cost_nothing() -> None:
    options = [Proposal(tile(at), 1.0 + 0.1 * at) for at in range(5)]
    hinted = Contest("k", WORKLOAD, 1, options, hints={tile(4): 1.0, tile(0): 4.0})
    assert hinted.favourites()[0] == 1
    assert 4 in hinted.favourites()
    assert 0 not in hinted.favourites()
    assert not hinted.costs
