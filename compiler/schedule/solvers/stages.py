"""Stages by dynamic programming over endings.

IOS (Ding, Zhu, Jia, Pekhimenko and Han, "IOS: Inter-operator scheduler for CNN acceleration", MLSys 2021, section 4): a
schedule is a sequence of stages, each a set of nodes that no other node left reads from them: an ending. The weakly
connected components of an ending are its groups; groups run concurrently, the nodes of a group one after another.
cost[S] = min over endings E of S of cost[S \\ E] + latency(E), cost[{}] = 0.

A node is one call or a cluster of calls. With n nodes of which at most d are unordered among each other there are at
most (n/d + 1)^(2d) pairs (S, E). The least sum of latencies is found exactly, among the endings that pruning leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from compiler.schedule.solvers.sets import bits

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
    """There are more pairs of a set and its ending than were allowed for; `always` if they are whatever is pruned."""

    def __init__(self, always: bool) -> None:
        super().__init__()
        self.always = always


def stages(
    before: Sequence[Sequence[int]], latency: Latency, pruning: Pruning, most_endings: int | None = None
) -> tuple[Stage, ...]:
    """The stages with the least sum of latencies, first to last. Raises TooManyEndings."""
    return Endings(before, pruning, most_endings).least(latency)


class Endings:
    """All pairs of a set of nodes that may be left and an ending of it. Raises TooManyEndings.

    Sets are the bits of an int.
    """

    def __init__(self, before: Sequence[Sequence[int]], pruning: Pruning, most: int | None = None) -> None:
        self.pruning, self.most = pruning, most
        self.seen = 0
        self.nodes = len(before)
        self.before = before
        self.after = [0] * self.nodes
        for node, earlier in enumerate(before):
            for one in earlier:
                self.after[one] |= 1 << node
        self.joined = [sum(1 << one for one in before[node]) | self.after[node] for node in range(self.nodes)]
        self.stage_of: dict[int, Stage | None] = {}
        """Of each ending its groups; None where they are too many."""
        self.pairs = [
            (rest, [one for one in self._endings(rest, sinks) if self._stage(one)])
            for rest, sinks in self._remainders()
        ]

    def least(self, latency: Latency) -> tuple[Stage, ...]:
        """The stages with the least sum of latencies, first to last."""
        prices = {ending: latency(stage) for ending, stage in self.stage_of.items() if stage is not None}
        cost: dict[int, float] = {0: 0.0}
        last: dict[int, int] = {}
        for rest, endings in self.pairs:
            cost[rest], last[rest] = min([(cost[rest ^ ending] + prices[ending], ending) for ending in endings])
        found = []
        rest = (1 << self.nodes) - 1
        while rest:
            stage = self.stage_of[last[rest]]
            assert stage is not None, "an ending of one node is never pruned"
            found.append(stage)
            rest ^= last[rest]
        return tuple(found[::-1])

    def _remainders(self) -> list[tuple[int, int]]:
        """The sets that are left when endings are taken away, smallest first, without the empty one.

        With each come its nodes that none of the set reads.
        """
        whole = (1 << self.nodes) - 1
        found = {whole: sum(1 << node for node in range(self.nodes) if not self.after[node])}
        waiting = [whole] if whole else []
        pairs = 0
        while waiting:
            rest = waiting.pop()
            sinks = found[rest]
            for node in bits(sinks):
                smaller = rest ^ 1 << node
                if smaller not in found:
                    found[smaller] = sinks ^ 1 << node | self._freed(node, smaller)
                    waiting.append(smaller)
            pairs += sinks.bit_count()
            self._check(pairs, always=True)  # each sink alone is an ending
        return sorted(((rest, sinks) for rest, sinks in found.items() if rest), key=lambda one: one[0].bit_count())

    def _freed(self, node: int, kept: int) -> int:
        """Of the nodes that a node reads those that none of `kept` reads."""
        freed = 0
        for one in self.before[node]:
            if not self.after[one] & kept:
                freed |= 1 << one
        return freed

    def _endings(self, rest: int, sinks: int) -> Iterator[int]:
        """Each non-empty ending once: its nodes are added in descending order."""
        most, joined, nodes = self.pruning.nodes * self.pruning.groups, self.joined, self.pruning.nodes
        waiting = [(0, sinks, 0)]
        while waiting:
            ending, open_nodes, count = waiting.pop()
            for node in bits(open_nodes):
                larger = ending | 1 << node
                if joined[node] & ending and self._group(larger, node).bit_count() > nodes:
                    continue
                self.seen += 1
                yield larger
                if count + 1 < most:
                    lower = open_nodes & (1 << node) - 1 | self._freed(node, rest & ~larger)
                    if lower:
                        waiting.append((larger, lower, count + 1))
            self._check(self.seen)

    def _group(self, ending: int, node: int) -> int:
        group = fresh = 1 << node
        while fresh:
            at = fresh.bit_length() - 1
            fresh ^= 1 << at
            added = self.joined[at] & ending & ~group
            group |= added
            fresh |= added
        return group

    def _stage(self, ending: int) -> Stage | None:
        if ending not in self.stage_of:
            groups, left = [], ending
            while left:
                group = self._group(ending, (left & -left).bit_length() - 1)
                groups.append(tuple(bits(group)))
                left ^= group
            self.stage_of[ending] = tuple(groups) if len(groups) <= self.pruning.groups else None
        return self.stage_of[ending]

    def _check(self, pairs: int, always: bool = False) -> None:
        if self.most is not None and pairs > self.most:
            raise TooManyEndings(always)
