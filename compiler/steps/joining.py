"""The last steps of an artifact for several bindings or profiles of a model: packed into one, and run from there."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from compiler.contract import BindingReport, CompileOptions, CompileReport
from compiler.devices.device import Runner
from compiler.encodings.aside import Octets
from compiler.errors import Disagreement, InternalError
from compiler.ops import OPERATORS
from compiler.pack.join import SAMPLES, Chunks, Part, join
from compiler.pack.loader import InputError, Model, RunError
from compiler.prove.reference import evaluate_graph
from compiler.prove.sizes import cut, dims_json, own_outputs, usual_sizes
from compiler.session import Session
from compiler.steps.building import Built, Front
from compiler.steps.chunking import Windows
from compiler.steps.states.proof import runs_across, state_left
from compiler.trace import Trace

PLAN = 1
"""Of the plans of a binding, the one that is run: its results are the same bits each time."""


@dataclass(frozen=True)
class Proved:
    """One binding's artifact, which agreed with the reference, and what came of it.

    inputs   by name, those that the binding was timed on
    runner   what ran it; None where nothing does
    results  the SHA-256 of each output on these; None for a target that does not run here
    left     by name of the input the states that runs in a row leave; empty where nothing is carried or runs
    wanted   of a binding whose output comes in pieces: what the reference gives for that output; None: of others
    """

    part: Part
    report: CompileReport
    inputs: Mapping[str, np.ndarray]
    runner: Runner | None
    results: tuple[str, ...] | None
    left: Mapping[str, np.ndarray] = field(default_factory=dict)
    wanted: np.ndarray | None = None

    @property
    def sample(self) -> Mapping[str, np.ndarray] | None:
        """The inputs of a sample, where there is any."""
        return self.inputs if SAMPLES in self.part.manifest else None


def proved(session: Session, front: Front, built: Built, report: CompileReport, artifact: Path) -> Proved:
    """What is kept of a binding's artifact, which lies at `artifact`."""
    shapes, inputs = front.opened.loaded.open_shapes, front.opened.timed_inputs(session.options.seed)
    part = Part.of(artifact, dims_json(session.options, shapes))
    runner = session.backend.runner
    if runner is None:
        return Proved(part, report, inputs, None, None)
    with runner.open(artifact, plan=PLAN, verify=False, coded=True) as model:
        own = Proved(part, report, inputs, runner, _results(model, inputs), wanted=_wanted(session, front, inputs))
        return replace(own, left=state_left(model, own.sample, front.found)) if model.carried else own


def _wanted(session: Session, front: Front, inputs: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The output that comes in pieces, by the reference, for inputs by name; None where none does."""
    if not session.options.chunks:
        return None
    ((name, _),) = session.options.chunks.items()
    opened = front.opened
    shapes = opened.loaded.open_shapes
    exact = opened.loaded
    if shapes is not None and shapes.dimensions:
        exact = opened.at(usual_sizes(session.options, shapes))
    graph, given = exact.graph, {id: inputs[exact.graph.values[id].name] for id in exact.graph.inputs}
    found = cut(graph, exact.open_shapes, evaluate_graph(graph, given, OPERATORS))
    names = [one.name for one in own_outputs(graph, exact.open_shapes)]
    return found[names.index(name)]


@dataclass(frozen=True)
class Pieces:
    """How an output comes in pieces, and the programs of the portions of the model that make them, by name."""

    windows: Windows
    portions: Mapping[str, Proved]

    @staticmethod
    def of(windows: Windows, each: Sequence[Proved]) -> Pieces:
        """Of the portions in the order in which they run."""
        return Pieces(windows, dict(zip(("before", "behind")[-len(each) :], each, strict=True)))

    @property
    def packed(self) -> Chunks:
        """What the artifact holds of it."""
        return Chunks(self.windows.to_json(), {name: one.part for name, one in self.portions.items()})

    def demand_right(self, artifact: Path, each: Sequence[Proved], seed: int) -> None:
        """Raises Disagreement unless pieces make the output.

        That is at every binding's inputs what the reference gives, and at the sizes at which a range was proved what a
        run gives.
        """
        runner, name = each[0].runner, self.windows.output
        if runner is None:
            return
        with runner.open(artifact, plan=PLAN, coded=True, verify=False) as model:
            for one in each:
                self._demand_near(model, one.inputs, one.wanted, one.report.tolerance)
            for sizes in {tuple(size.dims.items()) for size in each[-1].report.sizes}:
                inputs = model.at(each.index(each[-1]) + 1).random_inputs(seed, dict(sizes))
                try:
                    whole = model.run(inputs)[name]
                except (InputError, RunError):  # drawn inputs that the model does not take
                    continue
                self._demand_near(model, inputs, whole, 2 * each[-1].report.tolerance)

    def _demand_near(
        self, model: Model, inputs: Mapping[str, np.ndarray], wanted: np.ndarray | None, tolerance: float
    ) -> None:
        given = {spec.name: inputs[spec.name] for spec in model.inputs}
        joined = np.concatenate([*model.chunks(given)], self.windows.axis)
        if wanted is None or not wanted.size:
            return
        error = math.inf
        if joined.shape == wanted.shape:
            error = np.abs(joined - wanted).max() / max(np.abs(wanted).max(), np.finfo(np.float32).tiny)
        if not error <= tolerance:
            raise Disagreement(
                f"output {self.windows.output!r:.100} in pieces is off by {error:.1e} of the largest value, and "
                f"{tolerance:.1e} is accepted",
                fix="leave chunks out, and report this model: it is our fault",
            )


def joined(
    trace: Trace,
    each: Sequence[Proved],
    weights: Octets,
    options: CompileOptions,
    artifact: Path,
    pieces: Pieces | None = None,
) -> CompileReport:
    """Packs the bindings into one artifact at `artifact`, which appears once each gives from there what it gave alone.

    Of several profiles the most able one that this machine has comes first, and the report is of that. Pieces of an
    output must make what the reference gives for all of it.

    Raises InternalError for one that does not, Disagreement for pieces that do not.
    """
    profile = next((one.part.profile for one in each if one.runner), each[0].part.profile)
    each = sorted(each, key=lambda one: one.part.profile != profile)
    unproven = artifact.with_name(f".{artifact.name}.unproven")
    try:
        with trace.step("pack"):
            packed = join([one.part for one in each], weights, options, unproven, pieces.packed if pieces else None)
        with trace.step("agree"):
            for name, group in groupby(each, key=lambda one: one.part.profile):
                own = [*group]
                for number, one in enumerate(own, 1):
                    _demand_same(unproven, name, number, one)
                _demand_shared(unproven, name, own)
            if pieces is not None:
                pieces.demand_right(unproven, each, options.seed)
                trace.notice(str(pieces.windows))
            packed = packed.moved_to(artifact)
    finally:
        unproven.unlink(missing_ok=True)
    portions = [*pieces.portions.values()] if pieces else []
    reports = [one.report for one in (*each, *portions)]
    bindings = each if len(each) > 1 else ()
    return replace(
        reports[0],
        target=options.target if options.profiles else reports[0].target,
        artifact_digest=packed.digest,
        artifact_bytes=packed.bytes,
        weight_bytes=len(weights),
        phase_seconds=trace.seconds,
        verified=all(one.verified for one in reports),
        unshown=tuple(dict.fromkeys(output for one in reports for output in one.unshown)),
        cases=tuple(case for one in reports for case in one.cases),
        records_measured=sum(one.records_measured for one in reports),
        notices=tuple(trace.notices),
        samples=tuple(dict.fromkeys(digest for one in reports for digest in one.samples)),
        bindings=tuple(
            BindingReport(
                dict(one.part.dims),
                one.report.threads,
                one.report.kernels,
                one.report.arena_bytes,
                one.report.latency_s,
                one.report.errors,
                one.report.tolerance,
                one.report.input_ranges,
                one.report.samples,
                one.report.sizes,
                one.part.profile if options.profiles else "",
                one.report.verified,
            )
            for one in bindings
        ),
    )


def _demand_same(artifact: Path, profile: str, number: int, alone: Proved) -> None:
    if alone.runner is None:
        return
    with alone.runner.open(artifact, plan=PLAN, target=profile, binding=number, coded=True, verify=False) as model:
        if _results(model, alone.inputs) != alone.results:
            raise InternalError(f"{profile}, binding {number} gives other results in the artifact of all than alone")
        if "probe" in alone.part.manifest and (faults := model.self_check()):
            raise InternalError(f"{profile}, binding {number}: {'; '.join(faults)}")


def _demand_shared(artifact: Path, profile: str, each: Sequence[Proved]) -> None:
    """Raises InternalError unless bindings that run in turn from one state give what they give of states in arrays."""
    runner = each[0].runner
    if runner is None or not any(one.left for one in each):
        return
    with runner.open(artifact, target=profile, coded=True) as model:
        runs_across(model, [one.sample for one in each])


def _results(model: Model, inputs: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    outputs = model.run_flat([inputs[spec.name] for spec in model.inputs])
    return tuple(hashlib.sha256(output.tobytes()).hexdigest() for output in outputs)
