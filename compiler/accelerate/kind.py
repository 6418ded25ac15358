"""NPUs as a kind of target: models are compiled whole, under the options that every target has."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler.accelerate.chips import TARGETS, chip_of
from compiler.accelerate.compile import TOLERANCE, compile_for_accelerator
from compiler.contract import (
    CompileOptions,
    CompileReport,
    CpuTime,
    JudgedCase,
    OutputError,
    PipelineReport,
    PlacedCandidate,
    PlacedOperator,
    PlacedPart,
    PlacementReport,
    PointReport,
    bundle_digest,
)
from compiler.contract.devices import HOST
from compiler.devices.kind import CompilePart, WholeKind
from compiler.errors import OptionsError
from compiler.pack.pack import digest_of
from compiler.quantize.network import open_network
from compiler.request import Request
from compiler.trace import Trace

NOT_SHOWN = "an output is empty, or has no finite number"
LARGEST_ERROR = 0.25
"""Of an output's largest value: what int8 may cost where the option `tolerance` does not say."""


def compile_whole(request: Request, trace: Trace, compile_part: CompilePart) -> CompileReport:
    """Compiles an ONNX file for an accelerator, as `compiler.devices.kind.CompileWhole` says.

    `options.tolerance` bounds the error of the artifact, and what approximations of missing operators may cost of it;
    `options.snr_db` is what every output must have.
    Raises OptionsError for what models that are compiled whole do not have, and what `compile_for_accelerator` raises.
    """
    options, model, data, samples = request.options, request.model, request.data, request.samples
    demand_possible(options)
    tolerance = LARGEST_ERROR if options.tolerance is None else options.tolerance
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        alone = model
        if data:
            alone = Path(folder) / "model.onnx"
            alone.write_bytes(open_network(model, data)[1].bytes())
            digest = bundle_digest(digest, {name: digest_of(path) for name, path in data.items()})
        made = compile_for_accelerator(
            replace(request, model=alone, data=None),
            compile_part,
            trace,
            tolerance=min(TOLERANCE, tolerance),
            largest_error=tolerance,
        )
    placed = reported(made.placement, made.agreement)
    period_s = placed.pipeline.period_s if placed.pipeline else None
    trace.notice(
        f"times are {placed.estimated_by}, and {'measured' if placed.beside == HOST else 'modelled'} for the CPU: "
        f"{1e3 * placed.seconds:.3f} ms, with "
        f"{placed.accelerated} operators on the accelerator and {placed.on_cpu} on the CPU beside it"
        + (f"; one ends every {1e3 * period_s:.3f} ms with many in flight" if period_s else "")
    )
    return CompileReport(
        model_digest=digest,
        artifact_digest=digest_of(request.artifact),
        artifact_bytes=request.artifact.stat().st_size,
        target=options.compiled_for,
        hardware="",
        threads=1,
        phase_seconds=trace.seconds,
        nodes=made.nodes,
        kernels_before_fusion=made.nodes,
        kernels=placed.accelerated + placed.on_cpu,
        arena_bytes=max(placed.peak_bytes.values(), default=0),
        weight_bytes=made.weight_bytes,
        latency_s=placed.seconds,
        errors=tuple(
            OutputError(one["name"], one["max_absolute"], one["max_relative"], one["max_ulp"]) for one in made.agreement
        ),
        tolerance=tolerance,
        cases=judged(made.agreement, made.judged),
        notices=tuple(trace.notices),
        samples=tuple(digest_of(path) for path in samples.values()),
        placement=placed,
    )


def judged(agreement: Sequence[Mapping[str, Any]], samples: int) -> tuple[JudgedCase, ...]:
    """What each sample showed of the outputs."""
    found = []
    for number in range(samples):
        decided = tuple(one["name"] for one in agreement if number in one["shown_by"])
        found.append(JudgedCase(f"sample {number + 1}", decided, "" if len(decided) == len(agreement) else NOT_SHOWN))
    return tuple(found)


def demand_possible(options: CompileOptions) -> None:
    """Raises OptionsError for options that a model that is compiled whole cannot be given."""
    several = isinstance(options.dims, tuple)
    if several or options.open_sizes:
        raise OptionsError(
            f"dims {'binds several values' if several else 'leaves a dimension open'}, and "
            f"{options.compiled_for} takes one size of each",
            fix="give one value for each name",
        )
    fixed = sorted(options.constant_inputs)
    if fixed:
        raise OptionsError(
            f"input {fixed[0]!r:.100} is given a value, and {options.compiled_for} takes only shapes",
            fix="make that input a constant of the model",
        )
    for name, default in (("bounds", {}), ("without", ())):
        if getattr(options, name) != default:
            raise OptionsError(
                f"{name} says how kernels are made, and {options.compiled_for} has none", fix=f"leave {name} out"
            )


def reported(document: Mapping[str, Any], agreement: Any) -> PlacementReport:
    """The placement of `compiler.accelerate.placement` as reports have it."""
    totals = document["totals"]
    kept = ("accelerated", "on_cpu", "calls", "cycles", "clock_hz", "accelerator_s", "cpu_s", "call_s", "seconds")
    named = ("accelerator", "system", "memory_mode", "estimated_by", "cpu_formula", "beside")
    columns = ("node", "operator", "on", "why", "cycles", "macs", "cpu_s")
    return PlacementReport(
        **{name: document[name] for name in named},
        **{name: totals[name] for name in kept},
        peak_bytes={name: one["peak_bytes"] for name, one in document["memories"].items()},
        snr_db={one["name"]: one["snr_db"] for one in agreement},
        operators=tuple(PlacedOperator(**{name: row[name] for name in columns}) for row in document["operators"]),
        parts=tuple(PlacedPart(**{**row, "programs": tuple(row["programs"])}) for row in document["parts"]),
        cpus=tuple(CpuTime(**row) for row in document["cpus"]),
        candidates=tuple(PlacedCandidate(**row) for row in document["candidates"]),
        pipeline=_pipeline(document.get("pipeline")),
    )


def _pipeline(found: Mapping[str, Any] | None) -> PipelineReport | None:
    if found is None:
        return None
    curve = tuple(PointReport(**{**one, "kernels": tuple(one["kernels"])}) for one in found["curve"])
    return PipelineReport(**{**found, "curve": curve})


def resolve(name: str) -> str:
    """The name itself. Raises TargetUnavailable for one that is no accelerator's."""
    return chip_of(name).target


KIND = WholeKind(profiles=TARGETS, resolve=resolve, demand_possible=demand_possible, compile=compile_whole)
