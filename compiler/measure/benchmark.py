"""Several models timed side by side: rounds of small blocks in random order."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

Run = Callable[[], float]
"""Runs a model once and returns its seconds."""

BLOCK_S = 0.03
"""One model's part of a round: long against a switch between models, short against a change of the machine's clock or
load."""
LEAST_ROUNDS = 6
"""And sittings: the fewest from which an exact interval at 95% can be had (`compare`)."""
MOST_SITTINGS = 12
MOST_ROUNDS = 1000
MOST_SAMPLES = 10_000
"""Kept for each model."""
COLD_RUN_S = 0.25
"""A longer run is timed from the first of a block on: filling the caches again, some 10 ms at most, is a small part of
it."""
WARM_PART = 0.1
"""Of the time to be measured, for which a model is warmed up..."""
WARM_SECONDS = (0.05, 1.0)
"""... and the least and most of it."""
WARM_RUNS = 3
REWARM_S = 0.02
STEADY = 1.1
"""Sittings are alike whose medians differ by no more than this factor..."""
STEADY_SITTINGS = 3
"""... and a measurement is steady when so many of the last ones are (as model servers' analysers ask of windows)."""
COPIES = 10
"""Of which the first is not counted; as many runs measure what copies to and from a GPU take."""


@dataclass(frozen=True)
class Timed:
    """One model's runs, in seconds and in the order taken.

    samples  at most MOST_SAMPLES, evenly spaced over the runs of each block
    rounds   how many of the samples each round gave; sums to the number of samples
    medians  of all timed runs of each round
    sittings how many of the rounds were in each sitting, in which the model was opened anew
    runs     how many were timed
    """

    samples: tuple[float, ...]
    rounds: tuple[int, ...]
    medians: tuple[float, ...]
    sittings: tuple[int, ...]
    runs: int

    @property
    def is_steady(self) -> bool:
        """Whether the last STEADY_SITTINGS sittings found about the same."""
        counts = self.sittings[-STEADY_SITTINGS:]
        ends = [sum(counts[at:]) for at in range(len(counts))]
        found = [
            statistics.median(self.medians[len(self.medians) - end :][:count])
            for end, count in zip(ends, counts, strict=True)
        ]
        return len(found) == STEADY_SITTINGS and max(found) <= STEADY * min(found)


def nothing() -> None:
    """What happens between the blocks of models that leave nothing running."""


def ignored(part: float) -> None:
    """The observer of progress that does nothing."""


def warm(run: Run, seconds: float) -> float:
    """Runs a model until it is warm; the median seconds of a run by then.

    A tenth of the time that will be measured, within WARM_SECONDS, and at least WARM_RUNS runs.
    """
    least, most = WARM_SECONDS
    budget = min(max(WARM_PART * seconds, least), most)
    taken: list[float] = []
    spent = 0.0
    while spent < budget or len(taken) < WARM_RUNS:
        taken.append(run())
        spent += taken[-1]
    return statistics.median(taken[len(taken) // 2 :])


def interleave(
    fresh: Callable[[], Sequence[Run]],
    warm_s: Sequence[float],
    seconds: float,
    seed: int,
    settle: Callable[[], None] = nothing,
    progress: Callable[[float], None] = ignored,
    *,
    is_over: Callable[[], bool] = lambda: False,
    until_steady: bool = False,
) -> list[Timed]:
    """Times models in rounds, until each was timed for `seconds` or the time `is_over`; at least LEAST_ROUNDS rounds.

    In a round every model runs one block, in an order drawn from `seed`. A block is as many runs as fill BLOCK_S by
    `warm_s`, the models' seconds per run; longer where the slowest model's single run is longer or MOST_ROUNDS would be
    passed. It begins with `settle`, then one run that is not timed, which restores to the caches what the others'
    blocks took from them.

    Rounds are held in sittings, LEAST_ROUNDS to MOST_SITTINGS of them, of one round or more: for each, `fresh` gives
    the models opened anew, in the same order. Where a model's memory comes to lie, and which cores its threads start
    on, changes its speed for as long as it is open, by more than all rounds of that time could show. `progress` is
    given the part that is done.

    With `until_steady` there are more sittings, at most as many again, until that of every model is (`is_steady`).
    """
    block_s = max(BLOCK_S, seconds / MOST_ROUNDS, *warm_s)
    counts = [max(1, round(block_s / max(one, 1e-9))) for one in warm_s]
    sittings = min(max(round(seconds / block_s), LEAST_ROUNDS), MOST_SITTINGS)
    # Estimates of a run err: twice the expected rounds may be needed, and all of them must fit into what is kept.
    most = 2 * math.ceil(seconds / block_s / sittings)
    most_sittings = 2 * sittings if until_steady else sittings
    kept = [_Kept(MOST_SAMPLES // (most * most_sittings)) for _ in warm_s]
    order = list(range(len(warm_s)))
    shuffle = random.Random(seed).shuffle
    whole = seconds * len(warm_s)
    spent = 0.0
    for sitting in range(most_sittings):
        if sitting >= sittings and all(one.timed().is_steady for one in kept):
            break
        runs = fresh()
        for run in runs:
            _rewarm(run)
        rounds = 0
        while rounds == 0 or (spent < whole * (sitting + 1) / sittings and rounds < most and not is_over()):
            shuffle(order)
            for at in order:
                settle()
                if warm_s[at] < COLD_RUN_S:
                    runs[at]()
                times = [runs[at]() for _ in range(counts[at])]
                kept[at].block(times)
                spent += sum(times)
            rounds += 1
            done = sitting + min(1.0, max(spent / whole * sittings - sitting, rounds / most))
            progress(min(1.0, done / sittings))
        for one in kept:
            one.sittings.append(rounds)
        progress(min(1.0, (sitting + 1) / sittings))
        if sitting + 1 >= LEAST_ROUNDS and is_over():
            break
    return [one.timed() for one in kept]


def _rewarm(run: Run) -> None:
    """Brings the memory and the threads of a model that was opened anew to life."""
    spent = 0.0
    while not spent or spent < REWARM_S:
        spent += run()


@dataclass
class _Kept:
    """What is kept of one model's blocks; `most` samples of each."""

    most: int
    samples: list[float] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    sittings: list[int] = field(default_factory=list)
    runs: int = 0

    def timed(self) -> Timed:
        return Timed(tuple(self.samples), tuple(self.rounds), tuple(self.medians), tuple(self.sittings), self.runs)

    def block(self, times: Sequence[float]) -> None:
        count = min(len(times), self.most)
        self.samples += [times[at * len(times) // count] for at in range(count)]
        self.rounds.append(count)
        self.medians.append(statistics.median(times))
        self.runs += len(times)


def copy_seconds(arrays: Sequence[np.ndarray]) -> float:
    """Median seconds of copying all of them to memory that was used before."""
    targets = [np.zeros_like(array) for array in arrays]
    taken = []
    for _ in range(COPIES):
        begin = time.perf_counter()
        for target, array in zip(targets, arrays, strict=True):
            np.copyto(target, array)
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])


def added_seconds(run: Run, longer: Run) -> float:
    """How much longer a run takes than one that does less, by medians of alternating runs; 0 if they do not differ."""
    pairs = [(run(), longer()) for _ in range(COPIES)][1:]
    less, more = (float(statistics.median(times)) for times in zip(*pairs, strict=True))
    return max(0.0, more - less)
