"""`tune` as tests ask it: everything by itself."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.machine import Machine, Record, Setting, Workload
from compiler.ir.target import Target
from compiler.knowledge.budget import TuningBudget
from compiler.trace import Trace
from compiler.tuning.tune import Choose, CountTiles, LegalTiles, Tiled, Tiler, Tuning, best_by_model, tune


def tuned(
    workloads: Sequence[Workload],
    target: Target,
    legal_tiles: LegalTiles,
    lanes: int,
    records: Sequence[Record],
    setting: Setting,
    machine: Machine | None,
    budget: TuningBudget,
    count_tiles: CountTiles,
    trace: Trace,
    tolerance: float = 0.0,
    precision: str = "fp32",
    choose: Choose = best_by_model,
    state: str = "",
    may_run_concurrently: Sequence[bool] = (),
    exact: Sequence[bool] = (),
) -> Tiled:
    """Menus for workloads in call order."""
    tuning = Tuning(workloads, lanes, setting, tolerance, precision, state, may_run_concurrently, exact=exact)
    return tune(tuning, Tiler(target, legal_tiles, count_tiles, choose), records, machine, budget, trace)
