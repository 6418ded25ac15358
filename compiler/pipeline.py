"""The compiler on one page: the list of its steps, each timed, verified and shown."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from compiler.codegen.weights import Weights
from compiler.contract import CompileReport, JudgedCase
from compiler.contract.systems import LINUX
from compiler.devices.kinds import whole_kind_of
from compiler.errors import Disagreement, InternalError, TilewrightError, Unverified
from compiler.frontend import bind_what_is_open
from compiler.fuse import fuse
from compiler.ir.machine import Record
from compiler.knowledge.records import Records
from compiler.knowledge.replay import Log
from compiler.ops import OPERATORS
from compiler.pack.pack import packed_unverified, packed_with_probe
from compiler.prove.beside import explained, is_far
from compiler.quantize.compilation import Source, source_of
from compiler.request import ALONE, First, Host, Request
from compiler.rewrite import rewrite
from compiler.session import Session
from compiler.steps.building import Built, Front, build
from compiler.steps.cache_costs import demand_cache
from compiler.steps.choosing import evaluate_choices
from compiler.steps.chunking import requests_of_chunks
from compiler.steps.dividing.devices import devices_of
from compiler.steps.dividing.step import demand_divisible, divided
from compiler.steps.foreseeing import BY_ROUNDING, foreseen_outputs, run_notices
from compiler.steps.joining import Pieces, joined, proved
from compiler.steps.loading import open_model, requests_of_bindings
from compiler.steps.profiles import with_profiles
from compiler.steps.proving import Proof, blame, errors_of_layers, prove
from compiler.steps.states.carried import carried_by, carried_positions
from compiler.steps.tiling.step import roundings
from compiler.trace import Trace, ignore

FIRST_FROM_S = 60.0
"""Seconds of a tuning budget from which on an artifact is made before: below it the compilation is soon over."""


def compile_model(request: Request, host: Host = ALONE) -> CompileReport:
    """Compiles an ONNX file into an artifact.

    A model that is bound in several ways, or compiled for several profiles (`options.bindings`), goes through all steps
    once for each, with the records of those before; each is proved by itself, and one artifact holds them.

    What spends a part of the tolerance (Winograd, 24-bit weights), or rounds because the job's precision permits it, is
    left out in a second round when the result does not agree.

    In precision int8 the model is quantised first, on all that the archives of samples hold
    (`compiler.quantize.compilation`); what comes out is compiled, and is the reference.

    For a target whose models are compiled whole its kind does all of this, and is given this function for parts that
    its device does not carry out.

    Raises the errors of `compiler.errors`.
    """
    trace = Trace(host.observe, host.dump)
    if (whole := whole_kind_of(request.options.compiled_for)) is not None:
        silent = replace(host, observe=ignore, dump=None, helpers=None, first=None)
        return whole.compile(request, trace, partial(compile_model, host=silent))
    options, notices = bind_what_is_open(request.file, with_profiles(request.file, request.options), OPERATORS)
    for notice in notices:
        trace.notice(notice)
    request = replace(request, options=options)
    if options.devices:
        return compile_for_devices(request, replace(host, helpers=None), trace)
    with source_of(trace, request) as source:
        if len(options.bindings) > 1 or options.chunks:
            return compile_bindings(source, replace(host, helpers=None), trace)
        log = request.logs[0] if request.logs else None
        (alone,) = options.bindings
        session = Session.of(alone, host, trace, request.artifact.parent, log, source.quantised)
        _, _, come = compile_binding(session, replace(source.request, options=alone), first=host.first)
        return come


def compile_bindings(source: Source, host: Host, trace: Trace) -> CompileReport:
    """Compiles for each of several bindings, of each of several profiles, in turn; packs them into one artifact.

    So are the portions of a model whose output comes in pieces (`compiler.steps.chunking`).
    """
    whole = source.request
    requests = requests_of_bindings(trace, whole)
    bindings, windows = len(requests), None
    if whole.options.chunks:
        with trace.step("load"):
            windows, portions = requests_of_chunks(requests)
        requests += portions
    weights: Weights | None = None
    found: Mapping[str, np.ndarray] = {}
    alone = whole.beside("binding")
    each = []
    try:
        for turn, request in enumerate(requests):
            trace.turn, trace.turns = turn, len(requests)
            log = whole.logs[turn] if whole.logs else None
            if turn and request.options.target != requests[turn - 1].options.target:
                found = {}
            session = Session.of(request.options, host, trace, alone.parent, log, source.quantised)
            made = compile_binding(session, replace(request, artifact=alone), weights, found=found)
            each.append(proved(session, *made, alone))
            host, weights, found = replace(host, records=session.known), made[1].weights, each[-1].left
            file = made[1].program.weights
            del made  # with the graph of this binding, before that of the next is there
        pieces = Pieces.of(windows, each[bindings:]) if windows else None
        return joined(trace, each[:bindings], file, whole.options, whole.artifact, pieces)
    finally:
        alone.unlink(missing_ok=True)


def compile_for_devices(request: Request, host: Host, trace: Trace) -> CompileReport:
    """Compiles for several devices: for the most able one alone as ever, then its kernels in parts for all of them."""
    devices = devices_of(request.options)
    main, *others = devices.options
    session = Session.of(main, host, trace, request.artifact.parent)
    session.kept = session.kept.also_without("slices")
    front = front_of(session, replace(request, options=main))
    demand_divisible(front)
    carried_positions(front.opened.loaded.graph, request.options.named_states)
    alone = request.beside("alone")
    try:
        built, come = compile_front(session, front, alone)
        host = replace(host, records=session.known)
        sessions = [session, *(Session.of(one, host, trace, request.artifact.parent) for one in others)]
        return divided(devices, sessions, front, built, come, alone, request.artifact)
    finally:
        alone.unlink(missing_ok=True)


def compile_binding(
    session: Session,
    request: Request,
    earlier: Weights | None = None,
    first: First | None = None,
    found: Mapping[str, np.ndarray] | None = None,
) -> tuple[Front, Built, CompileReport]:
    """Compiles for the one binding of the session's options; `earlier` weights begin the file of weights.

    `found` are states that another binding left, by name of the input, with which the proof of states begins.
    """
    front = replace(front_of(session, request), found=found or {})
    if first is not None and session.may_measure and session.options.tuning_budget_s >= FIRST_FROM_S:
        if session.helpers is None:
            make_first(session, front, request, first)
        else:
            session.meanwhile = partial(make_first, session, front, request, first)
    built, come = compile_front(session, front, request.artifact, earlier)
    return front, built, come


def make_first(session: Session, front: Front, request: Request, first: First) -> None:
    """Makes the artifact that needs no measuring, and gives it away; the session stays as it was.

    Whatever goes wrong is left to the compilation itself to find.
    """
    at = request.beside("first")
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


def front_of(session: Session, request: Request) -> Front:
    """The steps that do not depend on the rounding policy."""
    trace, kept = session.trace, session.kept
    with trace.step("load"):
        opened = open_model(session, request)
        loaded = opened.loaded
        carried = carried_by(loaded.graph, loaded.open_shapes, loaded.border, session.options)
        trace.show("load", opened.loaded.graph)
    with trace.step("rewrite"):
        rewritten = rewrite(opened.loaded.graph, rules=kept.rules)
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
    foreseen_outputs(session, opened.loaded, opened.effort, opened.samples)
    demand_cache(session, opened)
    return Front(opened, rewritten, evaluated, fused, carried)


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
                if proof.probe:
                    built = replace(built, packed=packed_with_probe(built.packed, proof.probe))
                elif proof.agreement:
                    session.trace.notice("the artifact has no probe, by which a machine is checked that loads it")
                built = replace(built, packed=built.packed.moved_to(artifact))
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


def report(session: Session, front: Front, built: Built, proof: Proof, measured: Sequence[Record]) -> CompileReport:
    """What came of it, with what this run took and measured."""
    target, plan, tiled, agreed = session.backend.target, built.plans.plan, built.tiles.tiled, proof.agreement
    name = target.name if session.options.system == LINUX.name else f"{target.name} under {session.options.system}"
    beside = agreed.beside if agreed and session.options.arithmetic == "fp32" else ()
    layers = errors_of_layers(session, front, built, is_far=any(map(is_far, beside)))
    told = run_notices(agreed is not None, session.backend.runner, name)
    told += explained(beside, built.rounded(session), layers)
    for notice in told:
        session.trace.notice(notice)
    return CompileReport(
        model_digest=front.opened.loaded.digest,
        artifact_digest=built.packed.digest,
        artifact_bytes=built.packed.bytes,
        target=target.name,
        hardware=target.hardware,
        threads=plan.lanes,
        phase_seconds=session.trace.seconds,
        nodes=len(front.opened.loaded.graph.nodes),
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
        beside_float32=agreed.beside if agreed else (),
        records_measured=len(measured),
        records_reused=sum(record not in measured for record in tiled.reused),
        rank_correlation=tiled.ranking.within if tiled.ranking else None,
        ranked_kernels=tiled.ranking.kernels if tiled.ranking else 0,
        plans=built.plans.choice.reached,
        notices=tuple(session.trace.notices),
        input_ranges=front.opened.input_ranges,
        samples=tuple(sample.digest for sample in front.opened.samples),
        sizes=proof.sizes,
        layers=layers,
        quantised=session.quantised.report if session.quantised else None,
        precisions=built.precisions.layers,
    )
