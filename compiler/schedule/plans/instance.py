"""Kernels and their menus as a scheduling problem, and the way back from a schedule to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.accesses import Accesses
from compiler.ir.plans.lanes import NOTHING, LaneCosts, StageClock
from compiler.ir.plans.plan import Plan
from compiler.ir.plans.touched import Regions
from compiler.ir.tile import Menu, Variant
from compiler.schedule.memory.moves import moves_of
from compiler.schedule.memory.remote_bytes import remote_bytes
from compiler.schedule.plans.dependencies import predecessors
from compiler.schedule.plans.lanes_plan import plan_of
from compiler.schedule.plans.tasks import tasks_of
from compiler.schedule.problem import Placed, Problem
from compiler.schedule.solvers.refined import StageSeconds
from compiler.schedule.solvers.sequential import shared_seconds, variants_on
from compiler.schedule.solvers.stage_lanes import placed_stages
from compiler.schedule.solvers.stages import Stage

WAKE_LANES_S = 20e-6
"""What a run pays once for having more than one lane: waking threads, and waiting for the last."""


@dataclass(frozen=True)
class Instance:
    """A problem with what it was made of, and the way back to a plan.

    `options` has for each call and each number of lanes, from one on, the variant that is fastest there; None where
    none has as many tiles. Of several that a call may be shared by, one whose parts keep to themselves counts as faster
    by what else would move between lanes.
    """

    kernels: KernelGraph
    options: tuple[tuple[Variant | None, ...], ...]
    problem: Problem
    regions: Regions | None = None
    costs: LaneCosts = NOTHING

    @staticmethod
    def of(
        kernels: KernelGraph, menus: Sequence[Menu], lanes: int, costs: LaneCosts, regions: Regions | None = None
    ) -> Instance:
        """`menus` are in call order. Without `regions` each part of a call is taken to read all of every operand."""
        moved = _Moved(kernels, costs.crossing_s, regions)
        modes = [
            [moved.least(call, _modes(menu, count, costs.split_s), count) for count in range(1, lanes + 1)]
            for call, menu in enumerate(menus)
        ]
        options = tuple(tuple(mode.variant if mode else None for mode in every) for every in modes)
        before = predecessors(kernels)
        problem = Problem(
            before,
            tuple(tuple(mode.seconds if mode else None for mode in every) for every in modes),
            lanes,
            costs.handover_s,
            moves_of(kernels, before, options, costs.crossing_s, regions),
        )
        return Instance(kernels, options, problem, regions, costs)

    def plan(self, name: str, placed: Sequence[Placed]) -> Plan:
        """A schedule as tasks, with memory that respects what runs when. Raises VerifyError for one that is none."""
        chosen = {one.call: self.options[one.call][len(one.lanes) - 1] for one in placed}
        tiles = [(variant.tile, variant.tiles) for _, variant in sorted(chosen.items()) if variant]
        lanes, before = self.problem.lanes, self.problem.before
        return plan_of(self.kernels, placed, tiles, lanes, before, name, self.regions, costs=self.costs)

    def stage_seconds(self, clock: StageClock) -> StageSeconds:
        """What stages of this problem take on the device, each as the schedule of it alone is run."""

        def seconds(stage: Stage) -> float | None:
            calls = sorted(call for group in stage for call in group)
            number = {call: at for at, call in enumerate(calls)}
            part = self.problem.part(calls)
            order = placed_stages(part, [tuple(tuple(number[call] for call in group) for group in stage)])
            placed = [Placed(calls[one.call], one.lanes, one.begin, one.end) for one in order]
            chosen = {one.call: self.options[one.call][len(one.lanes) - 1] for one in placed}
            tiles = {call: variant for call, variant in chosen.items() if variant}
            counts = [tiles[call].tiles if call in tiles else 0 for call in self.problem.calls]
            inside = [
                tuple(one for one in earlier if one in number) if call in number else ()
                for call, earlier in enumerate(self.problem.before)
            ]
            tasks = tasks_of(placed, inside, counts, self.problem.lanes)
            return clock.seconds({call: variant.tile for call, variant in tiles.items()}, tasks)

        return seconds


@dataclass(frozen=True)
class _Mode:
    """A variant on a number of lanes, with what splitting it costs."""

    variant: Variant
    seconds: float


def _modes(menu: Menu, lanes: int, split_s: float) -> list[_Mode]:
    """Variants on so many lanes, with what they take there.

    What was measured on several lanes contains what they cost each other.
    """
    return [
        _Mode(
            variant,
            variant.cost.seconds if variant.lanes == lanes else shared_seconds(variant, lanes) + split_s,
        )
        for variant in variants_on(menu, lanes)
    ]


class _Moved:
    """What it costs that the parts of a call are not those of the calls around it; nothing without `regions`."""

    def __init__(self, kernels: KernelGraph, byte_s: float, regions: Regions | None) -> None:
        self._kernels, self._byte_s = kernels, byte_s
        self._accesses = Accesses(kernels, regions) if regions is not None and byte_s > 0.0 else None

    def least(self, call: int, modes: Sequence[_Mode], lanes: int) -> _Mode | None:
        """The one that takes least, with what it makes lanes read of each other."""
        return min(modes, key=lambda mode: mode.seconds + self._seconds(call, modes, mode, lanes), default=None)

    def _seconds(self, call: int, modes: Sequence[_Mode], mode: _Mode, lanes: int) -> float:
        if self._accesses is None or lanes == 1 or len(modes) == 1 or not mode.variant.tiles:
            return 0.0
        return self._byte_s * remote_bytes(self._kernels, self._accesses, call, mode.variant, lanes)
