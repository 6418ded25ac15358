"""`python -m bench.gpu.repeated ARTIFACT`: one artifact run many times on one input; its latency; its kernels' times.

Every run must give the bits of the first: a race between kernels, or memory that nothing has written, shows as a
difference sooner or later, and nothing else does on a deterministic program.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu.notebook import Row
from compiler.pack.loader import ArtifactError, Model, RunError

RUNS = 500
LONGEST = 10
"""Kernels that are told of, the slowest first."""
PROFILED = 5
"""Runs of every kernel by itself."""


def main(arguments: list[str]) -> int:
    """Exit status 0 where all runs gave the same bits, 1 where one did not or the artifact does not run."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.repeated", description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--runs", type=int, default=RUNS, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=30.0, help="to run at most (default: %(default)s)")
    parser.add_argument("--json", type=Path, required=True, help="where to write what was found")
    given = parser.parse_args(arguments)
    try:
        with Model(given.artifact, verify=False) as model:
            row = repeated(model, given.runs, given.seconds)
    except (ArtifactError, RunError) as error:
        print(error, file=sys.stderr)
        return 1
    given.json.write_text(json.dumps(row) + "\n")
    return int(bool(row["differing"]))


def repeated(model: Model, runs: int, seconds: float) -> Row:
    """Up to so many runs, their latencies in microseconds and which of them gave other bits than the first."""
    inputs = model.random_inputs(0)
    first = _bits(model.run(inputs))
    differing, took, end = list[int](), list[float](), time.monotonic() + seconds
    for number in range(1, runs):
        if time.monotonic() > end:
            break
        begin = time.perf_counter()
        outputs = model.run(inputs)
        took.append(1e6 * (time.perf_counter() - begin))
        if _bits(outputs) != first:
            differing.append(number)
    low, median, high = (float(value) for value in np.percentile(took or [0.0], (10, 50, 90)))
    profile = sorted(model.profile(inputs, PROFILED), key=lambda call: -call["seconds"])
    return {
        "runs": 1 + len(took),
        "differing": differing[:LONGEST],
        "with_copies_us": {"p10": low, "median": median, "p90": high},
        "slowest": [_told(call) for call in profile[:LONGEST]],
    }


def _bits(outputs: Mapping[str, Any]) -> list[bytes]:
    return [array.tobytes() for array in outputs.values()]


def _told(call: Mapping[str, Any]) -> Row:
    """A kernel's time beside its prediction, in microseconds."""
    return {
        "kernel": f"{call['family']} {call['tile']}",
        "us": 1e6 * call["seconds"],
        "predicted_us": 1e6 * call["predicted_s"],
        "share": call["share"],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
