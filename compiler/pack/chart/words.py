"""A schedule's timeline in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .schedule import Schedule, Timeline
from .times import CallTime, LaneTime, call_times, handover_share, lane_times
from .wording import duration, plural, visible

SLOWEST = 10
"""Calls that are listed by themselves: those whose measured time differs most from the predicted one."""
TOLERATED = 0.01
"""Part by which the drawn timeline may end before or after what the scheduler predicted, without a word."""
_FAMILY = 48


def heading(schedule: Schedule) -> str:
    """Predicted and measured, and by how much they differ."""
    predicted = f"Predicted {duration(schedule.predicted_s)}"
    excess = schedule.excess
    if schedule.measured is None or excess is None:
        return f"{predicted}, not measured"
    return f"{predicted}, measured {duration(schedule.measured.seconds)}: {difference(excess)}"


def difference(excess: float) -> str:
    """`5.2% longer`; from twice as long on `2.3 times as long`."""
    if excess >= 1:
        return f"{1 + excess:.1f} times as long"
    return f"{abs(excess):.1%} {'longer' if excess >= 0 else 'shorter'}"


def remark(schedule: Schedule) -> str:
    """What the scheduler counts that the predicted timeline does not show, or the other way round.

    Empty where they agree.
    """
    if schedule.predicted is None:
        return "when each task was expected to run is not known of this plan"
    drawn, said = schedule.predicted.seconds, schedule.predicted_s
    if abs(drawn - said) <= TOLERATED * max(drawn, said):
        return ""
    return f"rows of kernels and hand-overs alone end at {duration(drawn)}, the scheduler predicts {duration(said)}"


def extent(schedule: Schedule) -> str:
    """How much there is of everything."""
    tasks = schedule.tasks
    launches = sum(not task.beside for task in tasks)
    counts = [plural(len(schedule.calls), "kernel")]
    counts.append(
        f"{plural(len(tasks), 'task')} in {plural(launches, 'launch')}"
        if launches < len(tasks)
        else plural(len(tasks), "task")
    )
    waits = sum(len(task.waits) for task in tasks)
    return (
        f"{', '.join(counts)} on {plural(schedule.lanes, schedule.lane)} with {plural(waits, 'hand-over')}, "
        f"by the {visible(schedule.scheduler)} scheduler"
    )


def sharing(schedule: Schedule) -> str:
    """How lanes share the kernels, in one sentence; empty where there is but one lane."""
    if schedule.lanes < 2:
        return ""
    lanes: dict[int, set[int]] = {}
    for task in schedule.tasks:
        lanes.setdefault(task.call, set()).add(task.lane)
    split = sum(len(used) > 1 for used in lanes.values())
    whole = len(lanes) - split
    lane = schedule.lane
    parts = [f"{plural(split, 'kernel')} split over several {lane}s"] if split else []
    parts += [f"{plural(whole, 'kernel')} on one {lane} each"] if whole else []
    return ", ".join(parts)


def most_different(schedule: Schedule) -> list[CallTime]:
    """The SLOWEST calls whose measured time differs most from the predicted one, the greatest difference first."""
    return sorted(call_times(schedule), key=lambda one: (-abs(one.more), one.call))[:SLOWEST]


def summary(schedule: Schedule) -> list[str]:
    """One screen of text."""
    lines = [heading(schedule), extent(schedule)]
    if words := sharing(schedule):
        lines.append(words)
    if words := remark(schedule):
        lines.append(words)
    for name, timeline in schedule.timelines:
        lines += ["", f"{name}, {handover_share(timeline):.1%} of the time on hand-overs of the critical path"]
        lines += _columns(
            ("", "tasks", "busy", "", "waiting", "of it hand-overs", "between", "idle at the end"),
            [_lane(schedule, timeline, one) for one in lane_times(timeline, schedule.lanes)],
        )
    if slowest := most_different(schedule):
        lines += ["", "calls whose measured time differs most from the predicted one"]
        lines += _columns(
            ("call", "predicted", "measured", "ratio", "  family"),
            [
                (
                    str(one.call),
                    duration(one.predicted),
                    duration(one.measured),
                    "-" if one.ratio is None else f"{one.ratio:.2f}",
                    f"  {visible(one.family, _FAMILY)}",
                )
                for one in slowest
            ],
        )
    return lines


def _lane(schedule: Schedule, timeline: Timeline, one: LaneTime) -> tuple[str, ...]:
    share = one.busy / timeline.seconds if timeline.seconds else 0.0
    seconds = (one.waiting, one.handing, one.between, one.idle)
    return (
        f"{schedule.lane} {one.lane}",
        str(one.tasks),
        duration(one.busy),
        f"{share:.0%}",
        *map(duration, seconds),
    )


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Right-aligned but for a last column that begins with blanks."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell if cell.startswith(" ") else cell.rjust(wide) for cell, wide in zip(row, widths, strict=True)
        ).rstrip()
        for row in (head, *rows)
    ]


def told(schedule: Schedule) -> dict[str, Any]:
    """All of it as JSON, times in seconds."""
    measured = schedule.measured
    return {
        "scheduler": schedule.scheduler,
        "lanes": schedule.lanes,
        "predicted_s": schedule.predicted_s,
        "measured_s": measured.seconds if measured else None,
        "timelines": {
            name: {
                "seconds": timeline.seconds,
                "handover_share": handover_share(timeline),
                "lanes": [vars(one) for one in lane_times(timeline, schedule.lanes)],
                "critical": sorted(timeline.critical),
            }
            for name, timeline in schedule.timelines
        },
        "calls": [
            {"call": one.call, "family": one.family, "predicted_s": one.predicted, "measured_s": one.measured}
            for one in call_times(schedule)
        ],
        "tasks": [
            {
                "call": task.call,
                "lane": task.lane,
                "first": task.first,
                "last": task.last,
                "waits": [list(wait) for wait in task.waits],
                "beside": task.beside,
                "predicted_s": list(schedule.predicted.spans[at]) if schedule.predicted else None,
                "measured_s": list(measured.spans[at]) if measured else None,
            }
            for at, task in enumerate(schedule.tasks)
        ],
    }
