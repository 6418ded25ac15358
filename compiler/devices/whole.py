"""Whole programs of one model, opened by the loader that artifacts have, run in turn, and traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from compiler.encodings.aside import Octets
from compiler.ir.plans.plan import Plan
from compiler.ir.program import Program
from compiler.knowledge.budget import Share
from compiler.measure.benchmark import Run
from compiler.measure.plans import SPIN_US, Raced, race_plans, time_alone, traces_of
from compiler.pack.bare import lay_out
from compiler.pack.loader import Model, RunError
from compiler.pack.pack import WEIGHTS
from compiler.trace import StopRequest


def race_programs(
    programs: Sequence[Program],
    plans: Sequence[Plan],
    target: str,
    seed: int,
    stop_requested: StopRequest,
    place: Path,
    *,
    share: Share | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
) -> list[Raced] | None:
    """One plan's program each, laid out in a folder in `place` for the time of the race; equal weights are one file.

    They run on `inputs`, by the model's names; None: on random ones of the `seed`.

    One alone is timed shortly. Each is traced afterwards, where its library can say when its tasks ran. All of that is
    spent from `share`, if there is one, and takes as long as it allows. None after a stop request, or where
    nothing can be written.
    """
    with share.spending() if share else nullcontext():
        try:
            with laid_out(programs, plans, target, place) as folders:
                return race_folders(folders, seed, stop_requested, share.left if share else None, inputs)
        except OSError:
            return None


def race_folders(
    folders: Sequence[Path],
    seed: int,
    stop_requested: StopRequest,
    left: Callable[[], float] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
) -> list[Raced] | None:
    """The same for programs that are laid out; `left` says how many seconds there are. Raises RunError."""
    with ExitStack() as models:

        def fresh() -> list[Run]:
            """All closed, then all opened anew: where memory comes to lie changes how fast a plan runs."""
            models.close()
            instances = [models.enter_context(Model(at, verify=False, spin_us=SPIN_US)) for at in folders]
            return [_bound(model, inputs or model.random_inputs(seed)) for model in instances]

        if len(folders) > 1:
            raced = race_plans(fresh, seed, stop_requested, left=left)
        else:
            raced = time_alone(fresh, stop_requested)
    if raced is None:
        return None
    return [
        replace(one, spans=_traced(folder, one, inputs, seed, stop_requested))
        for one, folder in zip(raced, folders, strict=True)
    ]


@contextmanager
def laid_out(programs: Sequence[Program], plans: Sequence[Plan], target: str, place: Path) -> Iterator[list[Path]]:
    """Each program as the loader opens it, in a folder in `place` that goes afterwards. Raises OSError."""
    with TemporaryDirectory(dir=place, prefix=".plans-") as name:
        yield _laid_out(programs, plans, target, Path(name))


def _traced(
    folder: Path, raced: Raced, inputs: Mapping[str, np.ndarray] | None, seed: int, stop_requested: StopRequest
) -> tuple[tuple[float, float], ...]:
    """When each of its tasks ran; nothing for a library that does not say, or when there is no time."""
    if stop_requested():
        return ()
    with Model(folder, verify=False, spin_us=SPIN_US) as model:
        try:
            return tuple(model.trace(inputs or model.random_inputs(seed), traces_of(raced.spread.median)))
        except RunError:
            return ()


def _laid_out(programs: Sequence[Program], plans: Sequence[Plan], target: str, folder: Path) -> list[Path]:
    files: dict[Octets, Path] = {}
    places = [folder / f"plan{number}" for number in range(len(plans))]
    for program, plan, place in zip(programs, plans, places, strict=True):
        if program.weights not in files:
            files[program.weights] = folder / f"{WEIGHTS}{len(files)}"
            files[program.weights].write_bytes(program.weights)
        lay_out(program, plan, target, files[program.weights], place)
    return places


def _bound(model: Model, given: Mapping[str, np.ndarray]) -> Run:
    """Runs of a model on the same inputs, by its names.

    On a GPU these and the outputs stay in its memory, so that nothing but kernels is timed.
    """
    inputs = [given[spec.name] for spec in model.inputs]
    if model.on_gpu:
        model.run_flat(inputs)
        return model.bind(*model.resident())
    return model.bind(inputs, [np.zeros(spec.shape, spec.numpy) for spec in model.outputs])
