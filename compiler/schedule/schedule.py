"""Candidates, their memory, their prediction; which of them is taken is decided by measuring, elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from compiler.ir.buffers import KernelGraph
from compiler.ir.lanes import LaneCosts, StageClock
from compiler.ir.tile import Menu
from compiler.ir.touched import Regions
from compiler.schedule.aligned import aligned
from compiler.schedule.candidates import candidates, named
from compiler.schedule.expected import expected, expected_beside, expected_in_turn
from compiler.schedule.found import Found
from compiler.schedule.instance import WAKE_LANES_S, Instance
from compiler.schedule.lanes_plan import plan_of
from compiler.schedule.on_gpu import Together, on_gpu
from compiler.schedule.problem import makespan
from compiler.schedule.sequential import choose_lanes, one_by_one, sequential

ALIGNED = "aligned"


def schedule(
    kernels: KernelGraph,
    menus: Sequence[Menu],
    lanes: int,
    costs: LaneCosts,
    scheduler: str = "auto",
    together: Together | None = None,
    regions: Regions | None = None,
    clock: StageClock | None = None,
) -> tuple[Found, ...]:
    """Plans for at most `lanes` lanes; the first one is that to take where nothing is measured.

    `menus` are in call order. Where `regions` are known, a task waits for no more than what it reads; else for all of the calls that it reads from. `clock`
    times stages on the device, where they are searched.

    `auto`         sequential plans, then those of every other scheduler, each kind by predicted time
    `sequential`   no kernel runs beside another, each may be split over the lanes: on one lane or all, whichever is predicted faster; where each
                   kernel needs the one before, there is only this and `aligned`
    `aligned`      calls in the same order, but split so that lanes mostly read what they wrote themselves, and wait for little else; only with `regions`
    another        the plan of this scheduler that is predicted fastest, or a sequential one on one lane if that is predicted to be faster still

    Where a target has `together` it is a GPU, whose plans are those of `on_gpu`.
    """
    if together is not None:
        return on_gpu(kernels, menus, together, scheduler)
    instance = Instance.of(kernels, menus, lanes, costs, regions)
    alone, *split = [_timed_sequential(instance, menus, count, costs) for count in sorted({1, lanes})]
    in_turn = sorted([alone, *split], key=_predicted)
    if scheduler == "sequential" or lanes == 1:
        return (in_turn[0],)
    drifting = _aligned(instance, menus, lanes, costs) if scheduler in ("auto", ALIGNED) else ()
    if _is_chain(instance.problem.before):
        found = (in_turn[0], *drifting)
        return found if scheduler == "auto" else (min(found, key=_predicted),)
    beside = sorted(_side_by_side(instance, scheduler, clock), key=_predicted) if scheduler != ALIGNED else []
    return (
        (*in_turn, *drifting, *beside) if scheduler == "auto" else (min([alone, *drifting, *beside], key=_predicted),)
    )


def _predicted(found: Found) -> float:
    return found.plan.predicted_s


def _timed_sequential(instance: Instance, menus: Sequence[Menu], lanes: int, costs: LaneCosts) -> Found:
    begin = time.perf_counter()
    chosen = [choose_lanes(menu, lanes, costs.split_s) for menu in menus]
    placed = sequential(chosen)
    wake_s = WAKE_LANES_S if lanes > 1 else 0.0
    plan = plan_of(
        instance.kernels,
        placed,
        [(variant.tile, variant.tiles) for variant, _, _ in chosen],
        lanes,
        one_by_one([variant for variant, _, _ in chosen]),
        "sequential",
        makespan(placed) + instance.moved_s(placed) + wake_s,
        instance.regions,
    )
    spans = expected_in_turn(instance.problem, placed, plan.tasks, wake_s)
    return Found(plan, time.perf_counter() - begin, spans=spans)


def _aligned(instance: Instance, menus: Sequence[Menu], lanes: int, costs: LaneCosts) -> tuple[Found, ...]:
    """Calls in order on lanes that keep to what they wrote; nothing where it is not known what parts of calls touch."""
    begin = time.perf_counter()
    if instance.regions is None:
        return ()
    variants, placed = aligned(instance.kernels, menus, lanes, costs, instance.regions)
    tiles = [(variant.tile, variant.tiles) for variant in variants]
    predicted_s = makespan(placed) + WAKE_LANES_S
    before = one_by_one(variants)
    plan = plan_of(instance.kernels, placed, tiles, lanes, before, ALIGNED, predicted_s, instance.regions)
    return (Found(plan, time.perf_counter() - begin, spans=expected(placed, plan.tasks, WAKE_LANES_S)),)


def _is_chain(before: Sequence[Sequence[int]]) -> bool:
    """Whether each call reads what the one before it writes: nothing can run beside anything."""
    return all(call - 1 in earlier for call, earlier in enumerate(before) if call)


def _side_by_side(instance: Instance, scheduler: str, clock: StageClock | None) -> Iterator[Found]:
    """Independent kernels beside each other, as one scheduler places them, or as every one does."""
    problem, measured = instance.problem, instance.stage_seconds(clock) if clock else None
    for one in candidates(problem, measured) if scheduler == "auto" else named(problem, scheduler, measured):
        begin = time.perf_counter()
        plan = instance.plan(one.name, one.placed)
        spans = expected_beside(problem, one.placed, plan.tasks, WAKE_LANES_S)
        yield Found(plan, one.seconds + time.perf_counter() - begin, spans=spans)
