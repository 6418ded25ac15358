"""What an inference takes on each of several cores while the others rest, and while all of them do the same."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import numpy as np

from compiler.measure.benchmark import Run
from compiler.trace import StopRequest, never_stops

BLOCK_S = 0.06
ROUNDS = 3
"""Of a block on each core alone, and one on all."""
LONGEST_S = 2.0
"""Once rounds have taken longer, no other follows, and no other sitting."""
SITTINGS = 3
"""At most, of rounds in a row, PAUSE_S apart."""
PAUSE_S = 1.0
STEADY = 1.1
"""Rounds and cores that differ by less are not disturbed: those of a quiet core differ by 1.05."""
LEAST_S = 1e-9
"""Of an inference: what a clock may say of less is noise."""

Block = Callable[[Sequence[int]], Mapping[int, float]]
"""Runs at these positions at the same time, and gives the seconds of processor time of an inference at each."""


@dataclass(frozen=True)
class CoreSeconds:
    """Seconds of processor time of an inference on each core.

    alone_s     while the other cores rest
    together_s  while all of them do the same
    """

    alone_s: tuple[float, ...]
    together_s: tuple[float, ...]


@dataclass(frozen=True)
class _Sitting:
    """Rounds in a row: seconds of each core alone, and how much longer an inference takes there beside the others."""

    alone: Sequence[Sequence[float]]
    slower: Sequence[Sequence[float]]

    @property
    def medians(self) -> list[float]:
        """Seconds of each core alone."""
        return [median(each) for each in zip(*self.alone, strict=True)]

    @property
    def is_steady(self) -> bool:
        """Whether no core is disturbed: rounds differ little, and so do cores."""
        spreads: list[float] = [
            max(each) / max(min(each), LEAST_S) for each in (*zip(*self.alone, strict=True), self.medians)
        ]
        return max(spreads) < STEADY


def core_seconds(
    block: Block, cores: int, stop_requested: StopRequest = never_stops, pause: Callable[[float], None] = time.sleep
) -> CoreSeconds | None:
    """Rounds of blocks; None after a stop request before the first has ended.

    A disturbance takes a core of this kind for seconds, longer than a sitting of rounds, and makes it slower only. So
    where rounds differ, or cores do, there are more sittings after a `pause` each, and of each core the least counts.
    What cores do to each other is the median of ratios within a round, since the speed of a machine changes.
    """
    found: list[_Sitting] = []
    end = time.monotonic() + LONGEST_S
    while len(found) < SITTINGS and not (found and (found[-1].is_steady or time.monotonic() > end)):
        if found:
            pause(PAUSE_S)
        one = _sitting(block, cores, stop_requested)
        if one is None:
            break
        found.append(one)
        end += PAUSE_S
    if not found:
        return None
    alone = [min(each) for each in zip(*(one.medians for one in found), strict=True)]
    ratios = [median(each) for each in zip(*(row for one in found for row in one.slower), strict=True)]
    return CoreSeconds(tuple(alone), tuple(one * ratio for one, ratio in zip(alone, ratios, strict=True)))


def _sitting(block: Block, cores: int, stop_requested: StopRequest) -> _Sitting | None:
    """None after a stop request before its first round has ended."""
    alone: list[list[float]] = []
    slower: list[list[float]] = []
    end = time.monotonic() + LONGEST_S
    while len(alone) < ROUNDS and not (alone and time.monotonic() > end):
        if stop_requested():
            break
        own = [block([core])[core] for core in range(cores)]
        together = block(range(cores))
        alone.append(own)
        slower.append([together[core] / max(own[core], LEAST_S) for core in range(cores)])
    return _Sitting(alone, slower) if alone else None


def on_cores(runs: Sequence[Run], cores: Sequence[int]) -> Block:
    """A thread for each run, kept on its core: positions among those that the process may use.

    A block raises what a run raises.
    """
    allowed = sorted(os.sched_getaffinity(0))

    def block(positions: Sequence[int]) -> Mapping[int, float]:
        found: dict[int, float] = {}
        failures: list[BaseException] = []
        begin = threading.Barrier(len(positions))

        def work(at: int) -> None:
            try:
                os.sched_setaffinity(0, {allowed[cores[at]]})
                runs[at]()  # brings back what is its own into the core's caches
                begin.wait()
                found[at] = _processor_seconds(runs[at])
            except BaseException as error:
                failures.append(error)
                begin.abort()

        threads = [threading.Thread(target=work, args=(at,)) for at in positions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return found

    return block


class Submitting(Protocol):
    """An opened artifact with one part, on one core, as the loader gives it."""

    def submit_flat(self, inputs: Sequence[np.ndarray]) -> Submitted:
        """Begins an inference."""
        ...

    def occupancy(self) -> tuple[int, Sequence[float]]:
        """How many have ended, and each part's seconds of processor time."""
        ...


class Submitted(Protocol):
    """An inference that was begun."""

    def result_flat(self) -> Sequence[np.ndarray]:
        """Waits for it."""
        ...


def in_place(model: Submitting, inputs: Sequence[np.ndarray]) -> Block:
    """Inferences one by one through the one part of an artifact, whose own thread runs it on its core."""

    def block(positions: Sequence[int]) -> Mapping[int, float]:
        model.submit_flat(inputs).result_flat()
        runs, end = 0, time.perf_counter() + BLOCK_S
        _, (before,) = model.occupancy()
        while not runs or time.perf_counter() < end:
            model.submit_flat(inputs).result_flat()
            runs += 1
        _, (after,) = model.occupancy()
        return dict.fromkeys(positions, (after - before) / runs)

    return block


def _processor_seconds(run: Run) -> float:
    """Of one run by the calling thread, over those of a block: what others take of the core is not in it."""
    runs, end, own = 0, time.perf_counter() + BLOCK_S, time.thread_time()
    while not runs or time.perf_counter() < end:
        run()
        runs += 1
    return (time.thread_time() - own) / runs
