"""The optimum by a constraint solver, a yardstick for tests and benchmarks: no compilation needs it.

OR-tools' CP-SAT (Perron and Didier) is imported when it is asked for; without it `optimum` raises ImportError.
Beginnings and lengths are whole numbers of a unit that is a small part of the known makespan, and lengths are rounded
down, so that the solver's bound holds for the problem as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.schedule.problem import Move, Placed, Problem, lower_bound, makespan, timed

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, IntervalVar, IntVar

UNITS = 100_000
"""Of the known makespan."""
CLOSED = 1e-3
"""A relative gap that rounding lengths down leaves: with it an optimum is proven."""


@dataclass(frozen=True)
class Optimum:
    """The best schedule found, and what the solver proved of it.

    No schedule takes less than `bound_s` seconds, with or without contention. `proven`: the solver closed the gap.
    """

    placed: tuple[Placed, ...]
    bound_s: float
    proven: bool


def optimum(problem: Problem, known: Sequence[Placed], limit_s: float, workers: int = 1, seed: int = 0) -> Optimum:
    """Looks for a schedule shorter than a `known` one, for at most `limit_s` seconds.

    Raises ImportError without OR-tools.
    """
    from ortools.sat.python import cp_model

    if makespan(known) <= 0.0:
        return Optimum(tuple(known), 0.0, True)
    unit = makespan(known) / UNITS
    choices = _Choices(problem, cp_model.CpModel(), unit, known)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    status = solver.solve(choices.model)
    bound = max(lower_bound(problem), solver.best_objective_bound * unit)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    schedules = [tuple(known), choices.placed(solver)] if found else [tuple(known)]
    best = min(schedules, key=makespan)
    return Optimum(best, bound, status == cp_model.OPTIMAL and makespan(best) <= bound * (1.0 + CLOSED))


class _Choices:
    """The model of a problem.

    For each call it has its beginning, its lanes and how many they are; for each edge, whether both ends have the same
    lane alone.

    What a call reads of other lanes is exact where it and what it reads from run on one lane each; otherwise the least
    that the numbers of lanes allow, so that the bound stays one.
    """

    def __init__(self, problem: Problem, model: CpModel, unit: float, known: Sequence[Placed]) -> None:
        self.problem, self.model, self.unit = problem, model, unit
        self.horizon = UNITS + 1
        self.begins = [model.new_int_var(0, self.horizon, "") for _ in problem.calls]
        self.ends = [model.new_int_var(0, self.horizon, "") for _ in problem.calls]
        self.on = [[model.new_bool_var("") for _ in range(problem.lanes)] for _ in problem.calls]
        self.counts = [
            {count: (model.new_bool_var(""), int(length / unit)) for count, length in problem.lengths(call)}
            for call in problem.calls
        ]
        self.moved: list[list[IntVar]] = [[] for _ in problem.calls]
        self._results_arrive()
        self._lanes_are_never_shared()
        self._the_last_end_is_least()
        self._begin_with(known)

    def _lanes_are_never_shared(self) -> None:
        busy: list[list[IntervalVar]] = [[] for _ in range(self.problem.lanes)]
        sizes: list[IntervalVar] = []
        demands: list[int] = []
        each = zip(self.begins, self.ends, self.on, self.counts, self.moved, strict=True)
        for begin, end, on, counts, moved in each:
            self.model.add_exactly_one(chosen for chosen, _ in counts.values())
            self.model.add(sum(on) == sum(count * chosen for count, (chosen, _) in counts.items()))
            takes = self.model.new_int_var(0, self.horizon, "")
            self.model.add(takes == sum(length * chosen for chosen, length in counts.values()) + sum(moved))
            for count, (chosen, length) in counts.items():
                sizes.append(self.model.new_optional_interval_var(begin, takes if moved else length, end, chosen, ""))
                demands.append(count)
            for lane, here in enumerate(on):
                busy[lane].append(self.model.new_optional_interval_var(begin, takes, end, here, ""))
        for intervals in busy:
            self.model.add_no_overlap(intervals)
        self.model.add_cumulative(sizes, demands, self.problem.lanes)

    def _results_arrive(self) -> None:
        handover = int(self.problem.handover_s / self.unit)
        for call, earlier in enumerate(self.problem.before):
            for at, one in enumerate(earlier):
                self.model.add(self.begins[call] >= self.ends[one])
                move = self.problem.moves[call][at] if self.problem.moves else None
                if not handover and not (move and move.seconds):
                    continue
                stays = self._stays(one, call)
                self.model.add(self.begins[call] >= self.ends[one] + handover).only_enforce_if(~stays)
                if move and move.seconds:
                    self.moved[call].append(self._moved(one, call, move, stays))

    def _moved(self, one: int, call: int, move: Move, stays: IntVar) -> IntVar:
        """What a call takes longer for what it reads of another: no less than this."""
        moved = self.model.new_int_var(0, int(move.seconds / self.unit), "")
        for makers, (made, _) in self.counts[one].items():
            for count, (read, _) in self.counts[call].items():
                if makers == count == 1:
                    self.model.add(moved >= int(move.seconds / self.unit)).only_enforce_if([made, read, ~stays])
                elif least := int(move.seconds * move.least(count, makers) / self.unit):
                    self.model.add(moved >= least).only_enforce_if([made, read])
        return moved

    def _stays(self, one: int, call: int) -> IntVar:
        """Whether two calls run on the same lane, each on it alone."""
        stays = [self.model.new_bool_var("") for _ in range(self.problem.lanes)]
        for lane, here in enumerate(stays):
            for other in (one, call):
                self.model.add_implication(here, self.on[other][lane])
                self.model.add_implication(here, self.counts[other][1][0])
        either = self.model.new_bool_var("")
        self.model.add(sum(stays) == either)
        return either

    def _the_last_end_is_least(self) -> None:
        last = self.model.new_int_var(0, self.horizon, "")
        self.model.add_max_equality(last, self.ends)
        work = sum(count * length * chosen for counts in self.counts for count, (chosen, length) in counts.items())
        self.model.add(work <= self.problem.lanes * last)
        self.model.minimize(last)

    def _begin_with(self, known: Sequence[Placed]) -> None:
        for one in known:
            self.model.add_hint(self.begins[one.call], int(one.begin / self.unit))
            for lane, on in enumerate(self.on[one.call]):
                self.model.add_hint(on, lane in one.lanes)
            for count, (chosen, _) in self.counts[one.call].items():
                self.model.add_hint(chosen, count == len(one.lanes))

    def placed(self, solver: CpSolver) -> tuple[Placed, ...]:
        """The solver's schedule with the lengths as they are."""
        order = sorted(self.problem.calls, key=lambda call: (solver.value(self.begins[call]), call))
        lanes = [tuple(lane for lane, on in enumerate(self.on[call]) if solver.value(on)) for call in order]
        return timed(self.problem, (Placed(call, on, 0.0, 0.0) for call, on in zip(order, lanes, strict=True)))
