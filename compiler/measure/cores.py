"""What an inference takes on each of several cores while the others rest, and while all of them do the same."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from compiler.measure.benchmark import Run
from compiler.trace import StopRequest, never_stops

BLOCK_S = 0.06
ROUNDS = 3
"""Of a block on each core alone, and one on all."""
LONGEST_S = 2.0
"""Once a round has taken longer, no other follows."""

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


def core_seconds(block: Block, cores: int, stop_requested: StopRequest = never_stops) -> CoreSeconds | None:
    """Rounds of blocks; None after a stop request before the first has ended.

    What cores do to each other is the median of ratios within a round, since the speed of a machine changes.
    """
    alone: list[list[float]] = []
    slower: list[list[float]] = []
    end = time.monotonic() + LONGEST_S
    while len(alone) < ROUNDS and not (alone and time.monotonic() > end):
        if stop_requested():
            break
        own = [block([core])[core] for core in range(cores)]
        together = block(range(cores))
        alone.append(own)
        slower.append([together[core] / max(own[core], 1e-9) for core in range(cores)])
    if not alone:
        return None
    medians = [median(each) for each in zip(*alone, strict=True)]
    ratios = [median(each) for each in zip(*slower, strict=True)]
    return CoreSeconds(tuple(medians), tuple(one * ratio for one, ratio in zip(medians, ratios, strict=True)))


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


def _processor_seconds(run: Run) -> float:
    """Of one run by the calling thread, over those of a block: what others take of the core is not in it."""
    runs, end, own = 0, time.perf_counter() + BLOCK_S, time.thread_time()
    while not runs or time.perf_counter() < end:
        run()
        runs += 1
    return (time.thread_time() - own) / runs
