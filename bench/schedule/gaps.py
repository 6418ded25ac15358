"""How far each scheduler is from the optimum of a model's blocks, and how long it takes for the whole.

Blocks are those in which the schedulers themselves cut the graph; equal ones are scheduled and solved once. A block of one call is no question
and is left out. Nothing is run: the yardstick is for the algorithms, given the times of the kernels. What kernels that run side by side do to each other
through memory is left out, as it is no part of the problem that the solver solves.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from compiler.schedule.problem import Problem, lower_bound, makespan
from compiler.schedule.solvers.candidates import Candidate, best_of_blocks, descent_in_blocks, named
from compiler.schedule.solvers.optimal import optimum
from compiler.schedule.solvers.stage_schedule import blocks

CLOSED = 1e-4
"""A schedule that is this part over a bound is the optimum: the solver counts in units."""
AIMED = ("stages", "early_start")
"""By these alone the schedule of a block is to come near the optimum; list scheduling under whichever of its switches is best there."""
Tell = Callable[[str], None]


@dataclass(frozen=True)
class BlockGaps:
    """One block, or several that are equal.

    times     how often it is there
    best_s    the shortest schedule that anybody found, the solver among them
    bound_s   no schedule is shorter
    proven    whether nothing lies between the two
    seconds   by scheduler
    """

    calls: int
    times: int
    best_s: float
    bound_s: float
    proven: bool
    seconds: Mapping[str, float]

    def gap(self, scheduler: str) -> float:
        """How much longer its schedule is than the best, as a part of that."""
        return self.seconds[scheduler] / self.best_s - 1

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "calls": self.calls,
            "times": self.times,
            "best_ms": 1e3 * self.best_s,
            "bound_ms": 1e3 * self.bound_s,
            "proven": self.proven,
            "ms": {name: 1e3 * seconds for name, seconds in self.seconds.items()},
        }


@dataclass(frozen=True)
class Gaps:
    """All blocks of a model of more than one call, and the whole: by scheduler the seconds its schedule takes and those of finding it.

    search_s  of finding all schedules of the whole
    """

    blocks: tuple[BlockGaps, ...]
    whole_s: Mapping[str, float]
    found_s: Mapping[str, float]
    search_s: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, with the worst and the mean gap on the blocks whose optimum is known; nulls where there are none."""
        proven = [block for block in self.blocks if block.proven]
        gaps = {name: [block.gap(name) for block in proven] for name in self.whole_s}
        best = [min(block.gap(name) for name in self.whole_s) for block in proven]
        aimed = [min(block.gap(name) for name in self.whole_s if name.startswith(AIMED)) for block in proven]
        return {
            "blocks": [block.to_json() for block in self.blocks],
            "proven": len(proven),
            "worst_gap": {name: max(found, default=None) for name, found in gaps.items()},
            "mean_gap": {name: sum(found) / len(found) if found else None for name, found in gaps.items()},
            "worst_of_best": max(best, default=None),
            "worst_of_aimed": max(aimed, default=None),
            "predicted_ms": {name: 1e3 * seconds for name, seconds in self.whole_s.items()},
            "found_s": dict(self.found_s),
            "search_s": self.search_s,
        }


def gaps(problem: Problem, solver_s: float, workers: int, tell: Tell) -> Gaps:
    """The solver is given `solver_s` seconds for each block. Raises ImportError where it is not there."""
    begin = time.perf_counter()
    whole = every_schedule(problem)
    search_s = time.perf_counter() - begin
    counted = Counter(problem.part(calls) for calls in blocks(problem) if len(calls) > 1)
    found = []
    for at, (block, times) in enumerate(counted.items()):
        tell(f"block {at + 1} of {len(counted)}, {len(block.calls)} calls")
        found.append(solved(block, times, solver_s, workers))
    return Gaps(
        tuple(found),
        {one.name: one.predicted_s for one in whole},
        {one.name: one.seconds for one in whole},
        search_s,
    )


def solved(block: Problem, times: int, solver_s: float, workers: int) -> BlockGaps:
    """What every scheduler makes of a block, and its optimum or what is known of it; the solver is asked where a bound does not tell already."""
    found = every_schedule(block)
    best = min((one.placed for one in found), key=makespan)
    bound_s, proven = lower_bound(block), False
    if makespan(best) > bound_s * (1 + CLOSED):
        by_solver = optimum(block, best, solver_s, workers)
        best, bound_s, proven = by_solver.placed, by_solver.bound_s, by_solver.proven
    proven = proven or makespan(best) <= bound_s * (1 + CLOSED)
    seconds = {one.name: makespan(one.placed) for one in found}
    return BlockGaps(len(block.calls), times, makespan(best), bound_s, proven, seconds)


def every_schedule(problem: Problem) -> list[Candidate]:
    """What each scheduler finds, equal schedules too; the last two begin with what the others found, and are told their seconds too."""
    found = named(problem, "")
    before = sum(one.seconds for one in found)
    for name, search in (("blocks", best_of_blocks), ("descent", descent_in_blocks)):
        begin = time.perf_counter()
        placed = search(problem, [one.placed for one in found])
        before += time.perf_counter() - begin
        found.append(Candidate(name=name, placed=placed, seconds=before, predicted_s=makespan(placed)))
    return found
