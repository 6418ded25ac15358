"""Rounds of measuring: which were undisturbed, how many there are at least, when a trial has lost."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

PROBE_LOSS = 0.85
"""A round counts when multiply-adds ran at least this fast before and after it, relative to the better rounds."""
LEAST_ROUNDS = 3
LOSER = 1.3
"""After LEAST_ROUNDS a trial this much slower than the best for its workload is sampled no further."""


def clean_rounds(rates: Sequence[float], loss: float = PROBE_LOSS) -> frozenset[int]:
    """Rounds in which no core was taken away or slowed, judged by the probes' rates.

    Their rates are near the upper quartile. If these are too few, it is the best half.
    """
    if not rates:
        return frozenset()
    least = loss * float(np.percentile(rates, 75))
    clean = frozenset(turn for turn, rate in enumerate(rates) if rate >= least)
    if len(clean) >= min(LEAST_ROUNDS, len(rates)):
        return clean
    best = sorted(range(len(rates)), key=lambda turn: -rates[turn])
    return frozenset(best[: math.ceil(len(rates) / 2)])


def losers(trials: Iterable[tuple[Hashable, Iterable[float]]]) -> frozenset[int]:
    """Positions of trials that have lost.

    They have LEAST_ROUNDS samples or more, whose median is more than LOSER times that of the best of their rivals.

    trials  what each one rivals the others for, and its samples so far
    """
    sampled = [(rivals, [*samples]) for rivals, samples in trials]
    middles = {at: float(np.median(samples)) for at, (_, samples) in enumerate(sampled) if len(samples) >= LEAST_ROUNDS}
    best: dict[Hashable, float] = {}
    for at, middle in middles.items():
        best[sampled[at][0]] = min(best.get(sampled[at][0], math.inf), middle)
    return frozenset(at for at, middle in middles.items() if middle > LOSER * best[sampled[at][0]])
