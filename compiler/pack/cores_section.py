"""The report's section on an artifact's several plans.

Which of them runs on which cores, and which one the page is about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.ir.plans.guards import by_limit
from compiler.ir.plans.plan import Plan
from compiler.pack.chart.wording import duration, escaped, size
from compiler.pack.elements import section, table
from compiler.pack.facts import Facts
from compiler.pack.timeline import predicted_seconds

HEAD = (
    ("plan", "n"),
    ("runs where a hand-over takes", ""),
    ("schedule", ""),
    ("lanes", "n"),
    ("hand-overs", "n"),
    ("arena", "n"),
    ("predicted there", "n"),
)


def cores_section(plan: Plan, others: Sequence[Plan], facts: Facts) -> str:
    """The plans as the runtime looks at them; nothing where there is but one."""
    if not others:
        return ""
    plans = by_limit((plan, *others))
    lines = []
    for number, one in enumerate(plans, 1):
        predicted_s = predicted_seconds(one, facts) if one is plan else one.predicted_s
        lines.append(
            (
                str(number),
                _where(one),
                f"<b>{escaped(one.scheduler)}</b>, on this page" if one is plan else escaped(one.scheduler),
                str(one.lanes),
                str(sum(len(task.waits) for task in one.tasks)),
                size(one.arena_bytes),
                duration(predicted_s),
            )
        )
    here = next(number for number, one in enumerate(plans, 1) if one is plan)
    cause = f"a hand-over took {duration(facts.handover_s)}, so that " if facts.handover_s else ""
    words = (
        "What a hand-over from one core to another takes decides which plan is the best, "
        "and it is measured when the model is loaded: the first plan that allows it runs. "
        f"Where this was compiled {cause}plan {here} was chosen: pictures and times on this page are of it."
    )
    return section(f"{len(plans)} plans for different cores", words, table(HEAD, lines))


def _where(plan: Plan) -> str:
    if plan.most_handover_s == math.inf:
        return "longer, or was not measured (far cores)"
    return f"at most {duration(plan.most_handover_s)} (near cores)"
