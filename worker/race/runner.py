"""One model of a race in a process of its own: `python -m worker.race.runner NAME FILE INPUTS OUTPUTS THREADS`.

It opens FILE and runs it once on the arrays of INPUTS (.npz), writes what that gives to OUTPUTS (.npz), and answers
`{}`. Then it answers each line of standard input, a number of seconds, with the median seconds of a run over as long a
turn. An answer is a line of JSON; what cannot be done is answered with `{"failed": reason}`, and ends it.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compiler.measure.npz import write_outputs
from worker.race.peers import OPEN, Opened

REOPENED_S = 0.25
"""A model that opens within this is opened anew for each turn: where its memory comes to lie changes its speed for as
long as it is open (`compiler.measure.benchmark`)."""
WARM_RUNS = 2
ENOUGH_RUNS, SHORTEST = 400, 0.2
"""A turn of so many runs ends after this part of its time: a model of microseconds has its median by then."""
LONGEST_REASON = 200


def main(arguments: list[str]) -> None:
    """Serve turns until standard input ends."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what libraries print is no answer

        def answer(said: Mapping[str, Any]) -> None:
            print(json.dumps(said), file=answers, flush=True)

        try:
            _serve(arguments, answer)
        except Exception as error:
            answer({"failed": _reason(error)})


def _serve(arguments: list[str], answer: Callable[[Mapping[str, Any]], None]) -> None:
    name, file, inputs, outputs, threads = arguments
    with np.load(inputs, allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}

    def opened() -> Opened:
        return OPEN[name](Path(file), arrays, int(threads))

    begin = time.perf_counter()
    model = opened()
    reopened = time.perf_counter() - begin < REOPENED_S
    write_outputs(Path(outputs), dict(zip(model.outputs, map(np.asarray, model.run()), strict=True)))
    answer({})
    for line in sys.stdin:
        if reopened:
            model.close()
            model = opened()
        answer({"median_s": turn(model.run, float(line))})


def turn(run: Callable[[], object], seconds: float) -> float:
    """Median seconds of the runs of a turn, at least one; those that wake threads and fill caches come before."""
    for _ in range(WARM_RUNS):
        begin = time.perf_counter()
        run()
        if time.perf_counter() - begin > seconds:
            break
    samples: list[float] = []
    started = time.perf_counter()
    while not samples or time.perf_counter() - started < seconds * (SHORTEST if len(samples) >= ENOUGH_RUNS else 1):
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples)


def _reason(error: Exception) -> str:
    """The first line of what it says, without what cannot be printed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return "".join(letter if letter.isprintable() else "?" for letter in lines[0])[:LONGEST_REASON]


if __name__ == "__main__":
    main(sys.argv[1:])
