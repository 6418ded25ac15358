"""Ways to run one model, timed in turns, one thread each: a comparison of artifacts in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnxruntime

LEAST_S = 0.01
"""That a turn lasts: short runs are repeated."""


def taken_in_turns(
    ways: Sequence[Callable[[], Any]], rounds: int, clock: Callable[[], float] = time.process_time
) -> list[list[float]]:
    """Seconds of one run of each way in each round; who begins changes from round to round.

    By default they are seconds of this process on its core: each way is one thread, and what others take of the core
    is no part. Two runs of each come first and do not count.
    """
    repeats = []
    for way in ways:
        way()
        begin = clock()
        way()
        repeats.append(max(1, round(LEAST_S / max(clock() - begin, 1e-6))))
    times: list[list[float]] = [[] for _ in ways]
    for number in range(rounds):
        for place in range(len(ways)):
            at = (place + number) % len(ways)
            begin = clock()
            for _ in range(repeats[at]):
                ways[at]()
            times[at].append((clock() - begin) / repeats[at])
    return times


def single_threaded(model: Path | bytes) -> Any:
    """An ONNX Runtime session of one thread that runs a model file, or its bytes."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
