"""Where the time of a timeline goes: to work, to waiting for other lanes, to hand-offs."""

from __future__ import annotations

from dataclasses import dataclass

from .schedule import Schedule, Timeline


@dataclass(frozen=True)
class LaneTime:
    """What a lane does while the model runs, in seconds; `busy`, `waiting`, `between` and `idle` add up to the whole.

    busy       running tasks; those that share a launch count once
    waiting    until a task of another lane had ended and was known to have
    handing    the part of `waiting` after that task had ended
    between    from one of its tasks to the next without waiting for anybody, and before its first
    idle       after its last task
    """

    lane: int
    tasks: int
    busy: float
    waiting: float
    handing: float
    between: float
    idle: float


@dataclass(frozen=True)
class CallTime:
    """A call's time on the lane on which it took longest, in seconds."""

    call: int
    family: str
    predicted: float
    measured: float

    @property
    def more(self) -> float:
        """Seconds that it took longer than predicted."""
        return self.measured - self.predicted

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.measured / self.predicted if self.predicted else None


def gaps(timeline: Timeline, at: int) -> tuple[float, float]:
    """Seconds of waiting for another lane before a task, and of the hand-off among them.

    They lie between when the task's lane was free for it and when it began. Both 0 for a task that began when it did
    because of its own lane.
    """
    cause = timeline.cause[at]
    if cause is None or not timeline.crosses(at):
        return 0.0, 0.0
    begin, free = timeline.spans[at][0], timeline.free[at]
    return max(0.0, begin - free), max(0.0, begin - max(free, timeline.spans[cause][1]))


def lane_times(timeline: Timeline, lanes: int) -> tuple[LaneTime, ...]:
    """Of each lane."""
    found = []
    for lane in range(lanes):
        mine = [at for at, task in enumerate(timeline.tasks) if task.lane == lane]
        busy = waiting = handing = reached = 0.0
        for at in mine:
            begin, end = timeline.spans[at]
            busy += max(0.0, end - max(begin, reached))
            if not timeline.tasks[at].beside:
                waited, handed = gaps(timeline, at)
                waiting += waited
                handing += handed
            reached = max(reached, end)
        between = max(0.0, reached - busy - waiting)
        found.append(LaneTime(lane, len(mine), busy, waiting, handing, between, timeline.seconds - reached))
    return tuple(found)


def handover_share(timeline: Timeline) -> float:
    """The part of the whole that the critical path spends on hand-offs, 0 to 1.

    A hand-off lasts from the end of a task to the beginning of another lane's that waited for it.
    """
    passed = 0.0
    for at in timeline.critical:
        cause = timeline.cause[at]
        if cause is not None and timeline.crosses(at):
            passed += max(0.0, timeline.spans[at][0] - timeline.spans[cause][1])
    return passed / timeline.seconds if timeline.seconds else 0.0


def call_times(schedule: Schedule) -> tuple[CallTime, ...]:
    """Of each call that has tasks, in the order of the calls; none unless they were both predicted and measured."""
    if schedule.predicted is None or schedule.measured is None:
        return ()
    predicted, measured = (_by_call(timeline) for timeline in (schedule.predicted, schedule.measured))
    return tuple(
        CallTime(call, schedule.calls[call].family, predicted[call], measured[call]) for call in sorted(predicted)
    )


def _by_call(timeline: Timeline) -> dict[int, float]:
    by_lane: dict[tuple[int, int], float] = {}
    for task, (begin, end) in zip(timeline.tasks, timeline.spans, strict=True):
        key = (task.call, task.lane)
        by_lane[key] = by_lane.get(key, 0.0) + end - begin
    longest: dict[int, float] = {}
    for (call, _), seconds in by_lane.items():
        longest[call] = max(longest.get(call, 0.0), seconds)
    return longest
