"""`python -m bench.gpu.repeated ARTIFACT`: one artifact run many times on one input; its latency; its kernels' times.

Every run must give the bits of the first: a race between kernels, or memory that nothing has written, shows as a
difference sooner or later, and nothing else does on a deterministic program. So must runs whose tensors lie on the GPU,
for which the nodes of a graph are changed, and inferences in flight together.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu.notebook import Row
from compiler.devices.cuda.measure.driver import Device, Memory
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
    """Up to so many runs, their latencies in microseconds and which of them gave other bits than the first.

    Of a model on a GPU alone every second run finds its inputs, and leaves its outputs, in memory of the caller's
    there; those of one in parts are in flight together.
    """
    inputs = model.random_inputs(0)
    if "stream" in model.manifest:
        return _streamed(model, inputs, runs, seconds)
    begin = time.perf_counter()
    first = _bits(model.run(inputs))
    first_us = 1e6 * (time.perf_counter() - begin)
    with OnDevice(model, inputs) as there:
        differing, took = _runs([lambda: model.run(inputs), there.run], first, runs, seconds)
    profile = sorted(model.profile(inputs, PROFILED), key=lambda call: -call["seconds"])
    return {
        "runs": 1 + sum(map(len, took)),
        "differing": differing[:LONGEST],
        "first_us": first_us,
        "with_copies_us": _spread(took[0]),
        "in_place_us": _spread(took[1]),
        "clusters": sum("cluster" in str(call["tile"]) for call in profile),
        "slowest": [_told(call) for call in profile[:LONGEST]],
    }


def _runs(
    runners: Sequence[Callable[[], Mapping[str, Any]]], first: list[bytes], runs: int, seconds: float
) -> tuple[list[int], list[list[float]]]:
    """Runs in turn: numbers of those that gave other bits, and microseconds of each runner's."""
    differing, took, end = list[int](), [list[float]() for _ in runners], time.monotonic() + seconds
    for number in range(1, runs):
        if time.monotonic() > end:
            break
        turn = (number - 1) % len(runners)
        begin = time.perf_counter()
        outputs = runners[turn]()
        took[turn].append(1e6 * (time.perf_counter() - begin))
        if _bits(outputs) != first:
            differing.append(number)
    return differing, took


class Tensor:
    """A tensor in memory of the GPU that a caller allocated."""

    def __init__(self, memory: Memory, array: np.ndarray) -> None:
        self.memory, self.array = memory, array
        described = {"shape": array.shape, "typestr": array.dtype.str, "data": (memory.address, False), "version": 3}
        self.__cuda_array_interface__ = {**described, "strides": None, "stream": None}


class OnDevice:
    """Inputs and outputs of a model in memory of the caller's on the GPU: `with OnDevice(model, inputs) as there:`."""

    def __init__(self, model: Model, inputs: Mapping[str, np.ndarray]) -> None:
        self._model, self._inputs, self._open = model, inputs, ExitStack()

    def __enter__(self) -> OnDevice:
        device = self._open.enter_context(Device())

        def there(array: np.ndarray) -> Tensor:
            return Tensor(self._open.enter_context(device.upload(array)), array)

        self.inputs = {name: there(np.ascontiguousarray(array)) for name, array in self._inputs.items()}
        fixed = [] if self._model.binding.has_sizes else self._model.outputs
        self.outputs = {one.name: there(np.zeros(one.shape, one.numpy)) for one in fixed}
        device.synchronize()
        return self

    def __exit__(self, *reason: object) -> None:
        self._open.close()

    def run(self) -> Mapping[str, np.ndarray]:
        """One inference; its outputs, brought here. Where their sizes are known only then, they come by themselves."""
        found = self._model.run(self.inputs, self.outputs)
        read = {name: one.memory.read(np.empty_like(one.array)) for name, one in self.outputs.items()}
        return read or found


def _streamed(model: Model, inputs: Mapping[str, Any], runs: int, seconds: float) -> Row:
    """Frames of a model in parts with several in flight: microseconds from one to the next, which gave other bits.

    The first is one by itself. By `run` the artifact works without a GPU, and rounds otherwise.
    """
    begin = time.perf_counter()
    (alone,) = model.stream([inputs])
    first_us, end = 1e6 * (time.perf_counter() - begin), time.monotonic() + seconds
    differing, took = list[int](), list[float]()
    begin = time.perf_counter()
    for number, outputs in enumerate(model.stream(inputs for _ in range(runs - 1) if time.monotonic() < end), 1):
        took.append(1e6 * (time.perf_counter() - begin))
        begin = time.perf_counter()
        if _bits(outputs) != _bits(alone):
            differing.append(number)
    found = {"runs": 1 + len(took), "differing": differing[:LONGEST], "first_us": first_us, "slowest": []}
    return {**found, "with_copies_us": _spread(took)}


def _spread(took: Sequence[float]) -> Row:
    low, median, high = (float(value) for value in np.percentile(took or [0.0], (10, 50, 90)))
    return {"p10": low, "median": median, "p90": high}


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
