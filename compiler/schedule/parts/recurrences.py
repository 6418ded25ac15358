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
    reached = [_reached(division, stages, seconds, read.readers) for read in division.states]
    return maximum_cycle_mean([[_made(division, stages, own, made) for made in division.states] for own in reached])


def _reached(division: Division, stages: Sequence[Stage], seconds: Sequence[float], readers: int) -> dict[int, float]:
    """When stages end at the earliest that read of these calls' stages, and these, if they begin at 0."""
    ends: dict[int, float] = {}
    for at, (device, calls) in enumerate(stages):
        begins = [
            end + _waited_s(division, stages[earlier][0], device)
            for earlier, end in ends.items()
            if _depends(division, stages[earlier][1], calls)
        ]
        if begins or readers & calls:
            ends[at] = seconds[at] + max(begins, default=0.0)
    return ends


def _made(division: Division, stages: Sequence[Stage], ends: dict[int, float], state: Recurrence) -> float | None:
    """When the last of these stages that write a state ends, and its readers have it; None where none writes it."""
    readers = {device for device, calls in stages if calls & state.readers}
    return max(
        (
            end + max((_waited_s(division, stages[at][0], reader) for reader in readers), default=0.0)
            for at, end in ends.items()
            if stages[at][1] & state.writers
        ),
        default=None,
    )


def _waited_s(division: Division, one: int, other: int) -> float:
    """What a device waits for a result of another; of its own it waits for none."""
    return division.between(one, other).handover_s if one != other else 0.0


def _depends(division: Division, earlier: int, calls: int) -> bool:
    """Whether calls read of earlier ones; replicas do not of each other."""
    return earlier != calls and any(one.writers & earlier and one.readers & calls for one in division.tensors)
