"""`python -m worker.race.pair KEPT.tw NEW.tw`: two artifacts of one model in turns, here, and what is different."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compiler.measure.compare import compare
from compiler.measure.npz import write_outputs
from compiler.pack.loader import ArtifactError, Model
from worker.race.peers import OURS
from worker.race.race import REST_S, ROUNDS, TURN_S, Runner, RunnerFailed, arrays_of, largest_difference

SECONDS = 120.0
"""After which there are no more rounds, and what has not answered is killed."""


class Unlike(Exception):
    """Artifacts that cannot be put beside each other; the message is a sentence."""


class Broken(Exception):
    """The new artifact does not run; the message is a sentence."""


@dataclass(frozen=True)
class Pair:
    """The new artifact beside the one that was kept.

    kept_s, new_s  seconds of a run: the median of the rounds' medians
    ratio          the new one's seconds over the kept one's, round by round: above 1 it is slower
    low, high      the interval that holds the ratio with 95 %; None where there were too few rounds
    threads        of both
    difference     the largest of the outputs, relative to the largest value of each of the kept one's; None where
                   shapes differ, or a value is finite in one of them alone
    """

    kept_s: float
    new_s: float
    ratio: float
    low: float | None
    high: float | None
    rounds: int
    threads: int
    difference: float | None
    kept_bytes: int
    new_bytes: int


def pair(kept: Path, new: Path, *, threads: int | None = None, rounds: int = ROUNDS, seconds: float = SECONDS) -> Pair:
    """Both in turns of TURN_S or one run, each in a process of its own, on equal inputs that are drawn.

    threads  of both; None: those of the kept artifact's plan
    seconds  wall time after which there are no more rounds

    Raises `Unlike` for artifacts of other inputs or outputs and for a kept one that does not run here, `Broken` for a
    new one that does not run.
    """
    inputs, lanes = _inputs(kept, new, threads)
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="tilewright-pair-") as name, ExitStack() as stack:
        runners: list[Runner] = []
        for file in (kept, new):
            folder = Path(name) / str(len(runners))
            folder.mkdir()
            write_outputs(folder / "inputs.npz", inputs)
            runners.append(stack.enter_context(Runner(OURS, file, folder, lanes, until)))
        before, after = runners
        _ready(before, after)
        taken = _turns(before, after, rounds, until)
        outputs = [arrays_of(one.outputs) for one in runners]
    ours, theirs = zip(*taken, strict=True)
    found = compare(ours, theirs, [1] * len(taken))
    return Pair(
        kept_s=statistics.median(ours),
        new_s=statistics.median(theirs),
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        rounds=len(taken),
        threads=lanes,
        difference=_difference(*outputs),
        kept_bytes=kept.stat().st_size,
        new_bytes=new.stat().st_size,
    )


def _inputs(kept: Path, new: Path, threads: int | None) -> tuple[dict[str, np.ndarray], int]:
    """What both are run on, and by how many threads."""
    ports = []
    inputs: dict[str, np.ndarray] = {}
    lanes = threads or 1
    for file, refused in ((kept, Unlike), (new, Broken)):
        try:
            with Model(file, threads) as model:
                ports.append([[(spec.name, str(spec)) for spec in each] for each in (model.inputs, model.outputs)])
                if file is kept:
                    inputs, lanes = dict(model.random_inputs()), threads or int(model.manifest["lanes"])
                    if model.binding.has_strings:
                        raise Unlike("models with strings are not timed")
        except ArtifactError as error:
            raise refused(f"{file}: {error}") from error
    if ports[0] != ports[1]:
        raise Unlike(f"{new} has other inputs or outputs than {kept}")
    return inputs, lanes


def _ready(kept: Runner, new: Runner) -> None:
    for one, named, refused in ((kept, "kept", Unlike), (new, "new", Broken)):
        try:
            one.ready()
        except RunnerFailed as reason:
            raise refused(f"the {named} artifact cannot be run: {reason}") from reason


def _turns(kept: Runner, new: Runner, rounds: int, until: float) -> list[tuple[float, float]]:
    """Median seconds of each round; who begins changes from round to round."""
    found: list[tuple[float, float]] = []
    while len(found) < rounds and (not found or time.monotonic() < until):
        seconds = {}
        for one in (kept, new) if len(found) % 2 == 0 else (new, kept):
            time.sleep(REST_S)
            try:
                seconds[one] = one.turn(TURN_S)
            except RunnerFailed as reason:
                raise (Unlike if one is kept else Broken)(f"an artifact cannot be run: {reason}") from reason
        found.append((seconds[kept], seconds[new]))
    return found


def _difference(kept: Mapping[str, np.ndarray], new: Mapping[str, np.ndarray]) -> float | None:
    """Over all outputs of numbers."""
    if any(array.dtype.kind in "biuf" and array.shape != new[name].shape for name, array in kept.items()):
        return None
    return largest_difference(new, kept)


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 with what was found as JSON, 1 where the new artifact does not run, 2 for what makes no sense."""
    parser = argparse.ArgumentParser(prog="python -m worker.race.pair", description=__doc__)
    parser.add_argument("kept", type=Path, help="a .tw file")
    parser.add_argument("new", type=Path, help="another one of the same model")
    parser.add_argument("--threads", type=int, help="of both; default: those of the kept artifact's plan")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args(arguments)
    said: dict[str, Any]
    try:
        said, status = asdict(pair(given.kept, given.new, threads=given.threads, rounds=given.rounds)), 0
    except (Broken, Unlike) as error:
        said, status = {"error": str(error)}, (1 if isinstance(error, Broken) else 2)
    print(json.dumps(said))
    return status


if __name__ == "__main__":
    raise SystemExit(main())
