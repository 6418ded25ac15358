"""Candidates, their memory, their prediction; which of them is taken is decided by measuring, elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from compiler.ir.buffers import KernelGraph
from compiler.ir.plan import Plan, Task
from compiler.ir.tile import Menu, Variant
from compiler.schedule.buffers import place_buffers
from compiler.schedule.candidates import RULES, candidates
from compiler.schedule.dependencies import predecessors
from compiler.schedule.early_start import early_start
from compiler.schedule.instance import WAKE_LANES_S, Instance
from compiler.schedule.launches import GROWTHS, ended_before_launches, shared_launches
from compiler.schedule.problem import Placed, Problem
from compiler.schedule.sequential import choose_lanes, sequential
from compiler.schedule.stage_schedule import stage_schedule

Together = Callable[[Sequence[tuple[int, Variant]]], float | None]
"""What calls, each carried out as a variant says, take as one launch, in seconds; None where they cannot share one."""


@dataclass(frozen=True)
class Found:
    """A plan, and the wall seconds until it was there; of several schedulers each is told the time of all of them."""

    plan: Plan
    seconds: float


def schedule(
    kernels: KernelGraph,
    menus: Sequence[Menu],
    lanes: int,
    handover_s: float,
    scheduler: str = "auto",
    together: Together | None = None,
) -> tuple[Found, ...]:
    """Plans for at most `lanes` lanes; the first one is that to take where nothing is measured.

    `menus` are in call order, `handover_s` is what splitting one kernel costs beside its work.

    `auto`         sequential plans, then those of every other scheduler, each kind by predicted time
    `sequential`   no kernel runs beside another, each may be split over the lanes: on one lane or all, whichever is predicted faster; all there is
                   where each kernel needs the one before
    another        the plan of this scheduler that is predicted fastest, or a sequential one on one lane if that is predicted to be faster still

    Where a target has `together`, there is one lane: calls that can share a launch follow one another, in memory that lets them; of the plans for
    each of GROWTHS the one with the least predicted time is taken.
    """
    if together is not None:
        return (min((_in_launches(kernels, menus, together, growth) for growth in GROWTHS), key=_predicted),)
    alone, *split = [_timed_sequential(kernels, menus, count, handover_s) for count in sorted({1, lanes})]
    in_turn = sorted([alone, *split], key=_predicted)
    instance = Instance.of(kernels, menus, lanes, handover_s)
    if scheduler == "sequential" or lanes == 1 or _is_chain(instance.problem.before):
        return (in_turn[0],)
    beside = sorted(_side_by_side(instance, scheduler), key=_predicted)
    return (*in_turn, *beside) if scheduler == "auto" else (min([alone, *beside], key=_predicted),)


def _predicted(found: Found) -> float:
    return found.plan.predicted_s


def _in_launches(kernels: KernelGraph, menus: Sequence[Menu], together: Together, growth: float) -> Found:
    begin = time.perf_counter()
    chosen = [choose_lanes(menu, 1, 0.0)[0] for menu in menus]

    def seconds(calls: Sequence[int]) -> float | None:
        return together([(call, chosen[call]) for call in calls])

    launched = [call for call, variant in enumerate(chosen) if variant.tiles]
    groups = shared_launches(predecessors(kernels), launched, seconds, growth)
    places, arena = place_buffers(kernels, ended_before_launches(groups, len(chosen)))
    plan = Plan(
        lanes=1,
        tasks=tuple(Task(call, 0, 0, chosen[call].tiles) for group in groups for call in group),
        tiles=tuple((variant.tile, variant.tiles) for variant in chosen),
        places=places,
        arena_bytes=arena,
        scheduler="sequential",
        predicted_s=sum(seconds(group) or 0.0 for group in groups),
    )
    plan.verify(kernels)
    return Found(plan, time.perf_counter() - begin)


def _timed_sequential(kernels: KernelGraph, menus: Sequence[Menu], lanes: int, handover_s: float) -> Found:
    begin = time.perf_counter()
    chosen = [choose_lanes(menu, lanes, handover_s) for menu in menus]
    places, arena = place_buffers(kernels)
    plan = Plan(
        lanes=lanes,
        tasks=sequential([(variant, count) for variant, count, _ in chosen], lanes),
        tiles=tuple((variant.tile, variant.tiles) for variant, _, _ in chosen),
        places=places,
        arena_bytes=arena,
        scheduler="sequential",
        predicted_s=sum(seconds for _, _, seconds in chosen) + (WAKE_LANES_S if lanes > 1 else 0.0),
    )
    plan.verify(kernels)
    return Found(plan, time.perf_counter() - begin)


def _is_chain(before: Sequence[Sequence[int]]) -> bool:
    """Whether each call reads what the one before it writes: nothing can run beside anything."""
    return all(call - 1 in earlier for call, earlier in enumerate(before) if call)


def _side_by_side(instance: Instance, scheduler: str) -> Iterator[Found]:
    """Independent kernels beside each other, as one scheduler places them, or as every one does."""
    begin = time.perf_counter()
    schedules = candidates(instance.problem) if scheduler == "auto" else _of(scheduler, instance.problem)
    searched = time.perf_counter() - begin
    for name, placed in schedules:
        begin = time.perf_counter()
        plan = instance.plan(name, placed)
        yield Found(plan, searched + time.perf_counter() - begin)


def _of(scheduler: str, problem: Problem) -> list[tuple[str, tuple[Placed, ...]]]:
    if scheduler == "stages":
        return [(scheduler, stage_schedule(problem))]
    return [
        (name, early_start(problem.before, problem.length, problem.lanes, problem.handover_s, rules))
        for name, rules in RULES
    ]
