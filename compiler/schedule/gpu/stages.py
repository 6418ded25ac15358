"""Launches in stages, by dynamic programming over endings (`stages`).

The groups of a stage run concurrently, or are merged. IOS (MLSys 2021) merges sibling convolutions into one; here any
calls that can share a launch do: the first calls of all groups share one, the second calls the next, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from compiler.schedule.gpu.launch_load import LaunchLoad
from compiler.schedule.gpu.slots import makespan
from compiler.schedule.problem import ROUNDING, Problem
from compiler.schedule.solvers.clusters import linear_clusters, pieces, quotient
from compiler.schedule.solvers.cut import halves
from compiler.schedule.solvers.stage_schedule import blocks
from compiler.schedule.solvers.stages import Pruning, Stage, TooManyEndings, stages

Launch = tuple[int, ...]
Loads = Callable[[Launch], LaunchLoad | None]
"""Of calls that share one launch; None where they cannot."""

PRUNINGS = (Pruning(3, 8), Pruning(2, 4), Pruning(1, 4))
MOST_ENDINGS = 3_000
"""Each is simulated, twice where it can be merged."""
CHAINS = (1, 2, 4)
"""The most calls of a cluster that are one node; with 1, the first, nodes are calls."""


def stage_launches(
    before: Sequence[Sequence[int]], launched: Sequence[int], loads: Loads, lengths: Sequence[int] = CHAINS
) -> list[Launch]:
    """The `launched` calls in launches, in an order in which they may run.

    They are those of the stages that are predicted to take least. `before` are all calls' predecessors; a call that is
    not launched has nothing to do, and none waits for it. Equal blocks are searched once. `lengths` are the most calls
    of a cluster that are tried as one node.
    """
    at = {call: number for number, call in enumerate(launched)}
    inner = tuple(tuple(sorted(at[one] for one in before[call] if one in at)) for call in launched)
    seconds = tuple((_load(loads, (call,)).seconds,) for call in launched)
    whole = Problem(inner, seconds, 1)
    solved: dict[Problem, list[Launch]] = {}
    found: list[Launch] = []
    for block in blocks(whole):
        part = whole.part(block)
        calls = [launched[number] for number in block]
        if part not in solved:
            solved[part] = _Search(part, calls, loads, lengths).launches()
        for launch in solved[part]:
            found += _legal(tuple(calls[number] for number in launch), loads)
    return found


def _legal(launch: Launch, loads: Loads) -> list[Launch]:
    """As it is, or taken apart where these calls, unlike those of an equal block, cannot share it."""
    return [launch] if loads(launch) is not None else [(call,) for call in launch]


def _load(loads: Loads, launch: Launch) -> LaunchLoad:
    load = loads(launch)
    assert load is not None, "a call alone has a launch"
    return load


class _Search:
    """One block: `calls` are its calls' numbers in the whole, by which they are asked for."""

    def __init__(self, block: Problem, calls: Sequence[int], loads: Loads, lengths: Sequence[int]) -> None:
        self.block, self.calls, self.loads, self.lengths = block, calls, loads, lengths
        self.known: dict[Stage, tuple[float, list[Launch]]] = {}

    def launches(self) -> list[Launch]:
        """Of the stages found on clusters of several lengths those that take least."""
        chains = linear_clusters(self.block)
        tried = dict.fromkeys(tuple(pieces(self.block, chains, most)) for most in self.lengths)
        found = [one for nodes in tried if (one := self._stages(nodes)) is not None]
        if found:
            best = min(found, key=lambda one: sum(self._best(stage)[0] for stage in one))
            return [launch for stage in best for launch in self._best(stage)[1]]
        joined: list[Launch] = []
        for part in halves(self.block.before, tuple(self.block.calls)):
            inner = _Search(self.block.part(part), [self.calls[call] for call in part], self.loads, self.lengths)
            joined += [tuple(part[call] for call in launch) for launch in inner.launches()]
        return joined

    def _stages(self, nodes: Sequence[tuple[int, ...]]) -> list[Stage] | None:
        """Stages of nodes, with the widest pruning that is within the bound; None where none is."""

        def calls_of(stage: Stage) -> Stage:
            return tuple(tuple(sorted(call for node in group for call in nodes[node])) for group in stage)

        for pruning in PRUNINGS:
            try:
                found = stages(
                    quotient(self.block.before, nodes),
                    lambda stage: self._best(calls_of(stage))[0],
                    pruning,
                    MOST_ENDINGS,
                )
                return [calls_of(stage) for stage in found]
            except TooManyEndings:
                continue
        return None

    def _best(self, stage: Stage) -> tuple[float, list[Launch]]:
        """Seconds of a stage and its launches: groups merged, or concurrent where that is faster."""
        if stage not in self.known:
            apart: list[Launch] = [(call,) for group in stage for call in group]
            merged = [tuple(call for call in step if call is not None) for step in zip_longest(*stage)]
            self.known[stage] = self._seconds(apart), apart
            if len(stage) > 1 and all(self._of(launch) is not None for launch in merged):
                seconds = self._seconds(merged)
                if seconds <= self.known[stage][0] * (1 + ROUNDING):
                    self.known[stage] = seconds, merged
        return self.known[stage]

    def _seconds(self, way: Sequence[Launch]) -> float:
        """Seconds from the end of one launch to the beginning of one that waits for all of these.

        Groups fork from the one and join in the other.
        """
        loads = [load for launch in way if (load := self._of(launch)) is not None]
        inner = quotient(self.block.before, way)
        last = {*range(len(way))}.difference(*inner)
        ends = LaunchLoad(0.0, 0.0, 0.0, 0.0, 0.0, loads[0].cross_s, loads[0].fan_in_s)
        between = [tuple(one + 1 for one in earlier) or (0,) for earlier in inner]
        return makespan([ends, *loads, ends], [(), *between, tuple(sorted(one + 1 for one in last))])

    def _of(self, launch: Launch) -> LaunchLoad | None:
        return self.loads(tuple(self.calls[call] for call in launch))
