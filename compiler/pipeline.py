"""The compiler on one page: the list of its steps, each timed, verified and shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from compiler.codegen.weights import Weights
from compiler.contract import CompileOptions, CompileReport, InputSpec, JudgedCase
from compiler.devices.kinds import whole_kind_of
from compiler.errors import CallerError, Disagreement, InternalError, TilewrightError, Unverified
from compiler.frontend import Loaded, bind_what_is_open, load
from compiler.fuse import fuse
from compiler.ir.machine import Record
from compiler.ir.open_shapes import Example
from compiler.knowledge.records import Records
from compiler.knowledge.replay import Log
from compiler.ops import OPERATORS
from compiler.pack.pack import packed_unverified
from compiler.prove.ranges import derive
from compiler.prove.samples import read_samples, read_sized, share_out, specs_of
from compiler.prove.sizes import exactly, nested, usual_sizes
from compiler.quantize.compilation import Source, source_of
from compiler.rewrite import rewrite
from compiler.session import Session
from compiler.steps.building import Built, Front, build
from compiler.steps.choosing import evaluate_choices
from compiler.steps.dividing import demand_divisible, divided
from compiler.steps.dividing_devices import devices_of
from compiler.steps.foreseeing import BY_ROUNDING, foreseen, foreseen_outputs, is_run, proof_notices, run_notices
from compiler.steps.joining import joined, proved
from compiler.steps.proving import Proof, blame, errors_of_layers, prove
from compiler.steps.states import carried_positions
from compiler.steps.tiling import roundings
from compiler.trace import Observer, StopRequest, Trace, ignore, never_stops
from compiler.tuning.helpers import Helpers

First = Callable[[Path, CompileReport], None]
"""Is given the artifact that was made before measuring, as a file that is its own, and what came of it."""
FIRST_FROM_S = 60.0
"""Seconds of a tuning budget from which on an artifact is made before: below it the compilation is soon over."""


def compile_model(
    model: Path,
    artifact: Path,
    options: CompileOptions,
    records: Sequence[Mapping[str, Any]] = (),
    observe: Observer = ignore,
    dump: Path | None = None,
    stop_requested: StopRequest = never_stops,
    measure: bool = True,
    data: Mapping[str, Path] | None = None,
    samples: Mapping[str, Path] | None = None,
    memory_bytes: int | None = None,
    logs: Sequence[Log] = (),
    helpers: Helpers | None = None,
    first: First | None = None,
) -> CompileReport:
    """Compiles an ONNX file into an artifact at `artifact`.

    The artifact appears whole and only once it agreed with the reference.

    `records` are earlier measurements; new ones leave as events. Once `stop_requested` answers True, measuring stops
    within a fraction of a second and the best found so far is emitted; what proves the artifact is never left out.
    Without `measure` earlier records and the cost model decide.

    A model that is bound in several ways (`options.bindings`) goes through all steps once for each, with the records of
    those before; each is proved by itself, and one artifact holds them.

    What spends a part of the tolerance (Winograd, 24-bit weights), or rounds because the job's precision permits it, is
    left out in a second round when the result does not agree. `data` says where all external data lies, by its path in
    the model; None: beside the model. `memory_bytes` is what this process may use; None: as much as the machine has.
    `samples` are .npz archives of inputs, by what the caller calls them: the artifact is judged on each, and timed on
    the first; of several bindings, the one whose shapes a sample has. With `logs`, one for each binding, an
    earlier compilation on one device is replayed: nothing is measured, and each step knows what it knew then.

    `helpers` may measure some of the kernels of a model that is bound in one way.

    Where `first` is given, measuring takes long, and the model has one binding on one device, an artifact that the cost
    model and earlier records choose is made before, proved like any other, and given to it.

    In precision int8 the model is quantised first, on all that the archives of samples hold
    (`compiler.quantize.compilation`); what comes out is compiled, and is the reference.

    For a target whose models are compiled whole its kind does all of this, and is given this function for parts that
    its device does not carry out.

    Raises the errors of `compiler.errors`.
    """
    trace = Trace(observe, dump)
    if (whole := whole_kind_of(options.compiled_for)) is not None:
        part = partial(
            compile_model, records=records, stop_requested=stop_requested, measure=measure, memory_bytes=memory_bytes
        )
        return whole.compile(trace, model, artifact, options, data, samples or {}, part)
    options, said = bind_what_is_open(model, options, OPERATORS, data)
    for notice in said:
        trace.notice(notice)
    if options.devices:
        return compile_for_devices(
            trace, model, artifact, options, records, stop_requested, measure, data, memory_bytes, samples
        )
    with source_of(trace, model, options, data, samples or {}) as source:
        if len(options.bindings) > 1:
            return compile_bindings(
                trace, source, artifact, options, records, stop_requested, measure, memory_bytes, logs
            )
        log = logs[0] if logs else None
        session = Session.of(
            options, records, trace, stop_requested, measure, artifact.parent, log, helpers, source.quantised
        )
        _, _, come = compile_binding(
            session, source.model, artifact, source.data, memory_bytes, source.samples, first=first
        )
        return come


def compile_bindings(
    trace: Trace,
    source: Source,
    artifact: Path,
    options: CompileOptions,
    records: Sequence[Mapping[str, Any]],
    stop_requested: StopRequest,
    measure: bool,
    memory_bytes: int | None,
    logs: Sequence[Log],
) -> CompileReport:
    """Compiles for each of several bindings in turn, and packs them into one artifact."""
    model, data, bindings = source.model, source.data, options.bindings
    shares = samples_of_bindings(trace, model, bindings, data, source.samples)
    known = [*records]
    weights: Weights | None = None
    alone = artifact.with_name(f".{artifact.name}.binding")
    each = []
    try:
        for turn, (one, share) in enumerate(zip(bindings, shares, strict=True)):
            trace.turn, trace.turns = turn, len(bindings)
            log = logs[turn] if logs else None
            session = Session.of(
                one,
                [] if log else known,
                trace,
                stop_requested,
                measure,
                artifact.parent,
                log,
                quantised=source.quantised,
            )
            front, built, come = compile_binding(session, model, alone, data, memory_bytes, share, weights)
            each.append(proved(session, front, built, come, alone))
            known, weights = [record.to_json() for record in session.records], built.weights
        return joined(trace, each, built.program.weights, options, artifact)
    finally:
        alone.unlink(missing_ok=True)


def samples_of_bindings(
    trace: Trace,
    model: Path,
    bindings: Sequence[CompileOptions],
    data: Mapping[str, Path] | None,
    samples: Mapping[str, Path],
) -> list[dict[str, Path]]:
    """Of each binding the samples that have its shapes. Raises InputsError for one that has those of none."""
    if not samples:
        return [{} for _ in bindings]
    with trace.step("load"):
        each = [load(model, one, OPERATORS, data=data) for one in bindings]
        return share_out(samples, [specs_of(one.graph, one.open_shapes, one.border) for one in each])


def compile_binding(
    session: Session,
    model: Path,
    artifact: Path,
    data: Mapping[str, Path] | None,
    memory_bytes: int | None,
    samples: Mapping[str, Path],
    earlier: Weights | None = None,
    first: First | None = None,
) -> tuple[Front, Built, CompileReport]:
    """Compiles for the one binding of the session's options; `earlier` weights begin the file of weights."""
    front = front_of(session, model, data, memory_bytes, samples)
    if first is not None and session.may_measure and session.options.tuning_budget_s >= FIRST_FROM_S:
        if session.helpers is None:
            make_first(session, front, artifact, first)
        else:
            session.meanwhile = partial(make_first, session, front, artifact, first)
    built, come = compile_front(session, front, artifact, earlier)
    return front, built, come


def make_first(session: Session, front: Front, artifact: Path, first: First) -> None:
    """Makes the artifact that needs no measuring, and gives it away; the session stays as it was.

    Whatever goes wrong is left to the compilation itself to find.
    """
    at = artifact.with_name(f".{artifact.name}.first")
    unmeasured = replace(
        session,
        measures=False,
        helpers=None,
        meanwhile=None,
        trace=Trace(),
        records=Records([*session.records]),
        log=Log(),
    )
    try:
        _, come = compile_front(unmeasured, front, at)
    except TilewrightError as error:
        print(f"no first artifact: {error}", file=sys.stderr)
        return
    first(at, come)
    worst = max((one.max_relative for one in come.errors), default=0.0)
    said = f"a first artifact, not yet measured, agrees within {worst:.1e} of the largest value"
    session.trace.remark(f"{said}: download it with partial=true")


def compile_front(
    session: Session, front: Front, artifact: Path, earlier: Weights | None = None
) -> tuple[Built, CompileReport]:
    """The steps behind the front ones: an artifact at `artifact` that agreed with the reference."""
    unproven = artifact.with_name(f".{artifact.name}.unproven")
    measured = front.evaluated.trials
    for rounding in roundings(session):
        built = build(session, front, rounding, unproven, earlier)
        measured += built.tiles.tiled.measured
        try:
            with session.trace.step("agree"):
                proof = prove(session, front, built)
                if proof.agreement and (unshown := proof.agreement.unshown):
                    built = replace(built, packed=packed_unverified(built.packed, unshown))
                os.replace(unproven, artifact)
            return built, report(session, front, built, proof, measured)
        except (Disagreement, Unverified) as error:
            inexact = built.rounded(session)
            if not inexact or (isinstance(error, Unverified) and BY_ROUNDING not in error.details):
                raise
            session.trace.notice(f"compiled again without {', '.join(sorted(inexact))}, {blame(error)}")
            session.keep(built.records)
        finally:
            unproven.unlink(missing_ok=True)
    raise InternalError("the round that rounds nothing has an algorithm that could round less")


def compile_for_devices(
    trace: Trace,
    model: Path,
    artifact: Path,
    options: CompileOptions,
    records: Sequence[Mapping[str, Any]],
    stop_requested: StopRequest,
    measure: bool,
    data: Mapping[str, Path] | None,
    memory_bytes: int | None,
    samples: Mapping[str, Path] | None,
) -> CompileReport:
    """Compiles for several devices: for the most able one alone as ever, then its kernels in parts for all of them."""
    devices = devices_of(options)
    main = devices.options[0]
    session = Session.of(main, records, trace, stop_requested, measure, artifact.parent)
    session.kept = session.kept.also_without("slices")
    front = front_of(session, model, data, memory_bytes, samples)
    demand_divisible(front)
    carried_positions(front.loaded.graph, options.carry)
    alone = artifact.with_name(f".{artifact.name}.alone")
    try:
        built, come = compile_front(session, front, alone)
        known = [record.to_json() for record in session.records]
        others = [
            Session.of(one, known, trace, stop_requested, measure, artifact.parent) for one in devices.options[1:]
        ]
        return divided(devices, [session, *others], front, built, come, alone, artifact)
    finally:
        alone.unlink(missing_ok=True)


def front_of(
    session: Session,
    model: Path,
    data: Mapping[str, Path] | None,
    memory_bytes: int | None = None,
    samples: Mapping[str, Path] | None = None,
) -> Front:
    """The steps that do not depend on the rounding policy."""
    trace, kept = session.trace, session.kept
    with trace.step("load"):
        loaded = load(model, session.options, OPERATORS, data=data)
        if session.quantised is not None:
            loaded = replace(loaded, digest=session.quantised.given_digest)
        shapes = loaded.open_shapes

        def at(sizes: Mapping[str, int]) -> Loaded:
            assert shapes is not None
            return load(model, exactly(session.options, loaded.graph, shapes, sizes), OPERATORS, data=data)

        def fixed(given: Mapping[str, Example]) -> Loaded | None:
            shaped = {loaded.graph.values[id].name: loaded.graph.type(id).dims for id in loaded.graph.inputs}
            specs = {name: InputSpec(value=nested(elements, shaped[name])) for name, elements in given.items()}
            constant = replace(session.options, inputs={**session.options.inputs, **specs})
            try:
                return load(model, constant, OPERATORS, data=data)
            except CallerError:
                return None

        runs = is_run(loaded.graph, session.options, session.backend.runner)
        effort = foreseen(loaded.graph, session.options, memory_bytes) if runs else None
        for notice in (*loaded.notices, *(proof_notices(effort) if effort else ())):
            trace.notice(notice)
        if shapes is None or not shapes.dimensions:
            if session.options.ranges:
                raise InternalError("the front end left no dimension open")
            usual, given = loaded.graph, read_samples(samples or {}, loaded.graph, loaded.border)
        else:
            usual = at(usual_sizes(session.options, shapes)).graph
            given = read_sized(samples or {}, loaded.graph, shapes, lambda sizes: at(sizes).graph, loaded.border)
        derived = derive(usual)
        trace.show("load", loaded.graph)
    with trace.step("rewrite"):
        rewritten = rewrite(loaded.graph, rules=kept.rules)
        rewritten.verify()
        trace.show("rewrite", rewritten.graph)
        trace.show("rewrite_log", rewritten)
    with trace.step("choose"):
        evaluated = evaluate_choices(session, rewritten.graph)
        evaluated.chosen.verify()
        trace.show("choose", evaluated.chosen.graph)
        trace.show("choose_log", evaluated.chosen)
    with trace.step("fuse"):
        fused = fuse(evaluated.chosen.graph, kept.without_steps, evaluated.kernels)
        fused.verify()
        trace.show("fuse", fused.kernels)
        trace.show("fuse_refusals", fused)
    front = Front(loaded, effort, rewritten, evaluated, fused, derived, usual, at, fixed, given)
    foreseen_outputs(front, session)
    return front


def report(session: Session, front: Front, built: Built, proof: Proof, measured: Sequence[Record]) -> CompileReport:
    """What came of it, with what this run took and measured."""
    target, plan, tiled, agreed = session.backend.target, built.plans.plan, built.tiles.tiled, proof.agreement
    for notice in run_notices(agreed is not None, session.backend.runner, target.name):
        session.trace.notice(notice)
    return CompileReport(
        model_digest=front.loaded.digest,
        artifact_digest=built.packed.digest,
        artifact_bytes=built.packed.bytes,
        target=target.name,
        hardware=target.hardware,
        threads=plan.lanes,
        phase_seconds=session.trace.seconds,
        nodes=len(front.loaded.graph.nodes),
        kernels_before_fusion=front.fused.before,
        kernels=len(built.tiles.kernels.calls),
        arena_bytes=plan.arena_bytes,
        weight_bytes=len(built.program.weights),
        latency_s=proof.latency_s,
        errors=agreed.errors if agreed else (),
        tolerance=agreed.tolerance if agreed else 0.0,
        verified=agreed is not None and agreed.passed,
        unshown=agreed.unshown if agreed else (),
        cases=tuple(JudgedCase(one.name, one.decided, one.why or "") for one in agreed.each) if agreed else (),
        records_measured=len(measured),
        records_reused=sum(record not in measured for record in tiled.reused),
        rank_correlation=tiled.ranking.within if tiled.ranking else None,
        ranked_kernels=tiled.ranking.kernels if tiled.ranking else 0,
        plans=built.plans.choice.reached,
        notices=tuple(session.trace.notices),
        input_ranges=front.input_ranges,
        samples=tuple(sample.digest for sample in front.samples),
        sizes=proof.sizes,
        layers=errors_of_layers(session, front, built),
        quantised=session.quantised.report if session.quantised else None,
        precisions=built.precisions.layers,
    )
