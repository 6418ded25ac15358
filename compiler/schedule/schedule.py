"""Candidates, their verification, the choice."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.buffers import KernelGraph
from compiler.ir.plan import Plan
from compiler.ir.tile import Menu
from compiler.schedule.buffers import place_buffers
from compiler.schedule.sequential import choose_lanes, sequential


def schedule(kernels: KernelGraph, menus: Sequence[Menu], lanes: int, handover_s: float) -> Plan:
    """A plan for `lanes` lanes; `menus` are in call order, `handover_s` is what one lane waits to see another's result.

    Sequential is the only scheduler so far: no kernel runs beside another, each may be split over the lanes.
    """
    chosen = [choose_lanes(menu, lanes, handover_s) for menu in menus]
    places, arena = place_buffers(kernels)
    plan = Plan(
        lanes=lanes,
        tasks=sequential([(variant, count) for variant, count, _ in chosen], lanes),
        tiles=tuple((variant.tile, variant.tiles) for variant, _, _ in chosen),
        places=places,
        arena_bytes=arena,
        scheduler="sequential",
        predicted_s=sum(seconds for _, _, seconds in chosen),
    )
    plan.verify(kernels)
    return plan
