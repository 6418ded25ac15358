"""Which launch runs on which stream: as few streams and as few edges between streams as there can be.

Nimble (Kwon, Yu, Jeong and Chun, "Nimble: Lightweight and parallel GPU task scheduling for deep learning", NeurIPS
2020, section 4.2 and theorem 4): in the minimum equivalent graph, which has no edge that others imply, a maximum
matching of launches with followers joins them to the fewest paths. Each path is a stream, so launches between which no
path leads are on different ones, and no graph of streams for which that holds has fewer edges between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.schedule.problem import ways_to_the_end

Before = Sequence[Sequence[int]]


def reduced(before: Before) -> tuple[tuple[int, ...], ...]:
    """The transitive reduction: predecessors without those that come before another of them. O(n e / 64)."""
    ancestors: list[int] = []
    found = []
    for earlier in before:
        implied = 0
        for one in earlier:
            implied |= ancestors[one]
        found.append(tuple(sorted({one for one in earlier if not implied >> one & 1})))
        bits = implied
        for one in earlier:
            bits |= 1 << one
        ancestors.append(bits)
    return tuple(found)


def streams(before: Before) -> tuple[int, ...]:
    """For each launch its stream, numbered as they begin; `before` is a transitive reduction.

    A launch inherits the stream of a predecessor whose last launch on it that is, found by augmenting paths (Kuhn, "The
    Hungarian method for the assignment problem", 1955). O(n e). Launches with one predecessor come first, as others
    wait for another stream in any case, and of such those with the longest way to the end. Once matched they stay so (a
    transversal matroid: Edmonds and Fulkerson, 1965), so no maximum matching leaves fewer launches that wait for other
    streams.
    """
    follower: dict[int, int] = {}
    inherits: dict[int, int] = {}
    ways = ways_to_the_end(before, [1.0] * len(before))
    for launch in sorted(range(len(before)), key=lambda launch: (len(before[launch]) > 1, -ways[launch], launch)):
        _augment(launch, before, follower, inherits)
    found: list[int] = []
    for launch in range(len(before)):
        fresh = max(found, default=-1) + 1
        found.append(found[inherits[launch]] if launch in inherits else fresh)
    return tuple(found)


def _augment(launch: int, before: Before, follower: dict[int, int], inherits: dict[int, int]) -> None:
    """Finds a predecessor for a launch to follow, where others may have to follow another of theirs; breadth first."""
    reached: dict[int, int] = {}
    waiting = [launch]
    while waiting:
        one = waiting.pop(0)
        for earlier in before[one]:
            if earlier in reached:
                continue
            reached[earlier] = one
            if earlier in follower:
                waiting.append(follower[earlier])
                continue
            at: int | None = earlier
            while at is not None:
                taker = reached[at]
                left = inherits.get(taker)
                follower[at], inherits[taker] = taker, at
                at = left
            return


def elsewhere(before: Before, stream_of: Sequence[int]) -> tuple[int, ...]:
    """For each launch, how many launches of other streams it waits for."""
    return tuple(sum(stream_of[one] != stream_of[launch] for one in earlier) for launch, earlier in enumerate(before))


def crossings(before: Before, stream_of: Sequence[int]) -> int:
    """Edges between launches of different streams."""
    return sum(elsewhere(before, stream_of))
