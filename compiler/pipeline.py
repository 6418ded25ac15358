"""The compiler on one page: the list of its steps, each timed, verified and shown."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from compiler.contract import CompileOptions, CompileReport
from compiler.devices.device import Backend
from compiler.devices.kinds import backend_of
from compiler.errors import Disagreement
from compiler.frontend import Loaded, load
from compiler.fuse import fuse
from compiler.fuse.fuse import Fused
from compiler.fuse.joins import settle
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.graph import Graph
from compiler.ir.machine import Record, Workload, plausible
from compiler.ir.plan import Plan
from compiler.ir.program import Program
from compiler.ir.target import Target
from compiler.ir.tile import Cost, Menu, Tile
from compiler.knowledge.budget import TuningBudget
from compiler.knowledge.records import Records
from compiler.left_out import remaining
from compiler.measure.latency import model_latency
from compiler.ops import OPERATORS
from compiler.pack.explanation import Explanation
from compiler.pack.facts import Facts
from compiler.pack.loader import Model
from compiler.pack.pack import PackedArtifact, pack
from compiler.prove.agree import DEFAULT_TOLERANCE, LARGEST, Agreement, agree
from compiler.prove.bisect import bisect
from compiler.rewrite import rewrite
from compiler.schedule import in_company
from compiler.steps import state_of
from compiler.steps.choosing import Offers, weigh_choices
from compiler.steps.costs import offered_joins
from compiler.steps.explain import explain
from compiler.steps.lane_costs import meeting_seconds
from compiler.steps.planning import Planned, Scheduled, planned
from compiler.trace import Hurry, Observer, Trace, ignore, unhurried
from compiler.tuning.tune import Tiled, tune

AGREE_SECONDS = 6.0
"""Edge cases of the agreement check begin while this lasts; the random case is always judged."""
LATENCY_SECONDS = 0.5
ALONE_S = 0.5
"""Of the tuning budget, for a single plan, which is timed shortly for people to see."""
BEYOND_RANGE = "beyond_range"
"""In the details of a Disagreement: the precision whose range a value exceeds."""


def compile_model(
    model: Path,
    artifact: Path,
    options: CompileOptions,
    records: Sequence[Mapping[str, Any]] = (),
    observe: Observer = ignore,
    dump: Path | None = None,
    hurry: Hurry = unhurried,
    measure: bool = True,
    data: Mapping[str, Path] | None = None,
) -> CompileReport:
    """Compiles an ONNX file into an artifact at `artifact`, which appears whole and only once it agreed with the reference.

    `records` are earlier measurements; new ones leave as events. Once `hurry` answers True, measuring stops within a fraction of a
    second and the best found so far is emitted; what proves the artifact is never left out. Without `measure` earlier records and the
    cost model decide. What spends a part of the tolerance (Winograd, 24-bit weights), or rounds because the job's precision permits it, is left
    out in a second round when the result does not agree. `data` says where all external data lies, by its path in the model; None: beside the model.

    Raises the errors of `compiler.errors`.
    """
    trace = Trace(observe, dump)
    kept = remaining(options.without)
    backend = backend_of(options, os.environ)
    lanes = options.threads or backend.target.lanes

    with trace.step("load"):
        loaded = load(model, options, OPERATORS, data=data)
        for notice in loaded.notices:
            trace.notice(notice)
        trace.show("load", loaded.graph)
    with trace.step("rewrite"):
        rewritten = rewrite(loaded.graph, rules=kept.rules)
        rewritten.graph.verify()
        trace.show("rewrite", rewritten.graph)
        trace.show("rewrite_log", _lines([*rewritten.log, "", "refused:", *rewritten.refusals]))
    known = Records(plausible(records))
    tunes = measure and options.tuning_budget_s > 0
    budget = tuning_budget(options, lanes, backend, hurry)
    meeting = meeting_seconds(None) if lanes > 1 else 0.0

    def learn(found: Iterable[Record]) -> None:
        """Tells of records that were not known."""
        for record in found:
            if known.add(record):
                trace.record(record.to_json())

    with trace.step("choose"):
        weighed = weigh_choices(
            rewritten.graph,
            Offers(kept.rules, kept.choices, kept.without_steps),
            backend,
            known,
            options,
            lanes,
            meeting,
            budget if tunes else None,
            trace.notice,
        )
        for workload, record in weighed.measured:
            trace.workload(record.workload, str(workload))
        learn((*weighed.others, *weighed.trials))
        backend, chosen, measured = weighed.backend, weighed.chosen, weighed.trials
        trace.show("choose", chosen.graph)
        trace.show("choose_log", _lines([*chosen.log, "", "not offered:", *chosen.refusals]))
    with trace.step("fuse"):
        fused = fuse(chosen.graph, kept.without_steps, weighed.kernels)
        fused.kernels.verify()
        trace.show("fuse", fused.kernels)
        trace.show("fuse_refusals", _lines(fused.refusals))
    granted = DEFAULT_TOLERANCE["fp32"] if options.tolerance is None else options.tolerance
    for tolerance, precision in ((granted, options.precision), (0.0, "fp32")):
        with trace.step("tile"):
            kernels = backend.stored(fused.kernels, precision)
            with budget.share("device").spending():
                backend, facts_of_device = backend.prepared(kernels, known, measure=tunes and not hurry())
            learn(facts_of_device)
            setting = backend.setting(kernels)
            offered = offered_joins(kernels, weighed.kernels.on(backend, precision), kept.without_steps)
            calls = (*kernels.calls, *(join.call for join in offered))
            workloads = [backend.workload_of(kernels, call) for call in calls]
            with budget.share("device").spending():
                handover = backend.handover(known, measure=tunes and not hurry()) if lanes > 1 else None
            learn([handover] if handover else [])
            with backend.machine(options.seed, hurry, setting, trace.notice) as machine:
                tiled = tune(
                    workloads,
                    backend.target,
                    backend.legal_tiles,
                    lanes,
                    backend.starting_points(known, setting),
                    setting,
                    machine if tunes else None,
                    budget,
                    backend.count_tiles,
                    trace,
                    tolerance,
                    precision,
                    backend.choose,
                    state_of(handover),
                    (*in_company(kernels), *(True for _ in offered)),
                )
            measured += tiled.measured
            trace.show("tile", _tiled_text(backend, calls, workloads, tiled))
            apart, joined = tiled.menus[: len(kernels.calls)], tiled.menus[len(kernels.calls) :]
            settled = settle(kernels, offered, apart, joined, lanes, meeting)
            settled.kernels.verify()
            kernels, menus = settled.kernels, settled.menus
            trace.show("joins", _lines(settled.log))
            explanation = explain(
                rewritten.log, (*rewritten.refusals, *chosen.refusals), fused.refusals, chosen.log, settled.log
            )
            trace.show("explanation", explanation)
        with trace.step("schedule"):
            measures = tunes and not hurry()
            of_calls = tuple(backend.workload_of(kernels, call) for call in kernels.calls)
            scheduled = Scheduled(kernels, of_calls, menus, lanes, backend, setting, handover)
            race = partial(
                backend.race,
                kernels,
                seed=options.seed,
                hurry=hurry,
                place=artifact.parent,
                share=budget.share("plans"),
            )
            plans = planned(
                scheduled, known, options, budget, machine if measures else None, race if measures else None, learn
            )
            plan = plans.plan
            for one in (plan, *plans.others):
                trace.show("schedule", one)
            trace.show("schedules", _lines(plans.choice.reached))
            trace.show("budget", budget)
        with trace.step("emit"):
            program = backend.emit(kernels, plan, plans.others)
            trace.show("emit", _lines(f"// {name}\n{text}" for name, text in _generated(program)))
        with trace.step("pack"):
            facts = _facts(loaded, options, backend.target, fused, plans, handover, tiled, explanation)
            unproven = artifact.with_name(f".{artifact.name}.unproven")
            used = [
                *tiled.measured,
                *tiled.reused,
                *facts_of_device,
                *([handover] if handover else []),
                *plans.records,
            ]
            packed = pack(program, plan, kernels, used, facts, unproven, plans.others)
        with trace.step("agree"):
            try:
                proof = _prove(loaded.graph, kernels, plans, packed, options, precision, backend)
                os.replace(unproven, artifact)
                break
            except Disagreement as error:
                inexact = {
                    name
                    for one in (plan, *plans.others)
                    for name in {tile.algorithm for tile, _ in one.tiles} & tiled.inexact
                    | backend.rounded(one, precision)
                }
                if not inexact:
                    raise
                for record in used:
                    known.add(record)
                trace.notice(f"compiled again without {', '.join(sorted(inexact))}, {_blame(error)}")
            finally:
                unproven.unlink(missing_ok=True)
    if proof.agreement is None:
        trace.notice(f"nothing was run or compared with the reference: this machine is no {backend.target.name}")
    return CompileReport(
        model_digest=loaded.digest,
        artifact_digest=packed.digest,
        artifact_bytes=packed.bytes,
        target=backend.target.name,
        hardware=backend.target.hardware,
        threads=plan.lanes,
        phase_seconds=trace.seconds,
        nodes=len(loaded.graph.nodes),
        kernels_before_fusion=fused.before,
        kernels=len(kernels.calls),
        arena_bytes=plan.arena_bytes,
        weight_bytes=len(program.weights),
        latency_s=proof.latency_s,
        errors=proof.agreement.errors if proof.agreement else (),
        tolerance=proof.agreement.tolerance if proof.agreement else 0.0,
        records_measured=len(measured),
        records_reused=sum(record not in measured for record in tiled.reused),
        rank_correlation=tiled.ranking.within if tiled.ranking else None,
        ranked_kernels=tiled.ranking.kernels if tiled.ranking else 0,
        plans=plans.choice.reached,
        notices=tuple(trace.notices),
    )


def tuning_budget(options: CompileOptions, lanes: int, backend: Backend, hurry: Hurry) -> TuningBudget:
    """What a job grants for measuring; what one lane has no use for, or a single plan, is left to the tiles."""
    most: dict[str, float] = {}
    if lanes == 1:
        most |= {"lanes": 0.0, "beside": 0.0, "stages": 0.0}
    if options.scheduler != "auto" or (lanes == 1 and not backend.target.name.startswith("cuda")):
        most |= {"plans": ALONE_S}
    return TuningBudget(options.tuning_budget_s, options.tuning_trials, hurry, most=most)


def _cores(plan: Plan) -> str:
    return (
        "cores that are far from each other"
        if math.isinf(plan.most_handover_s)
        else "cores that are near to each other"
    )


def _blame(error: Disagreement) -> str:
    """What was at fault, as far as is known."""
    return str(error) if BEYOND_RANGE in error.details else f"whose rounding errors may be at fault: {error}"


def _generated(program: Program) -> list[tuple[str, str]]:
    """The sources that were made for this model, by name."""
    return [(name, text) for name, text in sorted(program.sources.items()) if name.endswith((".c", ".cu"))]


@dataclass(frozen=True)
class _Proof:
    """What running the artifact showed; no agreement for a target that does not run here."""

    agreement: Agreement | None
    latency_s: float


def _prove(
    graph: Graph,
    kernels: KernelGraph,
    plans: Planned,
    packed: PackedArtifact,
    options: CompileOptions,
    precision: str,
    backend: Backend,
) -> _Proof:
    """Runs the artifact, through its own loader, against the reference on the unrewritten graph, under each of its plans.

    Raises Disagreement that names the first diverging node.
    """
    if not backend.target.is_here:
        return _Proof(None, 0.0)
    with ExitStack() as opened:
        model, *others = (opened.enter_context(Model(packed.path, plan=number)) for number in plans.numbers)
        verdict = agree(
            model.run_flat,
            graph,
            OPERATORS,
            options.tolerance,
            options.seed,
            precision=options.precision,
            largest=LARGEST.get(precision, math.inf),
            budget_s=AGREE_SECONDS,
            others=[other.run_flat for other in others],
        )
        if verdict.beyond_range:
            fix = "ask for precision bf16, which reaches as far as fp32, or for fp32"
            raise Disagreement(verdict.beyond_range, fix=fix, details={BEYOND_RANGE: precision})
        if not verdict.passed and verdict.failing_inputs is not None:
            blamed = (plans.plan, *plans.others)[verdict.failing_way]
            told = f"the program under its plan for {_cores(blamed)}" if plans.others else "the program"
            with backend.stepper(kernels, blamed) as stepper:
                bisect(graph, kernels, stepper, verdict.failing_inputs, OPERATORS, verdict.tolerance, told)
        if not verdict.passed:
            raise Disagreement(
                "nothing shows that the artifact computes what the model says: rounding alone exceeds what may be granted in "
                f"every case ({', '.join(verdict.undecided)})",
                fix='state how much error is acceptable, such as {"tolerance": 0.05}',
            )
        inputs = list(model.random_inputs(options.seed).values())

        def run_once() -> None:
            model.run_flat(inputs)

        latency = model_latency(run_once, LATENCY_SECONDS)
    return _Proof(verdict, latency.median)


def _facts(
    loaded: Loaded,
    options: CompileOptions,
    target: Target,
    fused: Fused,
    plans: Planned,
    handover: Record | None,
    tiled: Tiled,
    explanation: Explanation,
) -> Facts:
    """What the artifact says of its making: nothing in it may differ from run to run, such as what this run had time to measure."""
    return Facts(
        model_digest=loaded.digest,
        options=options.to_json(),
        target=target.name,
        hardware=target.hardware,
        operators=len(loaded.graph.nodes),
        kernels_before_fusion=fused.before,
        costs=plans.costs,
        steps=(("tile", str(tiled.ranking)),) if tiled.ranking else (),
        plans=tuple(one if one.measured_s else replace(one, found_s=None) for one in plans.choice.reached),
        handover_s=handover.seconds if handover else 0.0,
        predicted=plans.expected,
        measured=plans.choice.spans,
        explanation=explanation,
        notices=loaded.notices,
    )


def _tiled_text(backend: Backend, calls: Sequence[Call], workloads: Sequence[Workload], tiled: Tiled) -> str:
    """What is known of the device, how good the model was, and for each call the tiles that were considered."""
    lines = [str(backend)]
    lines += [str(tiled.ranking)] if tiled.ranking else []
    lines += [
        f"{call}\n    {_menu_text(backend, workload, menu, tiled.tried[menu.workload])}"
        for call, workload, menu in zip(calls, workloads, tiled.menus, strict=True)
    ]
    return _lines(lines)


def _menu_text(backend: Backend, workload: Workload, menu: Menu, tried: Sequence[tuple[Tile, Cost]]) -> str:
    """All tiles that were tried or take part in scheduling; of the latter, into how many tile tasks they cut the kernel."""
    tasks = {variant.tile: f" in {variant.tiles} tiles" for variant in menu.variants}
    known = {**{variant.tile: variant.cost for variant in menu.variants}, **dict(tried)}
    told = {option: backend.told(workload, option) for option in known}
    options = "\n    ".join(
        f"{1e6 * cost.seconds:10.1f} us {cost.source:9} {tile}{tasks.get(tile, '')}{told[tile] and f': {told[tile]}'}"
        for tile, cost in sorted(known.items(), key=lambda one: one[1].seconds)
    )
    return f"workload {menu.workload}\n    {options}"


def _lines(items: Any) -> str:
    return "\n".join(map(str, items))
