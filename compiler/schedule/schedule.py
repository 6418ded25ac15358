"""Candidates, their verification, the choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from compiler.ir.buffers import KernelGraph
from compiler.ir.plan import Plan, Task, ended_before
from compiler.ir.tile import Menu, Variant
from compiler.schedule.buffers import place_buffers
from compiler.schedule.dependencies import predecessors
from compiler.schedule.early_start import Rules, early_start, tasks_of
from compiler.schedule.launches import GROWTHS, ended_before_launches, shared_launches
from compiler.schedule.sequential import choose_lanes, sequential, shared_seconds

Together = Callable[[Sequence[tuple[int, Variant]]], float | None]
"""What calls, each carried out as a variant says, take as one launch, in seconds; None where they cannot share one."""

WAKE_LANES_S = 20e-6
"""What a run pays once for having more than one lane: waking threads, and waiting for the last."""


def schedule(
    kernels: KernelGraph,
    menus: Sequence[Menu],
    lanes: int,
    handover_s: float,
    scheduler: str = "sequential",
    together: Together | None = None,
) -> Plan:
    """A plan for at most `lanes` lanes; `menus` are in call order, `handover_s` is what splitting one kernel costs beside its work.

    `sequential`   no kernel runs beside another, each may be split over the lanes
    `early_start`  independent kernels may run side by side; of the rules of `early_start` those with the least predicted time

    A model too small to repay waking a second lane stays on one. Where a target has `together`, calls of one lane that can share a launch follow
    one another, in memory that lets them; of the plans for each of GROWTHS the one with the least predicted time is taken.
    """
    candidates = [_sequential(kernels, menus, count, handover_s) for count in sorted({1, lanes})]
    if together is not None:
        candidates[:1] = [_in_launches(kernels, menus, together, growth) for growth in GROWTHS]
    if scheduler == "early_start" and lanes > 1:
        rules = [Rules(*switches) for switches in product((True, False), repeat=2)]
        candidates = [candidates[0], *(_early_start(kernels, menus, lanes, handover_s, rule) for rule in rules)]
    plan = min(candidates, key=lambda candidate: candidate.predicted_s)
    plan.verify(kernels)
    return plan


def _in_launches(kernels: KernelGraph, menus: Sequence[Menu], together: Together, growth: float) -> Plan:
    chosen = [choose_lanes(menu, 1, 0.0)[0] for menu in menus]

    def seconds(calls: Sequence[int]) -> float | None:
        return together([(call, chosen[call]) for call in calls])

    launched = [call for call, variant in enumerate(chosen) if variant.tiles]
    groups = shared_launches(predecessors(kernels), launched, seconds, growth)
    places, arena = place_buffers(kernels, ended_before_launches(groups, len(chosen)))
    return Plan(
        lanes=1,
        tasks=tuple(Task(call, 0, 0, chosen[call].tiles) for group in groups for call in group),
        tiles=tuple((variant.tile, variant.tiles) for variant in chosen),
        places=places,
        arena_bytes=arena,
        scheduler="sequential",
        predicted_s=sum(seconds(group) or 0.0 for group in groups),
    )


def _sequential(kernels: KernelGraph, menus: Sequence[Menu], lanes: int, handover_s: float) -> Plan:
    chosen = [choose_lanes(menu, lanes, handover_s) for menu in menus]
    places, arena = place_buffers(kernels)
    return Plan(
        lanes=lanes,
        tasks=sequential([(variant, count) for variant, count, _ in chosen], lanes),
        tiles=tuple((variant.tile, variant.tiles) for variant, _, _ in chosen),
        places=places,
        arena_bytes=arena,
        scheduler="sequential",
        predicted_s=sum(seconds for _, _, seconds in chosen) + (WAKE_LANES_S if lanes > 1 else 0.0),
    )


def _early_start(kernels: KernelGraph, menus: Sequence[Menu], lanes: int, handover_s: float, rules: Rules) -> Plan:
    before = predecessors(kernels)
    chosen = [menu.best for menu in menus]

    def seconds(call: int, count: int) -> float | None:
        """As in a sequential plan, a kernel split over lanes takes a hand-over beside its share."""
        if count > 1 and chosen[call].tiles < count:
            return None
        return shared_seconds(chosen[call], count) + (handover_s if count > 1 else 0.0)

    placed = early_start(before, seconds, lanes, handover_s / 2, rules)
    tasks = tasks_of(placed, before, [variant.tiles for variant in chosen], lanes)
    places, arena = place_buffers(kernels, ended_before(tasks, lanes, len(kernels.calls)))
    return Plan(
        lanes=lanes,
        tasks=tasks,
        tiles=tuple((variant.tile, variant.tiles) for variant in chosen),
        places=places,
        arena_bytes=arena,
        scheduler="early_start",
        predicted_s=max((one.end for one in placed), default=0.0) + WAKE_LANES_S,
    )
