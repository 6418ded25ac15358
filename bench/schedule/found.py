"""The schedules of a model: what every scheduler finds from measured kernels, and the optimum where a solver proves it or comes near."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.stages import stages
from bench.subjects import Subject
from compiler.contract import CompileOptions
from compiler.ir.buffers import KernelGraph
from compiler.ir.lanes import LaneCosts
from compiler.ir.machine import Record, plausible
from compiler.measure.agree import DEFAULT_TOLERANCE
from compiler.pipeline import meeting_seconds
from compiler.schedule import schedule
from compiler.schedule.candidates import candidates
from compiler.schedule.found import Found
from compiler.schedule.instance import Instance
from compiler.schedule.optimal import optimum
from compiler.tile import tile
from compiler.tile.search import Budget
from compiler.trace import Trace
from compiler.workbench import Backend, backend_of

OPTIMAL = "optimal"


@dataclass(frozen=True)
class Schedules:
    """All that were found, the sequential one that the others are compared with first.

    bound_s  no schedule of these kernel times is shorter, by the solver; None where it was not asked
    proven   whether the schedule named OPTIMAL reaches the bound
    """

    kernels: KernelGraph
    backend: Backend
    found: tuple[Found, ...]
    handover: Record | None
    bound_s: float | None = None
    proven: bool = False


def find(one: Subject, options: CompileOptions, records: Sequence[Mapping[str, Any]], solver_s: float) -> Schedules:
    """Every schedule of a model, from the records of its kernels; the solver is given `solver_s` seconds, or left out with 0.

    Raises what the compiler raises, and ImportError for a solver that is not there.
    """
    backend, known = backend_of(options, os.environ), plausible(records)
    kernels = stages(one, options, records).kernels
    backend, _ = backend.prepared(kernels, known, measure=True)
    setting, lanes = backend.setting(kernels), options.threads or backend.target.lanes
    menus = tile(
        [backend.workload_of(kernels, call) for call in kernels.calls],
        backend.target,
        lanes,
        backend.starting_points(known, setting),
        setting,
        None,
        Budget(0.0, 0),
        backend.count_tiles,
        Trace(),
        tolerance=DEFAULT_TOLERANCE["fp32"] if options.tolerance is None else options.tolerance,
        precision=options.precision,
    ).menus
    handover = backend.handover(known, measure=True) if lanes > 1 else None
    costs = LaneCosts(meeting_seconds(handover))
    found = schedule(kernels, menus, lanes, costs)
    if not solver_s or len(found) == 1:
        return Schedules(kernels, backend, found, handover)
    begin = time.perf_counter()
    instance = Instance.of(kernels, menus, lanes, costs)
    best = optimum(instance.problem, candidates(instance.problem)[0][1], solver_s, workers=lanes)
    plan = instance.plan(OPTIMAL, best.placed)
    solved = Found(plan, time.perf_counter() - begin)
    return Schedules(kernels, backend, (*found, solved), handover, best.bound_s, best.proven)
