"""Whole programs of one model, opened by the loader that artifacts have, and run in turn."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from compiler.ir.plan import Plan
from compiler.ir.program import Program
from compiler.measure.benchmark import Run
from compiler.measure.plans import SPIN_US, Raced, race_plans
from compiler.pack.bare import lay_out
from compiler.pack.loader import Model
from compiler.pack.pack import WEIGHTS
from compiler.trace import Hurry


def race_programs(
    programs: Sequence[Program], plans: Sequence[Plan], target: str, seed: int, hurry: Hurry, place: Path
) -> list[Raced] | None:
    """One plan's program each, all with one weights file, laid out in a folder in `place` for the time of the race.

    None when `hurry` called it off, or where nothing can be written.
    """
    with ExitStack() as opened:
        try:
            folders = _laid_out(programs, plans, target, Path(opened.enter_context(_folder(place))))
        except OSError:
            return None
        models = opened.enter_context(ExitStack())

        def fresh() -> list[Run]:
            """All closed, then all opened anew: where memory comes to lie changes how fast a plan runs."""
            models.close()
            instances = [models.enter_context(Model(at, verify=False, spin_us=SPIN_US)) for at in folders]
            return [_bound(model, seed) for model in instances]

        return race_plans(fresh, seed, hurry)


def _folder(place: Path) -> TemporaryDirectory[str]:
    return TemporaryDirectory(dir=place, prefix=".plans-")


def _laid_out(programs: Sequence[Program], plans: Sequence[Plan], target: str, folder: Path) -> list[Path]:
    weights = folder / WEIGHTS
    weights.write_bytes(programs[0].weights)
    places = [folder / f"plan{number}" for number in range(len(plans))]
    for program, plan, place in zip(programs, plans, places, strict=True):
        lay_out(program, plan, target, weights, place)
    return places


def _bound(model: Model, seed: int) -> Run:
    inputs = list(model.random_inputs(seed).values())
    return model.bind(inputs, [np.zeros(spec.shape, spec.numpy) for spec in model.outputs])
