"""`python -m bench.gpu.schedules NETWORK PRECISION`: every plan that is found for a network.

They run on this machine's GPU in turn, beside their predictions.

All plans are under the tiles that the records name; nothing is tuned. A plan whose outputs differ from those of the
sequential one is `wrong`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
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
from compiler.devices.whole import race_programs
from compiler.errors import TilewrightError
from compiler.ir.program import Program
from compiler.pack.bare import lay_out
from compiler.pack.loader import Model
from compiler.pack.pack import WEIGHTS
from compiler.trace import never_stops

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
    try:
        found = raced(
            find(one, options, known, 0.0),
            persistent_of(one, options, known),
            given.network,
            given.precision,
            file,
        )
    except TilewrightError as error:
        print(problem(error), file=sys.stderr)
        return 1
    given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def raced(
    schedules: Schedules, persistent: Schedules | None, network: str, precision: str, file: Path
) -> list[dict[str, Any]]:
    """A row for each plan (`bench.schedule.row`), with `differs`: from the first plan's outputs, as a relative norm."""
    settled, both = schedules.settled, [schedules, *([persistent] if persistent else [])]
    programs = [each.settled.backend.emit(each.kernels, one.plan) for each in both for one in each.found]
    schedules = replace(schedules, found=tuple(one for each in both for one in each.found))
    plans = [one.plan for one in schedules.found]
    given = inputs_of(onnx.load(file), SEED)
    differs = differences(schedules, programs, given, file.parent)
    times = race_programs(programs, plans, settled.backend.target.name, SEED, never_stops, file.parent)
    made = rows(network, schedules, times, schedules.taken(times, float("inf")))
    return [
        {**row, "precision": precision, "differs": one, "wrong": not one <= TOLERANCE[precision]}
        for row, one in zip(made, differs, strict=True)
    ]


def differences(
    schedules: Schedules, programs: Sequence[Program], given: Mapping[str, np.ndarray], place: Path
) -> list[float]:
    """How far each plan's outputs are from the first one's.

    Of several runs the farthest, since streams may meet otherwise each time.
    """
    outputs: list[list[list[np.ndarray]]] = []
    for program, found in zip(programs, schedules.found, strict=True):
        with TemporaryDirectory(dir=place, prefix=".plan-") as name:
            folder = Path(name)
            (folder / WEIGHTS).write_bytes(program.weights)
            lay_out(program, found.plan, schedules.settled.backend.target.name, folder / WEIGHTS, folder / "plan")
            with Model(folder / "plan", verify=False) as model:
                outputs.append([[array.copy() for array in model.run(given).values()] for _ in range(RUNS)])
    return [max(difference(run, outputs[0][0]) for run in one) for one in outputs]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
