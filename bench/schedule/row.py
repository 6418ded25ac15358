"""One line of the table: a model under one schedule, beside its sequential one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.race.spread import geometric_mean
from bench.schedule.found import Schedules
from compiler.ir.plan import Plan
from compiler.measure.plans import Raced
from compiler.workbench import state_of


def rows(model: str, threads: int, schedules: Schedules, raced: Sequence[Raced]) -> list[dict[str, Any]]:
    """Plain JSON, one for each schedule, in the order in which they were found."""
    handover = schedules.handover
    shared = {
        "model": model,
        "threads": threads,
        "calls": len(schedules.kernels.calls),
        "state": state_of(handover) or None,
        "handover_ns": 1e9 * handover.seconds if handover else None,
        "bound_ms": None if schedules.bound_s is None else 1e3 * schedules.bound_s,
    }
    return [
        {
            **shared,
            "scheduler": found.plan.scheduler,
            "lanes": found.plan.lanes,
            "handovers": handovers(found.plan),
            "search_s": found.seconds,
            "predicted_ms": 1e3 * found.plan.predicted_s,
            "ms": 1e3 * one.spread.median,
            "spread_ms": [1e3 * one.spread.p10, 1e3 * one.spread.p90],
            "ratio": one.ratio.ratio,
            "ratio_interval": None if one.ratio.low is None else [one.ratio.low, one.ratio.high],
        }
        for found, one in zip(schedules.found, raced, strict=True)
    ]


def handovers(plan: Plan) -> int:
    """Results of one lane that another waits for, in one inference."""
    return sum(len(task.waits) for task in plan.tasks)


def best(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of each model and number of threads the row that a compilation would take: certainly faster than sequential, else that."""
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    for row in rows:
        if "problem" in row:
            continue
        key = row["model"], row["threads"]
        interval = row["ratio_interval"]
        if key not in found or (interval and interval[1] < 1 and row["ratio"] < found[key]["ratio"]):
            found[key] = row
    return list(found.values())


def means(rows: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Geometric mean over the models of the best schedule's ratio to the sequential one, by number of threads."""
    ratios: dict[int, list[float]] = {}
    for row in best(rows):
        ratios.setdefault(row["threads"], []).append(row["ratio"])
    return {threads: geometric_mean(found) for threads, found in sorted(ratios.items())}
