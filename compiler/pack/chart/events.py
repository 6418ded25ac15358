"""A schedule as trace events, the JSON that Perfetto and chrome://tracing open.

The format is that of "Trace Event Format" (Google, 2016): complete events ("X"), flow events ("s", "f") and metadata
("M"); times in microseconds.
"""

from __future__ import annotations

from typing import Any

from .schedule import Schedule, Timeline
from .wording import visible

Event = dict[str, Any]


def trace_events(schedule: Schedule) -> dict[str, Any]:
    """Each timeline is a process, each lane a thread of it, each task a slice; arrows are hand-overs between lanes."""
    events: list[Event] = []
    for process, (name, timeline) in enumerate(schedule.timelines, 1):
        events.append(_named("process_name", process, 0, name))
        for lane in range(schedule.lanes):
            events.append(_named("thread_name", process, lane, f"{schedule.lane} {lane}"))
        events += _slices(schedule, timeline, process)
        events += _arrows(timeline, process)
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"scheduler": schedule.scheduler}}


def _named(what: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _slices(schedule: Schedule, timeline: Timeline, process: int) -> list[Event]:
    found = []
    for at, (task, (begin, end)) in enumerate(zip(timeline.tasks, timeline.spans, strict=True)):
        call = schedule.calls[task.call]
        arguments = {
            "call": task.call,
            "tile": visible(call.tile),
            "tile tasks": f"{task.first} to {task.last - 1} of {call.tiles}",
            "critical path": at in timeline.critical,
        }
        found.append(
            {
                "ph": "X",
                "name": visible(call.family),
                "cat": visible(call.kind),
                "pid": process,
                "tid": task.lane,
                "ts": _us(begin),
                "dur": _us(end - begin),
                "args": arguments,
            }
        )
    return found


def _arrows(timeline: Timeline, process: int) -> list[Event]:
    """From the end of each task to the begin of those on other lanes that wait for it."""
    found: list[Event] = []
    for at, waited in enumerate(timeline.awaited):
        for before in waited:
            shared = {"cat": "hand-over", "name": "hand-over", "pid": process, "id": f"{process}.{before}.{at}"}
            ended, begins = timeline.spans[before][1], timeline.spans[at][0]
            found.append({**shared, "ph": "s", "tid": timeline.tasks[before].lane, "ts": _us(ended)})
            found.append({**shared, "ph": "f", "bp": "e", "tid": timeline.tasks[at].lane, "ts": _us(begins)})
    return found


def _us(seconds: float) -> float:
    """Microseconds to the picosecond."""
    return round(1e6 * seconds, 6)
