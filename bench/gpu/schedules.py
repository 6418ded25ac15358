"""`python -m bench.gpu.schedules NETWORK PRECISION`: every plan that is found for a network.

They run on this machine's GPU in turn, beside their predictions, in processes of their own.

All plans are under the tiles that the records name; nothing is tuned. A plan whose outputs differ from those of the
sequential one, or from run to run, is `wrong`; of one that fails or hangs a row says its `problem`. Rows are written
as they are found, without times until all plans have run in turn.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench.gpu.contest import difference
from bench.gpu.records import read
from bench.gpu.subjects import TOLERANCE, inputs_of, model_file
from bench.problem import problem
from bench.schedule.found import SEED, Schedules, find, persistent_of
from bench.schedule.row import rows
from bench.subject import Subject
from compiler.contract import CompileOptions
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.measure.apart import Lost
from compiler.devices.cuda.measure.bench import Refused
from compiler.devices.cuda.measure.programs import ProgramsApart
from compiler.devices.whole import laid_out
from compiler.errors import TilewrightError
from compiler.measure.plans import Raced

RUNS = 20
"""Of each plan, whose outputs are compared."""


def main(arguments: list[str]) -> int:
    """Exit status 0 when the plans were run, whatever they gave; 1, with the reason, when they could not be."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.schedules", description=__doc__)
    parser.add_argument("network")
    parser.add_argument("precision")
    parser.add_argument("--target", default="cuda", help="as the compiler names it (default: the GPU that is here)")
    parser.add_argument("--records", type=Path, required=True, help="earlier measurements")
    parser.add_argument(
        "--folder", type=Path, required=True, help="where models lie, and programs for the time of the race"
    )
    parser.add_argument("--json", type=Path, required=True, metavar="PATH", help="where the rows go, one for each plan")
    parser.add_argument("--kept", type=Path, help="where compiled kernels are kept from one call to the next")
    given = parser.parse_args(arguments)
    nvrtc.keep_in(given.kept)
    options = CompileOptions(target=given.target, precision=given.precision, tuning_budget_s=0.0)
    file = model_file(given.network, given.folder)
    one, known = Subject(given.network, "zoo", file), read(given.records)

    def keep(rows: Sequence[Mapping[str, Any]]) -> None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")

    try:
        schedules = find(one, options, known, 0.0)
        raced(schedules, persistent_of(one, options, known), given.network, given.precision, file, keep)
    except TilewrightError as error:
        print(problem(error), file=sys.stderr)
        return 1
    return 0


def raced(
    schedules: Schedules,
    persistent: Schedules | None,
    network: str,
    precision: str,
    file: Path,
    keep: Callable[[Sequence[Mapping[str, Any]]], None],
) -> list[dict[str, Any]]:
    """A row for each plan (`bench.schedule.row`), with what came of running it by itself (`Tried`).

    `keep` is given all rows so far after each plan, and after the race.
    """
    settled, both = schedules.settled, [schedules, *([persistent] if persistent else [])]
    programs = [each.settled.backend.emit(each.kernels, one.plan) for each in both for one in each.found]
    schedules = replace(schedules, found=tuple(one for each in both for one in each.found))
    plans = [one.plan for one in schedules.found]
    tried: list[Tried] = []

    def table(times: Sequence[Raced] | None) -> list[dict[str, Any]]:
        made = rows(network, schedules, times, schedules.taken(times, float("inf")))
        told = [one.to_json(precision) for one in tried]
        return [{**row, "precision": precision, **one} for row, one in zip(made, told, strict=False)]

    apart = ProgramsApart(SEED, inputs_of(onnx.load(file), SEED))
    with closing(apart), laid_out(programs, plans, settled.backend.target.name, file.parent) as folders:
        for folder in folders:
            tried.append(_tried(apart, folder, tried[0].outputs if tried else ()))
            keep(table(None))
        times = _times(apart, folders, tried, precision)
    made = table(times)
    keep(made)
    return made


@dataclass(frozen=True)
class Tried:
    """What came of RUNS runs of a plan.

    outputs    of the first run
    differs    how far these are from the first plan's, as a relative norm
    differing  runs that gave other bits than the first
    problem    why there is nothing of that, or no time
    """

    outputs: Sequence[np.ndarray] = ()
    differs: float | None = None
    differing: int = 0
    problem: str = ""

    def is_wrong(self, precision: str) -> bool:
        """Whether it computes something else than the first plan, or not always the same."""
        return self.differs is not None and (bool(self.differing) or not self.differs <= TOLERANCE[precision])

    def to_json(self, precision: str) -> dict[str, Any]:
        """The fields of a row."""
        wrong = self.is_wrong(precision)
        found = {"differs": self.differs, "differing": self.differing, "wrong": wrong}
        return {**found, **({"problem": self.problem} if self.problem else {})}


def _tried(apart: ProgramsApart, folder: Path, expected: Sequence[np.ndarray]) -> Tried:
    try:
        outputs, differing = apart.run(folder, RUNS)
    except (Refused, Lost) as error:
        return Tried(problem=str(error)[-600:])
    return Tried(outputs, difference(outputs, expected or outputs), differing)


def _times(apart: ProgramsApart, folders: Sequence[Path], tried: list[Tried], precision: str) -> Sequence[Raced] | None:
    """Of all plans, as left out where they are not sound. A race that is lost is the `problem` of all that were in it.

    None where the first plan is not sound, beside which the others are timed, or the race was lost.
    """
    sound = [at for at, one in enumerate(tried) if not one.problem and not one.is_wrong(precision)]
    if 0 not in sound:
        return None
    try:
        raced = apart.race([folders[at] for at in sound], None)
    except (Refused, Lost) as error:
        for at in sound:
            tried[at] = replace(tried[at], problem=f"the race was lost: {error}"[-600:])
        return None
    found = dict(zip(sound, raced or (), strict=bool(raced)))
    left_out = "wrong, or it did not run"
    return [found.get(at) or Raced.left_out(left_out) for at in range(len(folders))] if found else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
