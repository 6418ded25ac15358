"""Candidates, their memory, their prediction; which of them is taken is decided by measuring, elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from compiler.ir.buffers import KernelGraph
from compiler.ir.lanes import LaneCosts
from compiler.ir.plan import Plan
from compiler.ir.tile import Menu
from compiler.ir.touched import Regions
from compiler.schedule.buffers import place_buffers
from compiler.schedule.candidates import RULES, candidates
from compiler.schedule.early_start import early_start
from compiler.schedule.found import Found
from compiler.schedule.instance import WAKE_LANES_S, Instance
from compiler.schedule.on_gpu import Together, on_gpu
from compiler.schedule.problem import Placed, Problem
from compiler.schedule.sequential import choose_lanes, sequential
from compiler.schedule.stage_schedule import stage_schedule


def schedule(
    kernels: KernelGraph,
    menus: Sequence[Menu],
    lanes: int,
    costs: LaneCosts,
    scheduler: str = "auto",
    together: Together | None = None,
    regions: Regions | None = None,
) -> tuple[Found, ...]:
    """Plans for at most `lanes` lanes; the first one is that to take where nothing is measured.

    `menus` are in call order. Where `regions` are known, a task waits for no more than what it reads; else for all of the calls that it reads from.

    `auto`         sequential plans, then those of every other scheduler, each kind by predicted time
    `sequential`   no kernel runs beside another, each may be split over the lanes: on one lane or all, whichever is predicted faster; all there is
                   where each kernel needs the one before
    another        the plan of this scheduler that is predicted fastest, or a sequential one on one lane if that is predicted to be faster still

    Where a target has `together`, there is one lane: calls that can share a launch follow one another, in memory that lets them; of the plans for
    each of GROWTHS the one with the least predicted time is taken.
    """
    if together is not None:
        return on_gpu(kernels, menus, together)
    alone, *split = [_timed_sequential(kernels, menus, count, costs) for count in sorted({1, lanes})]
    in_turn = sorted([alone, *split], key=_predicted)
    instance = Instance.of(kernels, menus, lanes, costs)
    if scheduler == "sequential" or lanes == 1 or _is_chain(instance.problem.before):
        return (in_turn[0],)
    beside = sorted(_side_by_side(instance, scheduler), key=_predicted)
    return (*in_turn, *beside) if scheduler == "auto" else (min([alone, *beside], key=_predicted),)


def _predicted(found: Found) -> float:
    return found.plan.predicted_s


def _timed_sequential(kernels: KernelGraph, menus: Sequence[Menu], lanes: int, costs: LaneCosts) -> Found:
    begin = time.perf_counter()
    chosen = [choose_lanes(menu, lanes, costs.split_s) for menu in menus]
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
