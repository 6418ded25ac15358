"""The plans of one artifact, by rising limits.

The runtime takes the first whose limit is at least what a hand-over costs where it runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from compiler.errors import VerifyError
from compiler.ir.plans.plan import Plan


def verify_guards(plans: Sequence[Plan]) -> None:
    """Raises VerifyError unless each plan can be reached and some plan is there for any cores.

    Limits rise, the last one is infinite.
    """
    limits = [plan.most_handover_s for plan in plans]
    limits_text = ", ".join(f"{limit:g}" for limit in limits)
    if any(before >= after for before, after in pairwise(limits)):
        raise VerifyError(
            f"the plans' limits are {limits_text} s: each must be above the one before, or a plan is never taken"
        )
    if not limits or limits[-1] != math.inf:
        raise VerifyError(
            f"the plans' limits are {limits_text} s: the last one must be infinite, or no plan is for far cores"
        )


def by_limit(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """Plans in the order in which the runtime looks at them.

    Raises VerifyError where two have one limit, or none is for any cores.
    """
    ordered = tuple(sorted(plans, key=lambda plan: plan.most_handover_s))
    verify_guards(ordered)
    return ordered
