"""Stages by dynamic programming over endings.

IOS (Ding, Zhu, Jia, Pekhimenko and Han, "IOS: Inter-operator scheduler for CNN acceleration", MLSys 2021, section 4): a schedule is a sequence of
stages, each a set of nodes that no other node left reads from them: an ending. The weakly connected components of an ending are its groups; groups run
side by side, the nodes of a group one after another. cost[S] = min over endings E of S of cost[S \\ E] + latency(E), cost[{}] = 0.

A node is one call or a cluster of calls. With n nodes of which at most d are unordered among each other there are at most (n/d + 1)^(2d) pairs (S, E).
The least sum of latencies is found exactly, among the endings that pruning leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Stage = tuple[tuple[int, ...], ...]
"""Groups, each of nodes in ascending order."""
Latency = Callable[[Stage], float]
"""Seconds that a stage takes: measured, or from a model."""


@dataclass(frozen=True)
class Pruning:
    """Endings with more nodes in a group or more groups are left out; IOS's own bounds are 3 and 8."""

    nodes: int = 3
    groups: int = 8


class TooManyEndings(Exception):
    """There are more pairs of a set and its ending than were allowed for."""


def stages(
    before: Sequence[Sequence[int]], latency: Latency, pruning: Pruning, most_endings: int | None = None
) -> tuple[Stage, ...]:
    """The stages with the least sum of latencies, first to last. Raises TooManyEndings."""
    return _Endings(before, latency, pruning, most_endings).stages()


class _Endings:
    """Sets of nodes are the bits of an int."""

    def __init__(
        self, before: Sequence[Sequence[int]], latency: Latency, pruning: Pruning, most_endings: int | None
    ) -> None:
        self.latency, self.pruning, self.most = latency, pruning, most_endings
        self.seen = 0
        self.nodes = len(before)
        self.before = [sum(1 << one for one in earlier) for earlier in before]
        self.after = [0] * self.nodes
        for node, earlier in enumerate(before):
            for one in earlier:
                self.after[one] |= 1 << node
        self.priced: dict[int, float | None] = {}

    def stages(self) -> tuple[Stage, ...]:
        whole = (1 << self.nodes) - 1
        cost: dict[int, float] = {0: 0.0}
        last: dict[int, int] = {}
        for rest in self._remainders(whole):
            best: float | None = None
            for ending in self._endings(rest):
                price = self._price(ending)
                if price is not None and (best is None or cost[rest & ~ending] + price < best):
                    best, last[rest] = cost[rest & ~ending] + price, ending
            assert best is not None, "an ending of one node is never pruned"
            cost[rest] = best
        found = []
        while whole:
            found.append(tuple(self._groups(last[whole])))
            whole &= ~last[whole]
        return tuple(found[::-1])

    def _remainders(self, whole: int) -> list[int]:
        """The sets that are left when endings are taken away, smallest first, without the empty one."""
        found = {whole}
        waiting = [whole]
        pairs = 0
        while waiting:
            rest = waiting.pop()
            for node in self._sinks(rest):
                pairs += 1
                smaller = rest & ~(1 << node)
                if smaller not in found:
                    found.add(smaller)
                    waiting.append(smaller)
            self._check(pairs)  # each sink alone is an ending
        return sorted(found - {0}, key=int.bit_count)

    def _sinks(self, rest: int) -> Iterator[int]:
        for node in range(rest.bit_length()):
            if rest >> node & 1 and not self.after[node] & rest:
                yield node

    def _endings(self, rest: int) -> Iterator[int]:
        """Each non-empty ending once: its nodes are added in descending order."""
        most = self.pruning.nodes * self.pruning.groups

        def grown(ending: int, below: int, count: int) -> Iterator[int]:
            for node in range(below):
                if rest >> node & 1 and not self.after[node] & rest & ~ending:
                    larger = ending | 1 << node
                    if self._fits(larger, node):
                        self.seen += 1
                        self._check(self.seen)
                        yield larger
                        if count + 1 < most:
                            yield from grown(larger, node, count + 1)

        yield from grown(0, self.nodes, 0)

    def _fits(self, ending: int, node: int) -> bool:
        """Whether the group of a node is small enough: groups only grow with an ending."""
        return self._group(ending, node).bit_count() <= self.pruning.nodes

    def _group(self, ending: int, node: int) -> int:
        group = fresh = 1 << node
        while fresh:
            at = fresh.bit_length() - 1
            fresh ^= 1 << at
            joined = (self.before[at] | self.after[at]) & ending & ~group
            group |= joined
            fresh |= joined
        return group

    def _groups(self, ending: int) -> list[tuple[int, ...]]:
        found = []
        while ending:
            group = self._group(ending, (ending & -ending).bit_length() - 1)
            found.append(tuple(node for node in range(self.nodes) if group >> node & 1))
            ending &= ~group
        return found

    def _price(self, ending: int) -> float | None:
        """What the stage takes; None where it has too many groups."""
        if ending not in self.priced:
            groups = self._groups(ending)
            fits = len(groups) <= self.pruning.groups
            self.priced[ending] = self.latency(tuple(groups)) if fits else None
        return self.priced[ending]

    def _check(self, pairs: int) -> None:
        if self.most is not None and pairs > self.most:
            raise TooManyEndings
