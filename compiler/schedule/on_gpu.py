"""Plans for a GPU: a graph of launches on one lane, in which calls that can share a launch follow one another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from compiler.ir.buffers import KernelGraph
from compiler.ir.plan import Plan, Task
from compiler.ir.tile import Menu, Variant
from compiler.schedule.buffers import place_buffers
from compiler.schedule.dependencies import predecessors
from compiler.schedule.found import Found
from compiler.schedule.launches import GROWTHS, ended_before_launches, shared_launches
from compiler.schedule.sequential import choose_lanes

Together = Callable[[Sequence[tuple[int, Variant]]], float | None]
"""What calls, each carried out as a variant says, take as one launch, in seconds; None where they cannot share one."""


def on_gpu(kernels: KernelGraph, menus: Sequence[Menu], together: Together) -> tuple[Found, ...]:
    """Of the plans for each of GROWTHS the one with the least predicted time."""
    return (min((_in_launches(kernels, menus, together, growth) for growth in GROWTHS), key=_predicted),)


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
