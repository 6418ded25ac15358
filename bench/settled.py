"""What a compilation schedules: a model's kernels after the joins that pay, and a menu for each.

Nothing is tuned for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bench.stages import Stages, stages
from bench.subject import Subject
from compiler.contract import CompileOptions
from compiler.devices.device import Backend
from compiler.fuse.joins import choose_joins
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record, Setting, plausible
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.touched import Regions
from compiler.ir.tile import Menu
from compiler.knowledge.budget import TuningBudget
from compiler.prove.agree import DEFAULT_TOLERANCE
from compiler.schedule import may_run_concurrently
from compiler.steps import state_of
from compiler.steps.costs.lanes import lane_costs, synchronisation_seconds
from compiler.steps.tiling.step import tiler_of
from compiler.trace import Trace
from compiler.tuning.tune import Measuring, Tunable, Tuning, tune


@dataclass(frozen=True)
class Settled:
    """Kernels and, in call order, their menus for so many lanes.

    known     the records that there were
    handover  what it costs one lane to see another's result; None for one lane, and if unknown
    """

    kernels: KernelGraph
    menus: tuple[Menu, ...]
    lanes: int
    backend: Backend
    setting: Setting
    known: tuple[Record, ...]
    handover: Record | None = None

    @property
    def costs(self) -> LaneCosts:
        """What lanes cost each other, with the cores as near to each other as they are now."""
        return lane_costs(self.handover)

    @cached_property
    def regions(self) -> Regions | None:
        """What ranges of a kernel's tile tasks read and write; None if unknown."""
        on_lanes = self.backend.lanes
        return on_lanes.regions(self.kernels) if on_lanes else None

    @property
    def measured(self) -> int:
        """Calls whose time was measured; that of others is the cost model's."""
        return sum(not menu.best.cost.is_modelled for menu in self.menus)


def settled(
    one: Subject, options: CompileOptions, records: Sequence[Mapping[str, Any]], begun: Stages | None = None
) -> Settled:
    """As a compilation does it that measures no kernel.

    Tiles by the records, where a kernel has none by the cost model; `begun` is what the first steps made, where that is
    there already. Raises what it raises.
    """
    known = plausible(records)
    begun = begun or stages(one, options, records)
    backend, _ = begun.backend.prepared(begun.stored, known, measure=begun.backend.target.is_here)
    setting, lanes = backend.setting(begun.stored), options.threads or backend.target.lanes
    on_lanes = backend.lanes if lanes > 1 else None
    handover = on_lanes.handover(known, measure=backend.target.is_here) if on_lanes else None
    calls = (*begun.stored.calls, *(join.call for join in begun.offered))
    tolerance = DEFAULT_TOLERANCE["fp32"] if options.tolerance is None else options.tolerance
    concurrent = (*may_run_concurrently(begun.stored), *(True for _ in begun.offered))
    tunable = [
        Tunable(backend.workload_of(begun.stored, call), concurrent=is_concurrent)
        for call, is_concurrent in zip(calls, concurrent, strict=True)
    ]
    tuning = Tuning(tunable, lanes, setting, tolerance, options.arithmetic, state_of(handover))
    measuring = Measuring(None, TuningBudget(0.0, 0), Trace())
    menus = tune(tuning, tiler_of(backend), backend.starting_points(known, setting), measuring).menus
    apart, joined = menus[: len(begun.stored.calls)], menus[len(begun.stored.calls) :]
    meeting_s = synchronisation_seconds(handover) if lanes > 1 else 0.0
    found = choose_joins(begun.stored, begun.offered, apart, joined, lanes, meeting_s)
    return Settled(found.kernels, found.menus, lanes, backend, setting, tuple(known), handover)
