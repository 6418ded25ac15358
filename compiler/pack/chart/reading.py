"""plan.json -> Schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .schedule import Call, Schedule, Span, Task, Timeline


def read(plan: Mapping[str, Any], lane: str = "lane", measured: Sequence[Span] = ()) -> Schedule:
    """The plan of a plan.json; `measured` are the spans of its tasks in their order, none where they were not measured.

    Of a plan that was made for other cores than those that it was compiled on plan.json holds no times of tasks:
    nothing is predicted then. Raises KeyError for a document that lacks something, ValueError where the spans are not
    those of its tasks.
    """
    tasks = [
        Task(
            task["call"],
            task["lane"],
            task["first"],
            task["last"],
            tuple((lane, count) for lane, count in task["waits"]),
            task.get("beside", False),
        )
        for task in plan["tasks"]
    ]
    if measured and len(measured) != len(tasks):
        raise ValueError(f"{len(measured)} spans were measured of a plan of {len(tasks)} tasks")
    calls = tuple(
        Call(
            call["family"],
            call["tile"],
            str(call["blocking"]["algorithm"]),
            call["tiles"],
            call["predicted_s"],
            call["predicted_from"],
        )
        for call in plan["calls"]
    )
    handover_s = plan.get("handover_s", 0.0)
    spans = [(task["begin_s"], task["end_s"]) for task in plan["tasks"] if "begin_s" in task]
    return Schedule(
        plan["scheduler"],
        plan["lanes"],
        lane,
        calls,
        tuple(tasks),
        plan["predicted_s"],
        Timeline.of(tasks, spans, handover_s) if len(spans) == len(tasks) else None,
        Timeline.of(tasks, measured, handover_s) if measured else None,
    )
