"""Latency of an artifact beside ONNX Runtime: each engine in a process of its own, taking turns, with rests between."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

import tilewright
from tilewright.arrays import read_npz, write_npz
from tilewright.errors import ClientError

ROOT = Path(__file__).parents[2]
"""The checkout: `bench` is not installed with the rest."""
ROUNDS = 10
TURN_S = 0.25
REST_S = 0.05
"""Between two turns: threads of the engine that had its turn stop spinning for work."""


class EngineFailed(ClientError):
    """An engine could not load or run the model; the message holds the last lines it printed."""

    code = "engine_failed"


@dataclass(frozen=True)
class Spread:
    """Median, tenth and ninetieth percentile of `samples` values."""

    median: float
    p10: float
    p90: float
    samples: int

    @staticmethod
    def of(values: Sequence[float], scale: float = 1.0) -> Spread:
        """Of at least one value, each multiplied by `scale`."""
        p10, median, p90 = (float(point) * scale for point in np.percentile(values, (10, 50, 90)))
        return Spread(median, p10, p90, len(values))


@dataclass(frozen=True)
class Race:
    """Milliseconds of one run in either engine, and ONNX Runtime's over ours: above 1 ours is faster.

    ratio       of the medians of each round, so that its spread is that between rounds
    difference  largest one between the outputs of both, over the largest value of that output
    """

    threads: int
    ours_ms: Spread
    onnxruntime_ms: Spread
    ratio: Spread
    difference: float


class Engine:
    """A running `bench.demo.engine`; use it in a `with` block. Raises `EngineFailed`."""

    def __init__(self, name: str, model: Path, inputs: Path, threads: int, folder: Path) -> None:
        self.name = name
        self.outputs = folder / f"{name}.npz"
        self._errors = (folder / f"{name}.log").open("w+")
        files = [str(path.resolve()) for path in (model, inputs, self.outputs)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.demo.engine", name, *files, str(threads)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            process_group=0,
        )

    def __enter__(self) -> Self:
        try:
            self._answer()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def turn(self, seconds: float) -> list[float]:
        """Seconds of each run in one turn."""
        self._pipe(self._process.stdin).write(f"{seconds}\n")
        self._pipe(self._process.stdin).flush()
        samples: list[float] = json.loads(self._answer())
        return samples

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _answer(self) -> str:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            tail = "\n".join(self._errors.read().splitlines()[-5:])
            raise EngineFailed(f"{self.name} cannot run the model:\n{tail}", fix="see the reason above")
        return line

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def race(
    model: Path,
    artifact: Path,
    inputs: Mapping[str, NDArray[Any]],
    threads: int,
    *,
    rounds: int = ROUNDS,
    turn_s: float = TURN_S,
) -> Race:
    """Both engines on the same inputs and as many threads, turn by turn; the order changes each round.

    Raises `EngineFailed`.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-race-") as name, ExitStack() as stack:
        folder = Path(name)
        write_npz(folder / "inputs.npz", inputs)
        ours = stack.enter_context(Engine("tilewright", artifact, folder / "inputs.npz", threads, folder))
        theirs = stack.enter_context(Engine("onnxruntime", model, folder / "inputs.npz", threads, folder))
        seconds: dict[str, list[list[float]]] = {ours.name: [], theirs.name: []}
        for number in range(rounds):
            for engine in (ours, theirs) if number % 2 == 0 else (theirs, ours):
                time.sleep(REST_S)
                seconds[engine.name].append(engine.turn(turn_s))
        difference = largest_difference(read_npz(ours.outputs), read_npz(theirs.outputs))
    return judge(threads, seconds[ours.name], seconds[theirs.name], difference)


def judge(threads: int, ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], difference: float) -> Race:
    """The race out of the seconds of each run, by round."""
    ratios = [float(np.median(b)) / float(np.median(a)) for a, b in zip(ours, theirs, strict=True)]
    all_ours, all_theirs = ([sample for turn in turns for sample in turn] for turns in (ours, theirs))
    return Race(threads, Spread.of(all_ours, 1e3), Spread.of(all_theirs, 1e3), Spread.of(ratios), difference)


def largest_difference(ours: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]]) -> float:
    """Over all outputs, relative to the largest value of each; infinite where one is not finite and the other is."""
    worst = 0.0
    for name, expected in theirs.items():
        a, b = ours[name].astype(np.float64), expected.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return float("inf")
        if finite.any():
            largest = np.abs(b[finite]).max() or 1.0
            worst = max(worst, float(np.abs(a[finite] - b[finite]).max() / largest))
    return worst


def main(arguments: list[str]) -> int:
    """`python -m bench race MODEL.onnx ARTIFACT.tw`. Exit status 1 when an engine fails, 2 for what cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m bench race", description=__doc__)
    parser.add_argument("model", type=Path, help="the ONNX file")
    parser.add_argument("artifact", type=Path, help="the .tw file that was compiled from it")
    parser.add_argument("--threads", type=int, help="of both engines (default: what the plan was made for)")
    parser.add_argument("--input", type=Path, help="an .npz with the inputs by name (default: random)")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    try:
        with tilewright.load(given.artifact) as loaded:
            inputs = read_npz(given.input) if given.input else loaded.random_inputs()
            threads = given.threads or loaded.manifest["lanes"]
        result = race(given.model, given.artifact, inputs, threads, rounds=given.rounds)
    except ClientError as error:
        print(f"{error.message}\nFix: {error.fix}", file=sys.stderr)
        return error.exit_status
    print(json.dumps(to_json(result)) if given.json else describe(result))
    return 0


def to_json(result: Race) -> dict[str, Any]:
    """Plain JSON."""
    spreads = {name: vars(getattr(result, name)) for name in ("ours_ms", "onnxruntime_ms", "ratio")}
    return {"threads": result.threads, **spreads, "onnxruntime_difference": result.difference}


def describe(result: Race) -> str:
    """One line for people."""
    ours, theirs, ratio = result.ours_ms, result.onnxruntime_ms, result.ratio
    return (
        f"{result.threads} threads: {ours.median:.3f} ms (p10 {ours.p10:.3f}, p90 {ours.p90:.3f}), "
        f"ONNX Runtime {theirs.median:.3f} ms (p10 {theirs.p10:.3f}, p90 {theirs.p90:.3f}), "
        f"ratio {ratio.median:.2f} ({ratio.p10:.2f} to {ratio.p90:.2f}), outputs differ by {result.difference:.1e}"
    )
