"""Stages from measurements, without measuring all of them: solve, measure the stages of the solution, solve again.

IOS measures every ending it looks at on the device, which takes minutes to hours (MLSys 2021, section 6.5). Here a
stage has its measured latency if it has been measured, else its predicted one times the median of measured over
predicted of those that were. As in lazy search for shortest paths (Dellin and Srinivasa, "A unifying formalism for
shortest path problems with expensive edge evaluations via lazy best-first search", ICAPS 2016) only the stages of
solutions are measured.

At the end every stage of the solution is measured, or cannot be. No other sequence of stages takes less by what is
known of its stages: if no stage is faster than its scaled prediction, none takes less at all. Each round measures a
stage that was not, so there are as many rounds as stages at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from compiler.schedule.solvers.stages import Latency, Stage

StageSeconds = Callable[[Stage], float | None]
"""What a stage takes on the device, run by itself; None where it cannot be timed or the time for that is up. Stages are
of calls of the whole problem.
"""


def refined(solve: Callable[[Latency], Sequence[Stage]], predicted: Latency, measured: StageSeconds) -> Sequence[Stage]:
    """Stages that take least; each is measured at most once.

    When a clock has no time left, the solution is by what was measured until then.
    """
    known: dict[Stage, float] = {}
    asked: set[Stage] = set()
    while True:
        found = solve(_corrected(known, predicted))
        fresh = [stage for stage in dict.fromkeys(found) if stage not in asked]
        if not fresh:
            return found
        asked |= {*fresh}
        known |= {stage: seconds for stage in fresh if (seconds := measured(stage)) is not None}


def _corrected(known: dict[Stage, float], predicted: Latency) -> Latency:
    ratios = [seconds / predicted(stage) for stage, seconds in known.items() if predicted(stage) > 0.0]
    scale = median(ratios) if ratios else 1.0
    now = dict(known)
    return lambda stage: now[stage] if stage in now else predicted(stage) * scale
