"""A plan's timeline, predicted beside measured: as a picture, and as words.

Stands apart: the standard library of Python 3.10 and nothing else, with relative imports, because the package also
travels in every artifact, as `chart/`. There `tilewright timeline` finds it beside the loader, so that the picture of
fresh measurements is drawn by what drew `plan.svg`.
"""

from .drawing import STYLE, schedule_svg
from .events import trace_events
from .reading import read
from .schedule import Call, Schedule, Span, Task, Timeline
from .times import CallTime, LaneTime, call_times, handover_share, lane_times
from .words import SLOWEST, summary, told

__all__ = [
    "SLOWEST",
    "STYLE",
    "Call",
    "CallTime",
    "LaneTime",
    "Schedule",
    "Span",
    "Task",
    "Timeline",
    "call_times",
    "handover_share",
    "lane_times",
    "read",
    "schedule_svg",
    "summary",
    "told",
    "trace_events",
]
