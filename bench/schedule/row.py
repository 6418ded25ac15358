"""One line of the table: a model under one schedule, beside its sequential one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.race.spread import geometric_mean
from bench.schedule.found import Schedules
from bench.schedule.plan_facts import depth, fan_in, handovers, joins, launches
from compiler.measure.plans import Raced
from compiler.schedule.plans.instance import WAKE_LANES_S
from compiler.steps import state_of


def rows(model: str, schedules: Schedules, raced: Sequence[Raced] | None, taken: int) -> list[dict[str, Any]]:
    """Plain JSON, one for each schedule, in the order in which they were found.

    Nothing of it is measured without `raced`.
    """
    handover, first = schedules.settled.handover, schedules.found[0].plan
    shared = {
        "model": model,
        "target": schedules.settled.backend.target.name,
        "threads": schedules.settled.lanes,
        "calls": len(schedules.kernels.calls),
        "measured_calls": schedules.settled.measured,
        "state": state_of(handover) or None,
        "handover_ns": 1e9 * handover.seconds if handover else None,
        "bound_ms": None if schedules.bound_s is None else 1e3 * schedules.bound_s,
        "proven": schedules.proven,
    }
    made = []
    for at, found in enumerate(schedules.found):
        plan = found.plan
        made.append(
            {
                **shared,
                "scheduler": plan.scheduler,
                "lanes": plan.lanes,
                "launches": launches(plan),
                "depth": depth(plan),
                "joins": joins(plan),
                "fan_in": fan_in(plan),
                "handovers": handovers(plan),
                "crossing_bytes": schedules.crossing_bytes(plan),
                "search_s": found.seconds,
                "predicted_ms": 1e3 * plan.predicted_s,
                "predicted_between_ms": found.between_s and [1e3 * end for end in found.between_s],
                "predicted_ratio": plan.predicted_s / first.predicted_s,
                "over_bound": over_bound(schedules, at),
                **measured(plan.predicted_s, raced[at] if raced else None),
                "taken": at == taken,
            }
        )
    return made


def measured(predicted_s: float, raced: Raced | None) -> dict[str, Any]:
    """What a plan took when it was run; nulls where it was not."""
    names = ("ms", "spread_ms", "prediction_gap", "ratio", "ratio_interval")
    if raced is None or raced.problem:
        return dict.fromkeys(names)
    spread, ratio = raced.spread, raced.ratio
    interval = None if ratio.low is None else [ratio.low, ratio.high]
    values = (
        1e3 * spread.median,
        [1e3 * spread.p10, 1e3 * spread.p90],
        predicted_s / spread.median - 1,
        ratio.ratio,
        interval,
    )
    return dict(zip(names, values, strict=True))


def over_bound(schedules: Schedules, at: int) -> float | None:
    """How much longer a plan is predicted to take than any schedule must, as a part of that; None without a bound.

    Below 0 for a plan that is no schedule of the problem, as its lanes do not begin a call together.
    """
    if not schedules.bound_s:
        return None
    plan = schedules.found[at].plan
    waking = WAKE_LANES_S if plan.lanes > 1 else 0.0
    return (plan.predicted_s - waking) / schedules.bound_s - 1


def best(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of each model and number of threads the row that a compilation would take."""
    return [row for row in rows if row.get("taken")]


def means(rows: Sequence[Mapping[str, Any]], ratio: str) -> dict[int, float]:
    """Geometric mean over the models of what is taken to what is sequential, by number of threads."""
    ratios: dict[int, list[float]] = {}
    for row in best(rows):
        if row[ratio] is not None:
            ratios.setdefault(row["threads"], []).append(row[ratio])
    return {threads: geometric_mean(found) for threads, found in sorted(ratios.items())}
