"""`tune` as tests ask it: everything by itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from compiler.ir.machine import Machine, Record, Setting, Workload
from compiler.ir.target import Target
from compiler.knowledge.budget import TuningBudget
from compiler.trace import Trace
from compiler.tuning.menus import Choose, CountTiles, LegalTiles, Tiler, best_by_model
from compiler.tuning.tune import Measuring, Tiled, Tunable, Tuning, tune


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
    each = zip_longest(workloads, exact, may_run_concurrently, fillvalue=False)
    calls = [Tunable(one, exact=is_exact, concurrent=is_concurrent) for one, is_exact, is_concurrent in each]  # type: ignore[arg-type]
    tuning = Tuning(calls, lanes, setting, tolerance, precision, state)
    return tune(tuning, Tiler(target, legal_tiles, count_tiles, choose), records, Measuring(machine, budget, trace))
