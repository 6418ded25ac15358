"""The last steps of an artifact for several bindings of a model's dimensions: packed into one, and run from there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from compiler.contract import BindingReport, CompileOptions, CompileReport
from compiler.errors import InternalError
from compiler.pack.join import Part, join
from compiler.pack.loader import Model
from compiler.session import Session
from compiler.steps.building import Built
from compiler.trace import Trace

PLAN = 1
"""Of the plans of a binding, the one that is run: its results are the same bits each time."""


@dataclass(frozen=True)
class Proved:
    """One binding's artifact, which agreed with the reference, and what came of it.

    results  the SHA-256 of each output on random inputs; None for a target that does not run here
    """

    part: Part
    report: CompileReport
    results: tuple[str, ...] | None


def proved(session: Session, built: Built, report: CompileReport, artifact: Path) -> Proved:
    """What is kept of a binding's artifact, which lies at `artifact`."""
    part = Part.of(artifact, session.options.binding)
    if not session.backend.target.is_here:
        return Proved(part, report, None)
    with Model(artifact, plan=PLAN, verify=False) as model:
        return Proved(part, report, _results(model, session.options.seed))


def joined(
    trace: Trace, each: Sequence[Proved], weights: bytes, options: CompileOptions, artifact: Path
) -> CompileReport:
    """Packs the bindings into one artifact at `artifact`, which appears once each gives from there what it gave alone.

    Raises InternalError for one that does not.
    """
    unproven = artifact.with_name(f".{artifact.name}.unproven")
    try:
        with trace.step("pack"):
            packed = join([one.part for one in each], weights, options, unproven)
        with trace.step("agree"):
            for number, one in enumerate(each, 1):
                if one.results is not None:
                    _demand_same(unproven, number, one.results, options.seed)
            os.replace(unproven, artifact)
    finally:
        unproven.unlink(missing_ok=True)
    reports = [one.report for one in each]
    return replace(
        reports[0],
        artifact_digest=packed.digest,
        artifact_bytes=packed.bytes,
        weight_bytes=len(weights),
        phase_seconds=trace.seconds,
        records_measured=sum(one.records_measured for one in reports),
        notices=tuple(trace.notices),
        bindings=tuple(
            BindingReport(
                dict(one.part.dims),
                one.report.threads,
                one.report.kernels,
                one.report.arena_bytes,
                one.report.latency_s,
                one.report.errors,
                one.report.tolerance,
            )
            for one in each
        ),
    )


def _demand_same(artifact: Path, number: int, results: tuple[str, ...], seed: int) -> None:
    with Model(artifact, plan=PLAN, binding=number) as model:
        if _results(model, seed) != results:
            raise InternalError(f"binding {number} gives other results in the artifact of all bindings than alone")


def _results(model: Model, seed: int) -> tuple[str, ...]:
    outputs = model.run_flat(list(model.random_inputs(seed).values()))
    return tuple(hashlib.sha256(output.tobytes()).hexdigest() for output in outputs)
