from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.measure.benchmark import (
    COLD_RUN_S,
    LEAST_ROUNDS,
    MOST_SAMPLES,
    MOST_SITTINGS,
    Run,
    copy_seconds,
    interleave,
    warm,
)


class Bench:
    """Models of stated seconds per run.

    They note who runs, when they are opened and when the machine is left to settle.
    """

    def __init__(self, *seconds: float) -> None:
        self.seconds = seconds
        self.log: list[str] = []

    def fresh(self) -> list[Run]:
        self.log.append("open")
        return [self._run(at) for at in range(len(self.seconds))]

    def settle(self) -> None:
        self.log.append("settle")

    def _run(self, at: int) -> Callable[[], float]:
        def run() -> float:
            self.log.append(str(at))
            return self.seconds[at]

        return run

    def blocks(self) -> list[str]:
        """Who ran in each block: one letter for each, with how often."""
        parts = [part.split("open")[0] for part in " ".join(self.log).split("settle")[1:]]
        return [f"{part.split()[0]}x{len(part.split())}" for part in parts]


def test_every_model_runs_one_block_in_each_round_and_as_long_as_the_others() -> None:
    bench = Bench(0.001, 0.01)
    timed = interleave(bench.fresh, [0.001, 0.01], 3.0, 0, settle=bench.settle)
    blocks = bench.blocks()
    assert len(blocks) == 200
    for first, second in zip(blocks[::2], blocks[1::2], strict=True):
        assert sorted((first, second)) == ["0x31", "1x4"], "a block is 30 ms, and one run that is not timed"
    assert [one.runs for one in timed] == [3000, 300]
    assert [len(one.medians) for one in timed] == [100, 100]


def test_the_order_is_drawn_anew_in_each_round_from_the_seed() -> None:
    def order(seed: int) -> list[str]:
        bench = Bench(0.01, 0.01, 0.01)
        interleave(bench.fresh, [0.01] * 3, 1.0, seed, settle=bench.settle)
        return [block[0] for block in bench.blocks()]

    assert order(1) == order(1) != order(2)
    assert {tuple(order(1)[at : at + 3]) for at in range(0, 90, 3)} > {("0", "1", "2"), ("2", "1", "0")}


def test_models_are_opened_anew_for_each_sitting_and_warmed() -> None:
    bench = Bench(0.003)
    (timed,) = interleave(bench.fresh, [0.003], 3.0, 0, settle=bench.settle)
    assert bench.log.count("open") == len(timed.sittings) == MOST_SITTINGS
    assert sum(timed.sittings) == len(timed.rounds) == len(timed.medians)
    assert max(timed.sittings) - min(timed.sittings) <= 1
    assert bench.log[:8] == ["open", *["0"] * 7], "20 ms before the first block"


def test_a_slow_model_still_runs_once_in_each_of_the_fewest_rounds_and_the_fast_one_as_long() -> None:
    bench = Bench(2.0, 0.5)
    slow, fast = interleave(bench.fresh, [2.0, 0.5], 3.0, 0, settle=bench.settle)
    assert slow.sittings == fast.sittings == (1,) * LEAST_ROUNDS
    assert (slow.runs, fast.runs) == (LEAST_ROUNDS, 4 * LEAST_ROUNDS)
    assert all(seconds >= COLD_RUN_S for seconds in bench.seconds), "no run of theirs goes untimed"
    assert set(bench.blocks()) == {"0x1", "1x4"}


@pytest.mark.parametrize("seconds", [0.01, 3.0, 120.0])
def test_no_more_samples_are_kept_than_stated_and_each_round_gives_some(seconds: float) -> None:
    bench = Bench(0.0005)
    (timed,) = interleave(bench.fresh, [0.0005], seconds, 0)
    assert 0 < len(timed.samples) == sum(timed.rounds) <= MOST_SAMPLES
    assert min(timed.rounds) > 0
    assert timed.runs * 0.0005 >= seconds


@pytest.mark.parametrize(
    ("sittings", "held", "steady"),
    [
        ([0.003] * 12, 12, True),
        ([0.003] * 9 + [0.006] * 3, 12, True),  # at last it is
        ([0.003] * 11 + [0.006] * 9, 14, True),
        ([0.003, 0.006] * 12, 24, False),  # no longer than twice
    ],
)
def test_sittings_are_held_until_the_last_ones_are_alike(sittings: list[float], held: int, steady: bool) -> None:
    """The machine is slower in some of them."""
    opened = iter(sittings)

    def fresh() -> list[Run]:
        seconds = next(opened)
        return [lambda: seconds]

    (timed,) = interleave(fresh, [0.003], 0.5, 0, until_steady=True)
    assert (len(timed.sittings), timed.is_steady) == (held, steady)
    assert len(timed.samples) <= MOST_SAMPLES
    assert min(timed.rounds) > 0


def test_samples_are_spread_over_the_whole_block() -> None:
    bench = Bench(0.0)
    clock = iter(np.arange(1, 10**7) * 1e-9)
    (timed,) = interleave(lambda: [lambda: float(next(clock))], [1e-6], 1.0, 0)
    first = np.array(timed.samples[: timed.rounds[0]])
    assert np.ptp(np.diff(first)) < 2e-9
    assert bench.log == []


def test_a_model_that_becomes_faster_than_it_was_when_warm_does_not_run_on_and_on() -> None:
    bench = Bench(0.0001)
    (timed,) = interleave(bench.fresh, [0.01], 1.2, 0)
    assert 40 < len(timed.rounds) <= 2 * (1.2 / 0.03 + MOST_SITTINGS), (
        "twice the rounds that were expected, and no more"
    )


def test_progress_never_falls_and_ends_at_one() -> None:
    parts: list[float] = []
    bench = Bench(0.004, 0.02)
    interleave(bench.fresh, [0.004, 0.02], 0.5, 0, progress=parts.append)
    assert parts == sorted(parts)
    assert parts[0] > 0
    assert parts[-1] == 1.0


def test_warming_up_ignores_the_first_half() -> None:
    taken = iter([9.0, 0.5, 0.02, 0.02])
    assert warm(lambda: next(taken), 3.0) == 0.26
    taken = iter([0.02, *[0.005] * 8])
    assert warm(lambda: next(taken), 0.001) == 0.005


def test_copies_take_time_and_nothing_takes_none_to_speak_of() -> None:
    assert copy_seconds([np.ones(1 << 20)]) > copy_seconds([]) >= 0
