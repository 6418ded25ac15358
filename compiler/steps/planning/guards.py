"""Which further plans an artifact holds, for cores that are not as they were when it was compiled.

They were near to each other and are far now, or the other way round. Virtual cores move without notice, and a plan that
is good for near cores may be bad for far ones, where each hand-over and each byte that another core wrote costs several
times as much. What was measured on cores that are near says nothing of far ones, so that there the records of an
earlier compilation decide, and where there are none the prediction, by a margin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from compiler.ir.plans.lanes import FAR_NS
from compiler.ir.plans.plan import Plan
from compiler.schedule.plans.found import Found
from compiler.steps.planning.choice import Choice

NEAR_S = 1e-9 * FAR_NS
"""The least a hand-over costs between cores that are far from each other."""
GAIN = 0.85
"""A plan for the other state must be predicted to take less than this part of what the plan of this state takes there.

Where nothing was measured on several lanes in a state, one of two plans on two lanes was predicted too short beside the
other by 13 % at most (NASNet-A mobile on far cores), of six other networks by 5 %."""


@dataclass(frozen=True)
class Guarded:
    """The plan for the cores as they are, and one for the other state if it is worth its place."""

    plan: Plan
    others: tuple[Plan, ...] = ()


def guarded(
    plan: Plan, state: str, there: Choice, found_there: Sequence[Found], predicted_there: Callable[[Plan], float]
) -> Guarded:
    """The plan with one for cores in the other state, where that is worth its place.

    `plan` was chosen for cores in `state`, `near` or `far`; `there`, from `found_there`, by the records for those in
    the other state.

    `predicted_there` says what any plan takes in the other state, in seconds, by one way of counting. Plans are limited
    by what a hand-over costs: the near one to NEAR_S.
    """
    if not state:
        return Guarded(plan)
    other = there.plan if there.records else min((one.plan for one in found_there), key=predicted_there)
    is_same = (other.tasks, other.tiles, other.places) == (plan.tasks, plan.tiles, plan.places)
    if is_same or (not there.records and predicted_there(other) >= GAIN * predicted_there(plan)):
        return Guarded(plan)
    if state == "near":
        return Guarded(replace(plan, most_handover_s=NEAR_S), (other,))
    return Guarded(plan, (replace(other, most_handover_s=NEAR_S),))
