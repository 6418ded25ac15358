"""Plans of one model run whole and in turn, and how each compares with the first of them; a single one by itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from compiler.ir.machine import MOST_SECONDS
from compiler.measure.benchmark import (
    BLOCK_S,
    LEAST_ROUNDS,
    MOST_SITTINGS,
    REWARM_S,
    WARM_RUNS,
    WARM_SECONDS,
    Run,
    Timed,
    interleave,
    warm,
)
from compiler.measure.compare import Comparison, compare
from compiler.measure.conditions import between, conditions, disturbances
from compiler.measure.spread import Spread
from compiler.trace import StopRequest, never_stops

SECONDS = 0.5
"""The seconds for which each plan is timed, where nobody says how much time there is.

A slow model is timed longer, by as many runs as a verdict needs.
"""
LEAST_S, MOST_S = 0.2, 2.0
"""The least and the most of it, where somebody does: what there is is used up, and shared by all plans."""
STEP_S = 0.1
OPENING_S = 0.02
"""About what opening a plan takes: a library, its threads, its memory."""
SPIN_US = 2000
"""How long an idle lane spins for the next run; what a model does that is called in a loop."""
SETTLE_S = 1.5e-6 * SPIN_US
"""Before a plan's turn the lanes of the plan before it fall asleep: one that still spins takes a core."""
AGAIN_WITHIN_S = 4.0
"""A race that was disturbed and took no longer is held once more."""
ALONE_SECONDS = 0.25
"""For which a plan is timed that has nothing to be compared with..."""
ALONE_SITTINGS, ALONE_RUNS = 3, 2
"""... opened anew so often, each time for at least so many runs."""
TRACE_SECONDS = 0.1
"""Of runs in which each task records when it begins and ends..."""
TRACES = (3, 30)
"""... the fewest and the most."""


@dataclass(frozen=True)
class Raced:
    """One plan's runs in seconds, and its time over that of the first plan, by rounds that ran next to each other.

    `spans` are begin and end of each of its tasks, in the plan's order, in seconds from the beginning of a run:
    medians; empty where they cannot be had. `problem` says why a plan was left out, whose other fields mean nothing.
    """

    spread: Spread
    ratio: Comparison
    spans: tuple[tuple[float, float], ...] = ()
    problem: str = ""

    @staticmethod
    def left_out(problem: str) -> Raced:
        """Of a plan that failed, hung or computed something else: as slow as can be said."""
        return Raced(Spread.of([MOST_SECONDS]), Comparison(MOST_SECONDS, None, None), problem=problem)


class _Stopped(Exception):
    """A stop request ended the race."""


def expected_seconds(seconds: float, timed_s: float = SECONDS, opening_s: float = OPENING_S) -> float:
    """About how long a race takes, with all that is not timed.

    That is for each plan that runs for so long and is timed for `timed_s`. Opening it anew takes `opening_s`.
    """
    block_s = max(BLOCK_S, seconds)
    sittings = min(max(round(timed_s / block_s), LEAST_ROUNDS), MOST_SITTINGS)
    rounds = max(math.ceil(timed_s / block_s), sittings)
    warm_s = max(WARM_SECONDS[0], WARM_RUNS * seconds)
    untimed_s = warm_s + rounds * (SETTLE_S + seconds) + sittings * (opening_s + max(REWARM_S, seconds))
    return untimed_s + rounds * block_s + traces_of(seconds) * seconds


def fitting_seconds(each: Sequence[float], left_s: float, opening_s: float = OPENING_S) -> float:
    """For how long each of some plans, by their seconds, may be timed: LEAST_S to MOST_S.

    It is so long that a race of all takes no longer than `left_s`, where LEAST_S allows that.
    """
    steps = round((MOST_S - LEAST_S) / STEP_S)
    offers = [LEAST_S + STEP_S * step for step in range(steps + 1)]
    fit = [timed_s for timed_s in offers if sum(expected_seconds(one, timed_s, opening_s) for one in each) <= left_s]
    return max(fit, default=LEAST_S)


def expected_seconds_alone(seconds: float) -> float:
    """About how long it takes to time a plan by itself that runs for so long."""
    return max(ALONE_SECONDS, ALONE_SITTINGS * (ALONE_RUNS + 1) * seconds) + traces_of(seconds) * seconds


def traces_of(seconds: float) -> int:
    """How many runs are traced of a plan that runs for so long."""
    least, most = TRACES
    return int(min(max(TRACE_SECONDS / max(seconds, 1e-9), least), most))


def time_alone(fresh: Callable[[], Sequence[Run]], stop_requested: StopRequest = never_stops) -> list[Raced] | None:
    """The time of a single plan, as `race_plans` gives it, in a short race; None after a stop request.

    It is short since it decides nothing. `fresh` opens the plan. The first run of a sitting, which touches its memory
    and starts its threads, is not counted.
    """
    samples: list[float] = []
    for _ in range(ALONE_SITTINGS):
        if stop_requested():
            return None
        (run,) = fresh()
        run()
        samples += _timed(run, ALONE_SECONDS / ALONE_SITTINGS)
    return [Raced(Spread.of(samples), Comparison(1.0, 1.0, 1.0))]


def _timed(run: Run, seconds: float) -> Iterator[float]:
    """Runs for so many seconds, and at least ALONE_RUNS."""
    runs, spent = 0, 0.0
    while runs < ALONE_RUNS or spent < seconds:
        took = run()
        runs, spent = runs + 1, spent + took
        yield took


def race_plans(
    fresh: Callable[[], Sequence[Run]],
    seed: int,
    stop_requested: StopRequest = never_stops,
    settle: Callable[[], None] = lambda: time.sleep(SETTLE_S),
    left: Callable[[], float] | None = None,
) -> list[Raced] | None:
    """Each plan's time beside the first one's, in rounds of small blocks in random order.

    `fresh` opens all plans anew, in one order. A race during which other processes used the cores, or the machine was
    slowed, is held once more. None after a stop request, which is asked for after each round.

    `left` says how many seconds there are. Plans are timed for as long as these allow, for as few rounds as a verdict
    needs once they are over, and a race is repeated only where they allow it.
    """

    def go_on(part: float) -> None:
        if stop_requested():
            raise _Stopped

    try:
        warm_s = []
        before_s = left() if left else 0.0
        runs = fresh()
        opening_s = (before_s - left()) / len(runs) if left else OPENING_S
        for run in runs:
            go_on(0.0)
            warm_s.append(warm(run, SECONDS))
        kept_s = sum(traces_of(one) * one for one in warm_s)
        timed_s = SECONDS if left is None else fitting_seconds(warm_s, left(), opening_s)

        def is_over() -> bool:
            return left is not None and left() <= kept_s

        before = conditions()
        timed = interleave(fresh, warm_s, timed_s, seed, settle, go_on, is_over=is_over)
        during = between(before, conditions())
        has_time = left is None or left() - kept_s >= during["seconds"]
        if disturbances(during) and during["seconds"] <= AGAIN_WITHIN_S and has_time:
            timed = interleave(fresh, warm_s, timed_s, seed + 1, settle, go_on, is_over=is_over)
    except _Stopped:
        return None
    return [_raced(timed[0], one) for one in timed]


def _raced(first: Timed, one: Timed) -> Raced:
    return Raced(Spread.of(one.samples), compare(first.medians, one.medians, first.sittings))
