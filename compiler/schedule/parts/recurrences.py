"""What states cost that go from frame to frame: the least time from one frame to the next that they permit."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.schedule.solvers.ideals import Division, Recurrence, Stage
from compiler.schedule.solvers.recurrence import maximum_cycle_mean


def recurrence_s(division: Division, stages: Sequence[Stage], seconds: Sequence[float]) -> float:
    """Least seconds from one frame to the next that the division's states permit; 0 without any.

    `seconds` are of each stage for a frame. A stage begins when all that it reads is there, and hands on what it made
    when it ends: the way of a state is that of whole stages. Of replicas the slowest counts.
    """
    ways = [[_way(division, stages, seconds, read, made) for made in division.states] for read in division.states]
    return maximum_cycle_mean(ways)


def _way(
    division: Division, stages: Sequence[Stage], seconds: Sequence[float], read: Recurrence, made: Recurrence
) -> float | None:
    """The longest way from a stage that reads a state to one that makes a state, both with it, and on to its readers.

    None: there is none.
    """
    longest: dict[int, float] = {}
    for at, (device, calls) in enumerate(stages):
        begins = [
            longest[earlier] + (division.handover_s if stages[earlier][0] != device else 0.0)
            for earlier in longest
            if _depends(division, stages[earlier][1], calls)
        ]
        if begins or read.readers & calls:
            longest[at] = seconds[at] + max(begins, default=0.0)
    readers = {device for device, calls in stages if calls & made.readers}
    ends = [
        end + (division.handover_s if readers - {stages[at][0]} else 0.0)
        for at, end in longest.items()
        if stages[at][1] & made.writers
    ]
    return max(ends, default=None)


def _depends(division: Division, earlier: int, calls: int) -> bool:
    """Whether calls read of earlier ones; replicas do not of each other."""
    return earlier != calls and any(one.writers & earlier and one.readers & calls for one in division.tensors)
