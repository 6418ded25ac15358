"""The schedules of a model: what every scheduler finds from the times of its kernels.

Also the optimum where a solver proves it or comes near.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.settled import Settled, settled
from bench.subject import Subject
from compiler.contract import CompileOptions, kinds
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Plan
from compiler.knowledge.budget import TuningBudget
from compiler.measure.plans import Raced
from compiler.schedule import PERSISTENT, schedule
from compiler.schedule.memory.ownership import crossing_bytes
from compiler.schedule.plans.found import Found
from compiler.schedule.plans.instance import Instance
from compiler.schedule.solvers.candidates import candidates
from compiler.schedule.solvers.optimal import optimum
from compiler.steps import state_of
from compiler.steps.planning.choice import Subject as OfPlans
from compiler.steps.planning.choice import choose_plan
from compiler.trace import never_stops

OPTIMAL = "optimal"
SEED = 0


@dataclass(frozen=True)
class Schedules:
    """All that were found: first the sequential one, which the others are compared with.

    OPTIMAL, if it was asked for, is last.

    bound_s  no schedule of these kernel times is shorter, by the solver; None where it was not asked
    proven   whether the schedule named OPTIMAL reaches the bound; None where it was not asked
    """

    settled: Settled
    found: tuple[Found, ...]
    bound_s: float | None = None
    proven: bool | None = None

    @property
    def kernels(self) -> KernelGraph:
        """The kernels that were scheduled."""
        return self.settled.kernels

    @property
    def is_here(self) -> bool:
        """Whether this machine is one that they are for."""
        return self.settled.backend.target.is_here

    def crossing_bytes(self, plan: Plan) -> int | None:
        """Bytes that lanes of a plan read and others wrote, in one inference.

        None on a GPU, whose streams share its memory.
        """
        if self.settled.backend.joint_launch(self.kernels) is not None:
            return None
        return crossing_bytes(plan, self.kernels, self.settled.regions)

    def race(self, place: Path) -> Sequence[Raced] | None:
        """Each run whole, in turn with the others; None where that cannot be."""
        return self.settled.backend.race(self.kernels, [found.plan for found in self.found], SEED, never_stops, place)

    def taken(self, raced: Sequence[Raced] | None, budget_s: float) -> int:
        """Which of them a compilation would take that has so many seconds and measured this.

        Unmeasured, what it takes unmeasured.
        """
        offered = [found for found in self.found if found.plan.scheduler != OPTIMAL]

        def run(plans: Sequence[Plan]) -> Sequence[Raced] | None:
            return raced and [raced[[found.plan for found in offered].index(plan)] for plan in plans]

        workloads = tuple(menu.workload for menu in self.settled.menus)
        subject = OfPlans(
            self.kernels,
            workloads,
            self.settled.backend.target,
            self.settled.setting,
            state_of(self.settled.handover),
            lambda plan: "",  # no record is looked up, and none is kept
        )
        choice = choose_plan(offered, subject, (), TuningBudget(budget_s).share("plans"), run if raced else None)
        return [found.plan for found in offered].index(choice.plan)


def find(one: Subject, options: CompileOptions, records: Sequence[Mapping[str, Any]], solver_s: float) -> Schedules:
    """Every schedule of a model, from the records of its kernels; of resident blocks where `options` ask for them.

    The solver is given `solver_s` seconds; 0 disables it.

    Raises what the compiler raises, and ImportError for a solver that is not there.
    """
    ready = settled(one, options, records)
    joint_launch = ready.backend.joint_launch(ready.kernels)
    found = schedule(
        ready.kernels,
        ready.menus,
        ready.lanes,
        ready.costs,
        joint_launch=joint_launch,
        regions=ready.regions,
        resident_blocks=ready.backend.resident_blocks(ready.kernels) if options.scheduler == PERSISTENT else None,
    )
    if not solver_s or len(found) == 1 or joint_launch is not None:
        return Schedules(ready, found)
    begin = time.perf_counter()
    instance = instance_of(ready)
    best = optimum(instance.problem, candidates(instance.problem)[0].placed, solver_s, workers=ready.lanes)
    solved = Found(instance.plan(OPTIMAL, best.placed), time.perf_counter() - begin)
    return Schedules(ready, (*found, solved), best.bound_s, best.proven)


def persistent_of(one: Subject, options: CompileOptions, records: Sequence[Mapping[str, Any]]) -> Schedules | None:
    """The plans with resident blocks, under tiles for these; None for a target that has none. Raises as `find` does."""
    if PERSISTENT not in kinds.of(options.target).schedulers:
        return None
    every = find(one, replace(options, scheduler=PERSISTENT), records, 0.0)
    return replace(every, found=tuple(found for found in every.found if found.plan.residents))


def instance_of(ready: Settled) -> Instance:
    """The scheduling problem of kernels on the lanes of a CPU."""
    return Instance.of(ready.kernels, ready.menus, ready.lanes, ready.costs, ready.regions)
