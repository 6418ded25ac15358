"""What an inference takes on several cores, from blocks whose seconds are known."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from compiler.measure import cores
from compiler.measure.cores import CoreSeconds, core_seconds, in_place, on_cores
from tests.servers import GUARD_S

ALLOWED = sorted(os.sched_getaffinity(0))


def test_what_cores_do_to_each_other_is_a_ratio_within_a_round_since_machines_change_their_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speeds = iter((1.0, 3.0, 1.1))
    speed = 1.0

    def block(at: Sequence[int]) -> Mapping[int, float]:
        nonlocal speed
        speed = next(speeds) if list(at) == [0] else speed
        return {core: speed * (1 + core) * (1.25 if len(at) > 1 else 1.0) for core in at}

    monkeypatch.setattr(cores, "SITTINGS", 1)
    found = core_seconds(block, 2)
    assert found is not None
    assert found.alone_s == pytest.approx((1.1, 2.2))
    assert found.together_s == pytest.approx((1.1 * 1.25, 2.2 * 1.25))


def sat(*sittings: Sequence[Sequence[float]]) -> tuple[CoreSeconds | None, list[float]]:
    """What comes of sittings in which rounds have these seconds for each core, and the pauses between them."""
    rounds = iter([seconds for sitting in sittings for seconds in sitting])
    now: Sequence[float] = ()
    pauses: list[float] = []

    def block(at: Sequence[int]) -> Mapping[int, float]:
        nonlocal now
        now = next(rounds) if list(at) == [0] else now
        return {core: now[core] * (1.5 if len(at) > 1 else 1.0) for core in at}

    found = core_seconds(block, 2, pause=pauses.append)
    assert not [*rounds], "all sittings are held"
    return found, pauses


def test_a_core_that_is_slow_for_longer_than_a_sitting_is_measured_again() -> None:
    slow, quiet = [(6.08, 4.7)] * 3, [(4.6, 4.7)] * 3
    for before in ([], [slow], [slow, slow]):
        found, pauses = sat(*before, quiet)
        assert found is not None
        assert found.alone_s == (4.6, 4.7)
        assert found.together_s == pytest.approx((6.9, 7.05))
        assert pauses == [cores.PAUSE_S] * len(before)


def test_rounds_that_differ_are_a_disturbance_too() -> None:
    found, pauses = sat([(4.6, 4.7), (4.6, 4.7), (6.0, 4.7)], [(4.8, 4.6)] * 3)
    assert found is not None
    assert found.alone_s == (4.6, 4.6)
    assert len(pauses) == 1


def test_cores_that_are_unequal_stay_so_after_all_sittings() -> None:
    found, pauses = sat(*[[(4.0, 8.0)] * 3] * cores.SITTINGS)
    assert found == CoreSeconds((4.0, 8.0), (6.0, 12.0))
    assert len(pauses) == cores.SITTINGS - 1


def test_a_slow_model_has_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "LONGEST_S", -1.0)
    taken: list[Sequence[int]] = []

    def block(at: Sequence[int]) -> Mapping[int, float]:
        taken.append([*at])
        return dict.fromkeys(at, 1.0)

    assert core_seconds(block, 2) == CoreSeconds((1.0, 1.0), (1.0, 1.0))
    assert taken == [[0], [1], [0, 1]]


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_stop_request_ends_it_after_a_round(rounds: int) -> None:
    taken: list[Sequence[int]] = []

    def block(at: Sequence[int]) -> Mapping[int, float]:
        taken.append(at)
        return dict.fromkeys(at, 2.0)

    found = core_seconds(block, 1, lambda: len(taken) >= 2 * rounds)
    assert len(taken) == 2 * rounds
    assert found == (CoreSeconds((2.0,), (2.0,)) if rounds else None)


@pytest.mark.skipif(len(ALLOWED) < 2, reason="needs two cores")
def test_runs_keep_to_their_cores_and_all_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "BLOCK_S", 0.0)
    on: dict[int, set[int]] = {0: set(), 1: set()}
    threads: dict[int, set[int]] = {0: set(), 1: set()}
    both = threading.Barrier(2)
    together = False

    def run(at: int) -> float:
        on[at] |= os.sched_getaffinity(0)
        threads[at].add(threading.get_ident())
        if together:
            both.wait(timeout=GUARD_S)  # comes to an end only if the other one runs meanwhile
        return 0.0

    block = on_cores([lambda: run(0), lambda: run(1)], [1, 0])
    assert block([0]).keys() == {0}
    assert on == {0: {ALLOWED[1]}, 1: set()}
    together = True
    found = block([0, 1])
    assert on == {0: {ALLOWED[1]}, 1: {ALLOWED[0]}}
    assert found.keys() == {0, 1}
    assert all(seconds >= 0 for seconds in found.values())
    assert not (threads[0] | threads[1]) & {threading.get_ident()}
    assert sorted(os.sched_getaffinity(0)) == ALLOWED, "the caller stays where it was"


@pytest.mark.skipif(len(ALLOWED) < 2, reason="needs two cores")
def test_a_run_that_fails_is_told_and_no_other_waits_for_it() -> None:
    def fail() -> float:
        raise ValueError("no memory")

    with pytest.raises(ValueError, match="no memory"):
        on_cores([fail, lambda: 0.0], [0, 1])([0, 1])


def test_a_program_in_its_place_takes_the_processor_time_of_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first inference of a block brings back what is its own into the core's caches, and is not counted."""
    monkeypatch.setattr(cores, "BLOCK_S", 0.0)

    class Part:
        work_s, given = 100.0, 0

        def submit_flat(self, inputs: Sequence[np.ndarray]) -> Part:
            self.given += len(inputs)
            return self

        def result_flat(self) -> list[np.ndarray]:
            self.work_s += 5.0 if self.given % 2 else 3.0
            return []

        def occupancy(self) -> tuple[int, list[float]]:
            return self.given, [self.work_s]

    part = Part()
    block = in_place(part, [np.zeros(1)])
    assert block([0]) == {0: 3.0}
    assert part.given == 2
    assert core_seconds(block, 1) == CoreSeconds((3.0,), (3.0,))
