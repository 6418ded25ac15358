"""Whole programs of one model, tried and raced in a process that they may take with them.

A plan that nobody has run before may access what it must not, wait for ever or compute something else: a race between
its streams, blocks that wait for each other. The process that compiles does not run it. Each plan is run a few times by
itself, its outputs are held beside those of the first plan, and those that are sound are raced. What is not sound is
left out, with the reason; only where the first plan itself fails does the race fail.

`python -m compiler.devices.cuda.measure.programs` is that process. It answers `apart.Child`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from compiler.devices.cuda.measure.apart import Child, Lost, Stopped, serve
from compiler.devices.cuda.measure.bench import Refused
from compiler.devices.whole import race_folders
from compiler.measure.plans import Raced
from compiler.pack.loader import ArtifactError, Model, RunError
from compiler.trace import StopRequest, never_stops

RUNS = 3
"""Of each plan before it is raced; all must give the same bits."""
RUNNING_S = 20.0
"""After which a plan is taken to hang: it is opened and runs RUNS times, milliseconds each."""
RACING_S, RACING_TIMES = 60.0, 3.0
"""After so long, and so many times what the race is given, the race is taken to hang."""
COMMAND = (sys.executable, "-P", "-m", "compiler.devices.cuda.measure.programs")
Inputs = Mapping[str, np.ndarray] | None


@dataclass
class ProgramsApart:
    """Programs in folders, run by a process of its own on `inputs`, or on random ones of the `seed`.

    running_s  after which a single plan is taken to hang, in seconds; a process that starts has longer
    """

    seed: int = 0
    inputs: Inputs = None
    stop_requested: StopRequest = never_stops
    running_s: float = field(default_factory=lambda: RUNNING_S)
    child: Child = field(init=False)

    def __post_init__(self) -> None:
        self.child = Child(lambda: COMMAND, (self.seed, None if self.inputs is None else dict(self.inputs)))

    def run(self, folder: Path, runs: int = RUNS) -> tuple[list[np.ndarray], int]:
        """The outputs of the first run, and how many others gave other bits. Raises Refused, Lost and Stopped."""
        answer: tuple[list[np.ndarray], int] = self._ask(self.running_s, "run", folder, runs)
        return answer

    def race(self, folders: Sequence[Path], left_s: float | None) -> list[Raced] | None:
        """As `whole.race_folders`, in so many seconds. Raises Refused, Lost and Stopped."""
        patience_s = RACING_S + RACING_TIMES * max(left_s or 0.0, 0.0)  # a plan that hung may have taken more
        raced: list[Raced] | None = self._ask(patience_s, "race", list(folders), left_s)
        return raced

    def close(self) -> None:
        """End the process."""
        self.child.close()

    def _ask(self, patience_s: float, method: str, *arguments: Any) -> Any:
        return self.child.ask((method, arguments), patience_s, self.stop_requested)


def race_apart(
    folders: Sequence[Path],
    granted: float,
    seed: int,
    stop_requested: StopRequest,
    left: Callable[[], float] | None = None,
    inputs: Inputs = None,
) -> list[Raced] | None:
    """Programs that are laid out, raced as `whole.race_folders` does, without those that are not sound.

    A plan is sound whose runs end, give the same bits, and differ from the first plan's by no more than `granted` of an
    output's largest value. Of another the result says its `problem`. None after a stop request. Raises RunError where
    the first plan fails by itself.
    """
    programs = ProgramsApart(seed, inputs, stop_requested)
    try:
        problems = _problems(programs, folders, granted)
        sound = [at for at in range(len(folders)) if at not in problems]
        try:
            raced = programs.race([folders[at] for at in sound], left() if left else None)
        except (Refused, Lost) as error:
            # Which of them it was cannot be told: the first one alone is what is known to run.
            problems |= dict.fromkeys(sound[1:], f"the race that it was in was lost: {error}")
            sound = sound[:1]
            raced = _first_alone(programs, folders, left)
    except Stopped:
        return None
    finally:
        programs.close()
    if raced is None:
        return None
    found = dict(zip(sound, raced, strict=True))
    return [found[at] if at in found else Raced.left_out(problems[at]) for at in range(len(folders))]


def _first_alone(
    programs: ProgramsApart, folders: Sequence[Path], left: Callable[[], float] | None
) -> list[Raced] | None:
    try:
        return programs.race(folders[:1], left() if left else None)
    except (Refused, Lost) as error:
        raise RunError(f"the sequential plan cannot be timed: {error}") from error


def _problems(programs: ProgramsApart, folders: Sequence[Path], granted: float) -> dict[int, str]:
    """What is wrong with plans, by position. Raises RunError where it is the first one's; Stopped."""
    if len(folders) == 1:
        return {}
    problems: dict[int, str] = {}
    expected: list[np.ndarray] = []
    for at, folder in enumerate(folders):
        try:
            outputs, differing = programs.run(folder)
        except (Refused, Lost) as error:
            if not at:
                raise RunError(f"the sequential plan fails: {error}") from error
            problems[at] = str(error)
            continue
        expected = expected or outputs
        apart = max((farthest(one, other) for one, other in zip(outputs, expected, strict=True)), default=0.0)
        if at and differing:
            problems[at] = f"{differing} of {RUNS - 1} further runs on the same inputs give other bits than the first"
        elif not apart <= granted:
            problems[at] = (
                f"an output differs from the sequential plan's by {apart:.2g} of its largest value, granted {granted:g}"
            )
    return problems


def farthest(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference over the largest value; infinite where either is not finite and they differ there."""
    if one.dtype.kind not in "fc":
        return 0.0 if np.array_equal(one, other) else float("inf")
    a, b = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    largest = float(np.abs(b[finite]).max(initial=0.0))
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / (largest or 1.0)


@dataclass(frozen=True)
class _Answers:
    """What the process does."""

    seed: int
    inputs: Inputs

    def run(self, folder: Path, runs: int) -> tuple[list[np.ndarray], int]:
        with Model(folder, verify=False) as model:
            given = self.inputs or model.random_inputs(self.seed)
            each = [[array.copy() for array in model.run(given).values()] for _ in range(runs)]
        first = [array.tobytes() for array in each[0]]
        return each[0], sum([array.tobytes() for array in one] != first for one in each[1:])

    def race(self, folders: Sequence[Path], left_s: float | None) -> list[Raced] | None:
        begin = time.monotonic()
        left = None if left_s is None else (lambda: begin + left_s - time.monotonic())
        return race_folders(folders, self.seed, never_stops, left, self.inputs)


if __name__ == "__main__":
    serve(lambda seed, inputs: nullcontext(_Answers(seed, inputs)), (RunError, ArtifactError))
