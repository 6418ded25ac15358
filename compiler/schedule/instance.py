"""Kernels and their menus as a scheduling problem, and the way back from a schedule to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.ir.buffers import KernelGraph
from compiler.ir.lanes import LaneCosts
from compiler.ir.plan import Plan, ended_before
from compiler.ir.tile import Menu, Variant
from compiler.schedule.buffers import place_buffers
from compiler.schedule.dependencies import predecessors
from compiler.schedule.problem import Placed, Problem, makespan
from compiler.schedule.sequential import shared_seconds
from compiler.schedule.tasks import tasks_of

WAKE_LANES_S = 20e-6
"""What a run pays once for having more than one lane: waking threads, and waiting for the last."""


@dataclass(frozen=True)
class Instance:
    """`options` has for each call and each number of lanes, from one on, the variant that is fastest there; None where none has as many tiles."""

    kernels: KernelGraph
    options: tuple[tuple[Variant | None, ...], ...]
    problem: Problem

    @staticmethod
    def of(kernels: KernelGraph, menus: Sequence[Menu], lanes: int, costs: LaneCosts) -> Instance:
        """`menus` are in call order."""
        options = tuple(tuple(_fastest(menu, count) for count in range(1, lanes + 1)) for menu in menus)
        seconds = tuple(
            tuple(None if variant is None else shared_seconds(variant, count) for count, variant in enumerate(every, 1))
            for every in options
        )
        return Instance(
            kernels, options, Problem(predecessors(kernels), seconds, lanes, costs.handover_s, costs.split_s)
        )

    def plan(self, name: str, placed: Sequence[Placed]) -> Plan:
        """A schedule as tasks, with memory that respects what runs when. Raises VerifyError for one that is none."""
        calls, lanes = len(self.kernels.calls), self.problem.lanes
        chosen = {one.call: self.options[one.call][len(one.lanes) - 1] for one in placed}
        tiles = [(variant.tile, variant.tiles) for _, variant in sorted(chosen.items()) if variant]
        tasks = tasks_of(placed, self.problem.before, [count for _, count in tiles], lanes)
        places, arena = place_buffers(self.kernels, ended_before(tasks, lanes, calls))
        predicted_s = makespan(placed) + WAKE_LANES_S
        plan = Plan(lanes, tasks, tuple(tiles), places, arena, name, predicted_s)
        plan.verify(self.kernels)
        return plan


def _fastest(menu: Menu, lanes: int) -> Variant | None:
    """The variant that takes least time when so many lanes share its tiles."""
    able = [variant for variant in menu.variants if variant.lanes == 1 and max(variant.tiles, 1) >= lanes]
    return min(able, key=lambda variant: shared_seconds(variant, lanes), default=None)
