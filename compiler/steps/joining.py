"""The last steps of an artifact for several bindings or profiles of a model: packed into one, and run from there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from compiler.contract import BindingReport, CompileOptions, CompileReport
from compiler.devices.device import Runner
from compiler.encodings.aside import Octets
from compiler.errors import InternalError
from compiler.pack.join import SAMPLES, Part, join
from compiler.pack.loader import Model
from compiler.prove.sizes import dims_json
from compiler.session import Session
from compiler.steps.building import Built, Front
from compiler.steps.carrying import runs_across, state_left
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
    """

    part: Part
    report: CompileReport
    inputs: Mapping[str, np.ndarray]
    runner: Runner | None
    results: tuple[str, ...] | None
    left: Mapping[str, np.ndarray] = field(default_factory=dict)

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
        own = Proved(part, report, inputs, runner, _results(model, inputs))
        return replace(own, left=state_left(model, own.sample, front.found)) if model.carried else own


def joined(
    trace: Trace, each: Sequence[Proved], weights: Octets, options: CompileOptions, artifact: Path
) -> CompileReport:
    """Packs the bindings into one artifact at `artifact`, which appears once each gives from there what it gave alone.

    Of several profiles the most able one that this machine has comes first, and the report is of that.

    Raises InternalError for one that does not.
    """
    profile = next((one.part.profile for one in each if one.runner), each[0].part.profile)
    each = sorted(each, key=lambda one: one.part.profile != profile)
    unproven = artifact.with_name(f".{artifact.name}.unproven")
    try:
        with trace.step("pack"):
            packed = join([one.part for one in each], weights, options, unproven)
        with trace.step("agree"):
            for name, group in groupby(each, key=lambda one: one.part.profile):
                own = [*group]
                for number, one in enumerate(own, 1):
                    _demand_same(unproven, name, number, one)
                _demand_shared(unproven, name, own)
            packed = packed.moved_to(artifact)
    finally:
        unproven.unlink(missing_ok=True)
    reports = [one.report for one in each]
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
            for one in each
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
