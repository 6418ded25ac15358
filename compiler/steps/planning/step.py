"""From kernels and their menus to an artifact's plans.

These are the schedule that is fastest when measured, and one for cores in the other state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from compiler.devices.device import Backend, RecordingClock
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Machine, Record, Setting, Workload
from compiler.ir.plans.guards import by_limit
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.plan import Plan
from compiler.ir.plans.touched import Regions
from compiler.ir.tile import Cost, Menu
from compiler.knowledge.carried import together
from compiler.knowledge.kinds import PLAN
from compiler.knowledge.known import known_shared
from compiler.pack.facts import Rejected
from compiler.schedule import PERSISTENT, ResidentBlocks, predicted, schedule
from compiler.schedule.plans.found import Found
from compiler.schedule.plans.replay import last_end
from compiler.session import Session
from compiler.steps.costs.lanes import elsewhere, handovers, lane_costs, state_of
from compiler.steps.planning.choice import Choice, Race, Subject, choose_plan
from compiler.steps.planning.guards import Guarded, guarded
from compiler.tuning.shared import with_shared

MOST_GROWN = 0.03
"""By so much of the model's weights a second plan may make the artifact larger, by packing them in another way."""
PREDICTED = ("aligned", "early_start")
"""Who makes plans for the state that the cores are not in, where nothing was measured in it: the quick ones."""


@dataclass(frozen=True)
class Scheduled:
    """Kernels that are to be scheduled, with `workloads` and `menus` in call order, for so many lanes of a target.

    handover  what a lane waits for another's result, with the cores as they are; None for one lane, or if unknown
    """

    kernels: KernelGraph
    workloads: Sequence[Workload]
    menus: Sequence[Menu]
    lanes: int
    backend: Backend
    setting: Setting
    handover: Record | None

    @property
    def state(self) -> str:
        """`near` or `far`; empty where it is not known."""
        return state_of(self.handover)

    @property
    def subject(self) -> Subject:
        """What records of plans are about."""
        return Subject(self.kernels, self.keys, self.backend.target, self.setting, self.state, self.source_of)

    def source_of(self, plan: Plan) -> str:
        """The digest of the code of all kernels under a plan's tiles."""
        tiles = (tile for tile, _ in plan.tiles)
        return together(
            self.backend.source_of(workload, tile) for workload, tile in zip(self.workloads, tiles, strict=True)
        )

    @cached_property
    def _names(self) -> frozenset[str]:
        """Under which there may be records: of the kernels, and of all of them together."""
        return frozenset((*self.keys, self.subject.key))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The key of each call's workload."""
        return tuple(menu.workload for menu in self.menus)

    @cached_property
    def regions(self) -> Regions | None:
        """What ranges of tile tasks read and write; None for a device without such lanes."""
        on_lanes = self.backend.lanes
        return on_lanes.regions(self.kernels) if on_lanes else None

    def is_of(self, record: Record) -> bool:
        """Whether a record was measured on one of these kernels, or on all together, on this target in this setting."""
        target = self.backend.target
        is_here = (record.target, record.hardware) == (target.name, target.hardware) and self.setting.is_of(record)
        return is_here and record.workload in self._names

    @property
    def costs(self) -> LaneCosts:
        """What synchronisation costs on these lanes."""
        return lane_costs(self.handover)

    def in_state_of(self, handover: Record, known: Sequence[Record]) -> Scheduled:
        """The same with what was measured on several lanes of cores in another state."""
        menus = with_shared(self.menus, known, self.backend.target, self.setting, state_of(handover))
        return replace(self, menus=menus, handover=handover)


@dataclass(frozen=True)
class Planned:
    """The plan for the cores as they are, with the one for the other state if there is one, and how it was chosen.

    costs     what each call takes as the plan carries it out
    expected  begin and end of each of its tasks as its scheduler predicts them; empty where it does not say
    records   by which it was made
    rejected  the other plans that were found
    """

    choice: Choice
    guarded: Guarded
    costs: tuple[Cost, ...]
    expected: tuple[tuple[float, float], ...]
    records: tuple[Record, ...]
    rejected: tuple[Rejected, ...]

    @property
    def plan(self) -> Plan:
        """The plan for cores as they are."""
        return self.guarded.plan

    @property
    def others(self) -> tuple[Plan, ...]:
        """Plans for cores that are otherwise apart."""
        return self.guarded.others

    @property
    def numbers(self) -> tuple[int, ...]:
        """Under which number an artifact has the plan, and each of the others."""
        plans = (self.plan, *self.others)
        order = by_limit(plans)
        return tuple(1 + order.index(plan) for plan in plans)


def planned(scheduled: Scheduled, session: Session, machine: Machine | None, race: Race | None) -> Planned:
    """Measures what is not known on `machine`, and plans in `race`; neither where they are None."""
    known, options, budget = session.records, session.options, session.budget
    backend, lanes = scheduled.backend, scheduled.lanes
    clock = _clock(scheduled, session, machine, session.add_records)
    wants_resident = options.scheduler == PERSISTENT
    resident_blocks = backend.resident_blocks(scheduled.kernels) if race or wants_resident else None
    found = schedule(
        scheduled.kernels,
        scheduled.menus,
        lanes,
        scheduled.costs,
        options.scheduler,
        joint_launch=backend.joint_launch(scheduled.kernels),
        regions=scheduled.regions,
        clock=clock,
        resident_blocks=resident_blocks,
        without=session.kept.without_steps,
    )
    if clock:
        clock.done()
    choice = choose_plan(found, scheduled.subject, known, budget.share("plans"), race)
    session.add_records(choice.fresh)
    for said in choice.left_out:
        session.trace.notice(f"a plan was left out of the race: {said}")
    taken = next(one for one in found if one.plan is choice.plan)
    if wants_resident and resident_blocks and not taken.plan.residents:
        session.trace.notice(why_not_persistent(scheduled, resident_blocks))
    if taken.between_s and not backend.target.is_here:
        low, high = (1e6 * end for end in taken.between_s)
        predicted = f"{1e6 * taken.plan.predicted_s:.3g} us are predicted for an inference"
        session.trace.notice(f"{predicted}, and by the doubt of the model of costs between {low:.3g} and {high:.3g}")
    there = _there(scheduled, session)
    return Planned(
        choice,
        _with_other(scheduled, taken.plan, there) if there else Guarded(taken.plan),
        _costs(taken.plan, scheduled.menus),
        taken.spans,
        (*choice.records, *(clock.answers if clock else ()), *(there.records if there else ())),
        tuple(
            Rejected(number, one.plan, _costs(one.plan, scheduled.menus), one.spans, spans)
            for number, (one, spans) in enumerate(zip(found, choice.traced, strict=True))
            if one is not taken
        ),
    )


def why_not_persistent(scheduled: Scheduled, resident_blocks: ResidentBlocks) -> str:
    """Why a job that asks for a persistent kernel has calls launched one after another."""
    refused = [
        scheduled.kernels.calls[at].kernel.family
        for at, menu in enumerate(scheduled.menus)
        if menu.best.tiles and not any(resident_blocks.accepts(at, variant) for variant in menu.variants)
    ]
    said = "calls are launched one after another"
    if refused:
        return f"a persistent kernel cannot carry out {', '.join(dict.fromkeys(refused))}: {said}"
    return f"a persistent kernel would take longer by the model: {said}"


def _costs(plan: Plan, menus: Sequence[Menu]) -> tuple[Cost, ...]:
    return tuple(carried_out(plan, position, menu) for position, menu in enumerate(menus))


def carried_out(plan: Plan, call: int, menu: Menu) -> Cost:
    """What a call takes as a plan carries it out.

    As it was measured on so many lanes, else what it takes on one, shared among them.
    """
    lanes = len({task.lane for task in plan.runs if task.call == call})
    alike = [one for one in menu.variants if one.tile == plan.tiles[call][0]]
    measured = next((one for one in alike if one.lanes == lanes > 1), None)
    if measured:
        return measured.cost
    alone = next(one for one in alike if one.lanes == 1)
    return Cost(alone.cost.seconds / max(lanes, 1), alone.cost.source)


def _clock(
    scheduled: Scheduled, session: Session, machine: Machine | None, add_records: Callable[[Iterable[Record]], None]
) -> RecordingClock | None:
    """What times stages; None for one lane, and for a device that launches kernels."""
    on_lanes = scheduled.backend.lanes
    if scheduled.lanes == 1 or on_lanes is None:
        return None
    share = session.budget.share("stages")
    return on_lanes.stage_clock(
        scheduled, machine, session.records, share, lambda record: add_records([record]), session.options.seed
    )


def _with_other(scheduled: Scheduled, plan: Plan, there: _There) -> Guarded:
    """The plan with that for the other state, if it is worth its place.

    One for whose tiles much of the weights would be there twice is not.
    """
    kernels = scheduled.kernels
    both = guarded(plan, scheduled.state, there.choice, there.found, there.predicted)
    weights = sum(array.nbytes for array in kernels.constants.values())
    on_lanes = scheduled.backend.lanes
    assert on_lanes is not None, "cores alone are near or far"
    grown = sum(on_lanes.repacked_bytes(kernels, plan, other) for other in both.others)
    return both if grown <= MOST_GROWN * weights else Guarded(plan)


@dataclass(frozen=True)
class _There:
    """Plans for the state that the cores are not in, and what its records choose of them.

    predicted  what any plan is predicted to take there, in seconds
    records    by which all of that is known
    """

    found: tuple[Found, ...]
    choice: Choice
    predicted: Callable[[Plan], float]
    records: tuple[Record, ...]


def _there(scheduled: Scheduled, session: Session) -> _There | None:
    """None where the state of the cores is not known."""
    known, options, target = session.records, session.options, scheduled.backend.target
    handover = elsewhere(scheduled.handover, known, target)
    if handover is None:
        return None
    there = scheduled.in_state_of(handover, known)
    costs = there.costs
    clock = _clock(there, session, None, lambda records: None)

    def found(scheduler: str) -> tuple[Found, ...]:
        return schedule(
            *(there.kernels, there.menus, there.lanes, costs, scheduler),
            regions=there.regions,
            clock=clock,
            without=session.kept.without_steps,
        )

    def seconds(plan: Plan) -> float:
        """Whoever made it, task by task."""
        return last_end(predicted(plan, there.kernels, there.menus, costs, there.regions))

    here = known.find(PLAN, target, setting=there.setting, state=there.state)
    was_raced = any(map(there.is_of, here))
    quick = PREDICTED if options.scheduler == "auto" and not was_raced else (options.scheduler,)
    plans = tuple(one for scheduler in quick for one in found(scheduler))
    choice = choose_plan(plans, there.subject, known, session.budget.share("plans"), None)
    shared = known_shared([one for one in known if there.is_of(one)], target, there.setting, there.state)
    seen = handovers(known, target).get(there.state)
    handoffs = [one for one in (seen, *shared.values()) if one is not None]
    return _There(plans, choice, seconds, (*choice.records, *handoffs, *(clock.answers if clock else ())))
