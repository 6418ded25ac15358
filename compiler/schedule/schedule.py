"""Candidates, their verification, the choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.ir.buffers import KernelGraph
from compiler.ir.plan import Place, Plan
from compiler.ir.tile import Menu
from compiler.schedule.buffers import place_buffers
from compiler.schedule.sequential import choose_lanes, sequential

WAKE_LANES_S = 20e-6
"""What a run pays once for having more than one lane: waking threads, and waiting for the last."""


def schedule(kernels: KernelGraph, menus: Sequence[Menu], lanes: int, handover_s: float) -> Plan:
    """A plan for at most `lanes` lanes; `menus` are in call order, `handover_s` is what splitting one kernel costs beside its work.

    Sequential is the only scheduler so far: no kernel runs beside another, each may be split over the lanes. A model too small
    to repay waking a second lane stays on one.
    """
    places, arena = place_buffers(kernels)
    candidates = [_sequential(kernels, menus, count, handover_s, places, arena) for count in sorted({1, lanes})]
    plan = min(candidates, key=lambda candidate: candidate.predicted_s)
    plan.verify(kernels)
    return plan


def _sequential(
    kernels: KernelGraph,
    menus: Sequence[Menu],
    lanes: int,
    handover_s: float,
    places: Mapping[int, Place],
    arena: int,
) -> Plan:
    chosen = [choose_lanes(menu, lanes, handover_s) for menu in menus]
    return Plan(
        lanes=lanes,
        tasks=sequential([(variant, count) for variant, count, _ in chosen], lanes),
        tiles=tuple((variant.tile, variant.tiles) for variant, _, _ in chosen),
        places=places,
        arena_bytes=arena,
        scheduler="sequential",
        predicted_s=sum(seconds for _, _, seconds in chosen) + (WAKE_LANES_S if lanes > 1 else 0.0),
    )
