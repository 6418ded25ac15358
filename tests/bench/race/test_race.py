from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from bench.engines.child import Turn
from bench.race import race as racing
from bench.race.cores import Probe, held_to, probe
from bench.race.race import MOST_ROUNDS, Contender, Race, race
from bench.zoo import build
from compiler.ir.plans.lanes import Handover
from tilewright.arrays import write_npz
from tilewright.errors import UsageError

FAST, SLOW = 1e9, 1e8
CALM = Turn((1.0,), 0.0)


class Run(Protocol):
    def __call__(
        self, turns: dict[str, list[Turn]], rounds: int, *, rates: Sequence[float] = (), threads: int = 1
    ) -> Race: ...


class FakeEngine:
    """Answers with the turns that it was given; every one beyond them is calm."""

    opened = 0

    def __init__(self, name: str, turns: Sequence[Turn], outputs: Path) -> None:
        self.name = name
        self.turns = list(turns)
        self.outputs = outputs

    def __enter__(self) -> FakeEngine:
        FakeEngine.opened += 1
        write_npz(self.outputs, {"y": np.ones(1)})
        return self

    def __exit__(self, *reason: object) -> None:
        pass

    def turn(self, seconds: float) -> Turn:
        return self.turns.pop(0) if self.turns else CALM


class FakeProbe:
    """Cores of a rate for each probe; fast beyond those given."""

    def __init__(self, rates: Sequence[float] = ()) -> None:
        self.rates = list(rates)
        self.states = iter(range(1000))

    def rate(self, threads: int) -> float:
        return self.rates.pop(0) if self.rates else FAST

    def handover(self) -> Handover:
        return Handover.of(50.0 if next(self.states) % 2 else 150.0)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """A race of fake engines: their turns by name, the rounds wanted, what the probes say."""
    monkeypatch.setattr(racing, "REST_S", 0.0)
    FakeEngine.opened = 0

    def go(turns: dict[str, list[Turn]], rounds: int, *, rates: Sequence[float] = (), threads: int = 1) -> Race:
        engines = {name: FakeEngine(name, given, Path()) for name, given in turns.items()}

        def engine(contender: Contender, folder: Path, threads: int, precision: str) -> FakeEngine:
            engines[contender.engine].outputs = folder / f"{contender.engine}.npz"
            return engines[contender.engine]

        monkeypatch.setattr(racing, "_engine", engine)
        monkeypatch.setattr(racing, "held_to", lambda threads: held_to(1))
        contenders = [Contender(name, Path()) for name in turns]
        return race(contenders, {}, threads, FakeProbe(rates), rounds=rounds)  # type: ignore[arg-type]

    return go


def test_all_engines_take_one_turn_in_each_round_and_are_started_anew(run: Run) -> None:
    result = run({"a": [], "b": []}, 6)
    assert {name: len(turns) for name, turns in result.seconds.items()} == {"a": 6, "b": 6}
    assert (result.discarded, result.calm) == (0, True)
    assert FakeEngine.opened == 2 * racing.SITTINGS


def test_a_round_in_which_an_engine_waited_for_a_core_is_held_again(run: Run) -> None:
    held_up = Turn((9.0,), 1.0)
    result = run({"a": [CALM, held_up], "b": []}, 4)
    assert result.discarded == 1
    assert [turn for turn in result.seconds["a"] if turn == (9.0,)] == []
    assert len(result.seconds["a"]) == len(result.seconds["b"]) == 4


def test_a_round_in_which_the_cores_were_slow_is_held_again(run: Run) -> None:
    per_round = 4
    rates = [FAST] * per_round + [FAST, FAST, SLOW, FAST]
    result = run({"a": [CALM, Turn((5.0,), 0.0)], "b": []}, 5, rates=rates)
    assert result.discarded == 1
    assert (5.0,) not in result.seconds["a"]
    assert result.peak == FAST


def test_a_race_among_others_ends_and_says_so(run: Run) -> None:
    result = run({"a": [Turn((1.0,), 0.5)] * 100}, 3)
    assert not result.calm
    assert len(result.seconds["a"]) == MOST_ROUNDS * 3


def test_who_begins_changes_from_round_to_round(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def turn(engine: FakeEngine, seconds: float) -> Turn:
        order.append(engine.name)
        return CALM

    monkeypatch.setattr(FakeEngine, "turn", turn)
    run({"a": [], "b": [], "c": []}, 3)
    assert "".join(order) == "abcbcacab"


def test_the_state_of_the_cores_is_told_for_more_than_one_thread(run: Run) -> None:
    assert run({"a": []}, 3).state is None
    two = run({"a": []}, 4, threads=2)
    assert (two.state, two.handover_ns) == ("moved", 100.0)
    assert [[one.state for one in both] for both in two.handovers] == [["far", "near"]] * 4
    assert two.peak == 2 * FAST


def test_rounds_count_for_a_state_that_began_and_ended_in_it() -> None:
    near, far = Handover.of(50.0), Handover.of(150.0)
    seconds = {"a": ((1.0,), (2.0,), (3.0,), (4.0,)), "b": ((4.0,), (3.0,), (1.0,), (1.0,))}
    both = Race(2, seconds, {}, 0, True, 1.0, ((near, near), (near, far), (far, far), (far, far)))
    assert (alone := both.during("near")) is not None
    assert (alone.seconds, alone.state, alone.best(["a", "b"])) == ({"a": ((1.0,),), "b": ((4.0,),)}, "near", "a")
    assert (apart := both.during("far")) is not None
    assert (apart.medians("a"), apart.best(["a", "b"]), apart.best([])) == ([3.0, 4.0], "b", None)
    assert alone.during("far") is None


def test_who_is_fast_in_one_round_alone_is_not_the_fastest_for_having_more_runs_in_it() -> None:
    seconds = {"steady": ((2.0,), (2.0,), (2.0,)), "lucky": ((1.0,) * 9, (9.0,), (9.0,))}
    assert Race(1, seconds, {}, 0, True, 1.0).best(["steady", "lucky"]) == "steady"


def test_engines_and_probes_are_held_to_as_many_cores_as_threads() -> None:
    before = os.sched_getaffinity(0)
    with held_to(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before
    with pytest.raises(UsageError, match=f"{len(before) + 1} threads on {len(before)} cores"), held_to(len(before) + 1):
        pass


@pytest.fixture(scope="module")
def probes() -> Iterator[Probe]:
    with probe() as built:
        yield built


def test_probes_tell_how_fast_the_cores_are(probes: Probe) -> None:
    assert probes.rate(1) > 1e8, "any machine that can run this does a hundred million multiply-adds a second"
    if len(os.sched_getaffinity(0)) > 1:
        assert probes.handover().ns > 0


def test_the_same_engine_gives_the_same_outputs_as_itself(probes: Probe, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(build("tiny_mobile").SerializeToString())
    image = np.random.default_rng(0).standard_normal((1, 3, 32, 32), np.float32)
    result = race([Contender("onnxruntime", tmp_path / "m.onnx")], {"image": image}, 1, probes, rounds=1, turn_s=0.01)
    ratio = result.ratio("onnxruntime", "onnxruntime")
    assert (ratio.value, ratio.low, ratio.high) == (1.0, 1.0, 1.0)
    assert [array.size for array in result.outputs["onnxruntime"].values()] == [10]
    assert result.ms("onnxruntime").median > 0
