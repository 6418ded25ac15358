"""Candidates, their memory, their prediction; which of them is taken is decided by measuring, elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.lanes import LaneCosts, StageClock
from compiler.ir.plans.plan import Plan
from compiler.ir.plans.touched import Regions
from compiler.ir.tile import Menu
from compiler.schedule.gpu.launch_modes import JointLaunch
from compiler.schedule.gpu.on_gpu import on_gpu
from compiler.schedule.gpu.resident import ResidentBlocks
from compiler.schedule.plans.found import Found
from compiler.schedule.plans.instance import WAKE_LANES_S, Instance
from compiler.schedule.plans.lanes_plan import plan_of
from compiler.schedule.plans.replay import Spans, last_end, replayed
from compiler.schedule.plans.works import works_of
from compiler.schedule.solvers.aligned import aligned
from compiler.schedule.solvers.candidates import candidates, named
from compiler.schedule.solvers.sequential import choose_lanes, one_by_one, sequential

ALIGNED = "aligned"


def schedule(
    kernels: KernelGraph,
    menus: Sequence[Menu],
    lanes: int,
    costs: LaneCosts,
    scheduler: str = "auto",
    *,
    joint_launch: JointLaunch | None = None,
    regions: Regions | None = None,
    clock: StageClock | None = None,
    resident_blocks: ResidentBlocks | None = None,
    without: frozenset[str] = frozenset(),
) -> tuple[Found, ...]:
    """Plans for at most `lanes` lanes; the first one is that to take where nothing is measured.

    `menus` are in call order. Where `regions` are known, a task waits for no more than what it reads; else for all of
    the calls that it reads from. `clock` times stages on the device, where they are searched.
    What `without` names of SCHEDULING is not applied.

    `auto`         sequential plans, then those of every other scheduler, each kind by predicted time
    `sequential`   no kernels run concurrently, each may be split over the lanes: on one lane or all, whichever is
                   predicted faster; where each kernel needs the one before, there is only this and `aligned`
    `aligned`      calls in the same order, but split so that lanes mostly read what they wrote themselves, and wait for
                   little else; only with `regions`
    another        the plan of this scheduler that is predicted fastest, or a sequential one on one lane if that is
                   predicted to be faster still

    Where a target has `joint_launch` it is a GPU, whose plans are those of `on_gpu`, with
    `resident_blocks` also those of persistent kernels.
    """
    if joint_launch is not None:
        return on_gpu(kernels, menus, joint_launch, scheduler, resident_blocks, without)
    search = _Search(Instance.of(kernels, menus, lanes, costs, regions), menus, lanes, costs, without)
    alone, *split = [search.in_turn(count) for count in sorted({1, lanes})]
    in_turn = sorted([alone, *split], key=_predicted)
    if scheduler == "sequential" or lanes == 1:
        return (in_turn[0],)
    drifting = search.aligned() if scheduler in ("auto", ALIGNED) else ()
    if _is_chain(search.instance.problem.before):
        found = (in_turn[0], *drifting)
        return found if scheduler == "auto" else (min(found, key=_predicted),)
    beside = sorted(search.side_by_side(scheduler, clock), key=_predicted) if scheduler != ALIGNED else []
    return (
        (*in_turn, *drifting, *beside) if scheduler == "auto" else (min([alone, *drifting, *beside], key=_predicted),)
    )


def predicted(
    plan: Plan, kernels: KernelGraph, menus: Sequence[Menu], costs: LaneCosts, regions: Regions | None = None
) -> Spans:
    """When the tasks of a plan run, in seconds, as `menus`, which offer its tiles, and `costs` have it.

    The plan may have been made elsewhere and for other costs.
    """
    wake_s = WAKE_LANES_S if plan.lanes > 1 else 0.0
    return replayed(plan, works_of(plan, kernels, menus, costs, regions), costs.handover_s, wake_s)


def _predicted(found: Found) -> float:
    return found.plan.predicted_s


@dataclass(frozen=True)
class _Search:
    """One instance with what it was made of; each plan is found with what it is predicted to take."""

    instance: Instance
    menus: Sequence[Menu]
    lanes: int
    costs: LaneCosts
    without: frozenset[str]

    def in_turn(self, lanes: int) -> Found:
        begin = time.perf_counter()
        chosen = [choose_lanes(menu, lanes, self.costs.split_s) for menu in self.menus]
        plan = plan_of(
            self.instance.kernels,
            sequential(chosen),
            [(variant.tile, variant.tiles) for variant, _, _ in chosen],
            lanes,
            one_by_one([variant for variant, _, _ in chosen]),
            "sequential",
            self.instance.regions,
            costs=self.costs,
        )
        return self._found(plan, begin)

    def aligned(self) -> tuple[Found, ...]:
        """Calls in order on lanes that keep to what they wrote; nothing without `regions`."""
        begin = time.perf_counter()
        kernels, regions = self.instance.kernels, self.instance.regions
        if regions is None:
            return ()
        variants, placed = aligned(kernels, self.menus, self.lanes, self.costs, regions)
        tiles = [(variant.tile, variant.tiles) for variant in variants]
        plan = plan_of(kernels, placed, tiles, self.lanes, one_by_one(variants), ALIGNED, regions, costs=self.costs)
        return (self._found(plan, begin),)

    def side_by_side(self, scheduler: str, clock: StageClock | None) -> Iterator[Found]:
        """Independent kernels run concurrently, as one scheduler places them, or as every one does."""
        problem, measured = self.instance.problem, self.instance.stage_seconds(clock) if clock else None
        every = (
            candidates(problem, measured, self.without)
            if scheduler == "auto"
            else named(problem, scheduler, measured, self.without)
        )
        for one in every:
            begin = time.perf_counter() - one.seconds
            yield self._found(self.instance.plan(one.name, one.placed), begin)

    def _found(self, plan: Plan, begin: float) -> Found:
        """A plan for which the search began at a time of the clock."""
        spans = predicted(plan, self.instance.kernels, self.menus, self.costs, self.instance.regions)
        return Found(replace(plan, predicted_s=last_end(spans)), time.perf_counter() - begin, spans=spans)


def _is_chain(before: Sequence[Sequence[int]]) -> bool:
    """Whether each call reads what the one before it writes: no calls can run concurrently."""
    return all(call - 1 in earlier for call, earlier in enumerate(before) if call)
