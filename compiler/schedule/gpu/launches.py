"""Calls of one lane that can share a launch next to each other: fewer launches, each of which waits for the one before.

This is level scheduling of a task graph in which a call that is not urgent waits for a launch that it does not
lengthen. The level of a call is the length of the longest path of calls that begins with it. Of the calls whose
predecessors have run, those of the highest level go now, as every further launch would come on top of that path (Hu's
algorithm: "Parallel Sequencing and Assembly Line Problems", Operations Research 9, 1961). Another goes with them if
that makes a launch hardly longer, else when its level is the highest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Seconds = Callable[[Sequence[int]], float | None]
"""What calls take as one launch; None where they cannot share one. One alone always has a time."""
GROWTHS = (0.1, 0.5)
"""Which part of its own time a call that could wait may make a launch longer by. Which is better depends on the graph.
"""


def shared_launches(
    before: Sequence[Sequence[int]], launched: Sequence[int], seconds: Seconds, growth: float
) -> list[tuple[int, ...]]:
    """The `launched` calls in groups, one launch each, in the order in which they run.

    `before` are each call's predecessors. A call that is not launched has nothing to do, and none waits for it.
    """
    alone = {call: seconds([call]) or 0.0 for call in launched}
    levels = _levels(before, launched)
    left = sorted(launched, key=lambda call: (-levels[call], -alone[call], call))
    done = {*range(len(before))} - {*launched}
    found: list[tuple[int, ...]] = []
    while left:
        ready = [call for call in left if done.issuperset(before[call])]
        urgent = [call for call in ready if levels[call] == levels[left[0]]]
        groups: list[list[int]] = []
        for call in urgent:
            if not _joins(call, groups, seconds, alone[call]):
                groups.append([call])
        for call in ready[len(urgent) :]:
            _joins(call, groups, seconds, growth * alone[call])
        found += map(tuple, groups)
        done.update(*groups)
        left = [call for call in left if call not in done]
    return found


def _joins(call: int, groups: Sequence[list[int]], seconds: Seconds, most: float) -> bool:
    """Whether the call went into the group that it makes longer by least, which is by at most so many seconds."""
    longer: list[tuple[float, int]] = []
    for at, group in enumerate(groups):
        joined, now = seconds([*group, call]), seconds(group)
        if joined is not None and now is not None and joined - now <= most:
            longer.append((joined - now, at))
    if longer:
        groups[min(longer)[1]].append(call)
    return bool(longer)


def _levels(before: Sequence[Sequence[int]], launched: Sequence[int]) -> list[int]:
    """For each call, how many launched calls the longest path has that begins with it."""
    own = [0] * len(before)
    for call in launched:
        own[call] = 1
    levels = [*own]
    for call in reversed(range(len(before))):
        for one in before[call]:
            levels[one] = max(levels[one], own[one] + levels[call])
    return levels
