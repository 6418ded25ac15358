"""The steps that build an artifact under one rounding policy: tile, schedule, emit, pack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from compiler.codegen.weights import Weights
from compiler.contract.kinds import AUTO
from compiler.fuse.fuse import Fused
from compiler.fuse.joins import ChosenJoins
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record
from compiler.ir.plans.plan import Plan
from compiler.ir.program import Program
from compiler.ir.region import inner_tiles
from compiler.pack.explanation import Entry, Explanation
from compiler.pack.facts import Facts
from compiler.pack.graphs import Step
from compiler.pack.pack import PackedArtifact, pack
from compiler.prove.agree import default_tolerance
from compiler.prove.sizes import usual_sizes
from compiler.rewrite.rewrite import Rewritten
from compiler.schedule import schedule
from compiler.schedule.memory.states import states_of
from compiler.session import Session
from compiler.steps.choosing import EvaluatedChoices
from compiler.steps.costs.lanes import lane_costs
from compiler.steps.explain import applications, explain, made
from compiler.steps.loading import Opened
from compiler.steps.planning.step import Planned, Scheduled, planned
from compiler.steps.precisions import SHARE, Precisions, chosen_precisions, one_precision
from compiler.steps.states.carried import carried_positions
from compiler.steps.tiling.slices import OpenBatch, Slices, slices_of, with_slices
from compiler.steps.tiling.step import Rounding, TiledKernels, tile_kernels
from compiler.steps.weights import weights_notices, weights_report


@dataclass(frozen=True)
class Front:
    """What does not depend on the rounding policy: the model as it was loaded, rewritten, chosen and fused.

    carried  by name of an output the input that it is in the next run
    found    by name of such an input what the proof begins with, where another binding's runs left it
    """

    opened: Opened
    rewritten: Rewritten
    evaluated: EvaluatedChoices
    fused: Fused
    carried: Mapping[str, str] = field(default_factory=dict)
    found: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def graphs(self) -> tuple[Step, ...]:
        """As loaded, rewritten, and with the choices that its kernels' costs decided."""
        rewritten, chosen = self.rewritten, self.evaluated.chosen
        return (
            Step("load", self.opened.loaded.graph),
            Step("rewrite", rewritten.graph, applications(rewritten.log)),
            Step("choose", chosen.graph, made(chosen.log)),
        )

    def explained(self, tiles: TiledKernels) -> Explanation:
        """With the joins that tiling settled."""
        chosen = self.evaluated.chosen
        refusals = (*self.rewritten.refusals, *chosen.refusals)
        explained = explain(self.rewritten.log, refusals, self.fused.refusals, chosen.log, tiles.settled.log)
        return replace(explained, weights=weights_report(tiles.kernels, tiles.settled.menus))


@dataclass(frozen=True)
class Built:
    """An artifact that nothing has proved yet, with all that it is made of.

    `tiles` are of all kernels, or of those of one of `slices` of a batch, `whole` what the plans are of. `records` are
    those by which it was made, `weights` what its weights file holds.
    """

    rounding: Rounding
    precisions: Precisions
    tiles: TiledKernels
    whole: ChosenJoins
    plans: Planned
    program: Program
    packed: PackedArtifact
    records: Sequence[Record]
    weights: Weights
    slices: int = 1

    @property
    def kernels(self) -> KernelGraph:
        """The kernels with the tiles that were chosen."""
        return self.whole.kernels

    def one_by_one(self, plan: Plan) -> tuple[KernelGraph, Plan]:
        """The kernels that a plan runs, or those of one slice of a batch, and a plan that has their tiles."""
        if self.slices == 1:
            return self.kernels, plan
        found = schedule(self.tiles.kernels, self.tiles.settled.menus, 1, lane_costs(None), "sequential")
        return self.tiles.kernels, found[0].plan

    @property
    def all_plans(self) -> tuple[Plan, ...]:
        """The one for the cores as they are, and those for the other state."""
        return (self.plans.plan, *self.plans.others)

    def rounded(self, session: Session) -> frozenset[str]:
        """The algorithms of its plans that exact ones could replace.

        These are those that spend some of the tolerance, or round as the precision permits.
        """
        found: set[str] = set()
        for plan in self.all_plans:
            found |= {tile.algorithm for tile, _ in plan.tiles} & self.tiles.tiled.inexact
            found |= session.backend.rounded(plan, self.precisions.precision)
        inside = {tile.algorithm for tile in inner_tiles(self.kernels)}
        return frozenset(found | inside & {*self.tiles.tiled.inexact, self.precisions.precision})


def build(session: Session, front: Front, rounding: Rounding, at: Path, earlier: Weights | None = None) -> Built:
    """An artifact at `at`, whose weights follow those of `earlier` programs."""
    trace = session.trace
    with trace.step("tile"):
        precisions = _precisions(session, front, rounding)
        stored, costs = precisions.kernels, front.evaluated.kernels
        slices = _slices(session, front, precisions)
        one, lanes = stored, None
        if isinstance(slices, Slices):
            one, lanes = slices.kernels, 1
            session.budget.leave("lanes", "stages")
        tiles = tile_kernels(session, one, costs, rounding.tolerance, precisions.precision, precisions.exact, lanes)
        tiles.verify()
        whole = slices.around(tiles.settled, session) if isinstance(slices, Slices) else tiles.settled
        whole.kernels.verify()
        explanation = with_slices(replace(front.explained(tiles), precisions=precisions.entries), slices)
        if precisions.summary:
            trace.notice(precisions.summary)
            trace.show("precisions", precisions)
        for notice in weights_notices(tiles.settled.menus):
            trace.notice(notice)
        trace.show("tile", tiles)
        trace.show("joins", lines(tiles.settled.log))
        trace.show("explanation", explanation)
    with trace.step("schedule"):
        plans = _planned(session, tiles, whole, front)
        for plan in (plans.plan, *plans.others):
            trace.show("schedule", plan)
        trace.show("schedules", lines(plans.choice.reached))
        trace.show("budget", session.budget)
    with trace.step("emit"):
        weights = session.backend.weights(earlier, small=session.options.weights == "small")
        pairs = carried_positions(front.opened.loaded.graph, front.carried)
        carried = states_of(whole.kernels, (plans.plan, *plans.others), pairs, front.opened.loaded.border.growth)
        program = session.backend.emit(whole.kernels, plans.plan, plans.others, weights, carried)
        trace.show("emit", generated(program))
    with trace.step("pack"):
        facts = replace(_facts(session, front, tiles, plans, explanation), carried=carried)
        records = [*tiles.records, *plans.records]
        used, log = session.log.packed(session.backend.target, records)
        packed = pack(program, plans.plan, whole.kernels, used, facts, at, others=plans.others, log=log)
    count = slices.count if isinstance(slices, Slices) else 1
    return Built(rounding, precisions, tiles, whole, plans, program, packed, records, weights, count)


def _precisions(session: Session, front: Front, rounding: Rounding) -> Precisions:
    fused, options = front.fused.kernels, session.options
    if rounding.precision != AUTO:
        return one_precision(session, fused, rounding.precision)
    accepted = default_tolerance(front.opened.loaded.graph, AUTO) if options.tolerance is None else options.tolerance
    graph, inputs = front.evaluated.chosen.graph, front.opened.judged_inputs(options.seed)
    return chosen_precisions(session, graph, fused, rounding.tolerance, SHARE * accepted, inputs)


def lines(items: Sequence[object]) -> str:
    """One each, as a log shows them."""
    return "\n".join(map(str, items))


def generated(program: Program) -> str:
    """The sources that were made for this model, by name."""
    made = [(name, text) for name, text in sorted(program.sources.items()) if name.endswith((".c", ".cu"))]
    return lines([f"// {name}\n{text}" for name, text in made])


def _slices(session: Session, front: Front, precisions: Precisions) -> Slices | Entry | None:
    shapes, costs = front.opened.loaded.open_shapes, front.evaluated.kernels.on(session.backend, precisions.precision)
    open_batch = None
    if front.opened.texts is not None:
        return None
    if shapes is not None:
        number = next((axes[0] for axes in shapes.inputs if axes), None)
        if number is None or any(number in axes[1:] for axes in shapes.inputs):
            return None
        dimension = shapes.dimensions[number]
        size = front.opened.loaded.graph.inputs[len(shapes.inputs) + number]
        open_batch = OpenBatch(size, usual_sizes(session.options, shapes)[dimension.name], dimension.low)
    return slices_of(session, precisions.kernels, costs, open_batch)


def _planned(session: Session, tiles: TiledKernels, whole: ChosenJoins, front: Front) -> Planned:
    kernels, backend = whole.kernels, session.backend
    workloads = tuple(backend.workload_of(kernels, call) for call in kernels.calls)
    scheduled = Scheduled(kernels, workloads, whole.menus, session.lanes, backend, tiles.setting, tiles.handover)
    if not session.may_measure:
        return planned(scheduled, session, None, None)
    race = partial(
        backend.race,
        kernels,
        seed=session.options.seed,
        stop_requested=session.budget.stop_requested,
        place=session.place,
        share=session.budget.share("plans"),
        inputs=front.opened.program_inputs(session.options.seed),
    )
    return planned(scheduled, session, tiles.machine, race)


def _facts(session: Session, front: Front, tiles: TiledKernels, plans: Planned, explanation: Explanation) -> Facts:
    """What the artifact says of its making.

    Nothing in it may differ from run to run, such as what this run had time to measure.
    """
    shapes = front.opened.loaded.open_shapes
    loaded, target, ranking = front.opened.loaded, session.backend.target, tiles.tiled.ranking
    return Facts(
        model_digest=loaded.digest,
        options=session.options.artifact_json(),
        target=target.name,
        hardware=target.hardware,
        operators=len(loaded.graph.nodes),
        kernels_before_fusion=front.fused.before,
        costs=plans.costs,
        steps=(("tile", str(ranking)),) if ranking else (),
        plans=tuple(one if one.measured_s else replace(one, found_s=None) for one in plans.choice.reached),
        handover_s=tiles.handover.seconds if tiles.handover else 0.0,
        predicted=plans.expected,
        measured=plans.choice.spans,
        rejected=plans.rejected,
        explanation=explanation,
        graphs=front.graphs,
        notices=loaded.notices,
        ranges=front.opened.input_ranges,
        samples=tuple(sample.digest for sample in front.opened.samples),
        open=shapes,
        border=loaded.border,
        ceilings=target.ceilings(plans.plan.lanes),
        opt=tuple(usual_sizes(session.options, shapes).values()) if shapes else (),
        quantised=session.quantised,
    )
