"""A whole problem in stages: cut into blocks, equal blocks solved once, each on its clusters and, where small enough, on its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from compiler.schedule.clusters import linear_clusters, pieces, quotient
from compiler.schedule.cut import halves, narrow, series
from compiler.schedule.problem import Placed, Problem, makespan
from compiler.schedule.stage_lanes import StageLanes, placed_stages
from compiler.schedule.stages import Latency, Pruning, Stage, TooManyEndings, stages

PRUNINGS = (Pruning(3, 8), Pruning(3, 4), Pruning(1, 4))
"""Tried from the widest search to the narrowest, until one is within the bound on endings."""
MOST_ENDINGS = 20_000
"""Pairs of a set and its ending that one search may look at: some tenths of a second."""
MOST_CALLS = 48
"""Larger blocks are cut where few tensors are live before anything is tried."""
CHAINS = (1, 2, 4, 64)
"""The most calls of a cluster that are kept together; with 1 the nodes are the calls themselves."""

Latencies = Callable[[Problem], Latency]
"""For a block what its stages take, their groups made of calls of the block."""


def shared_lanes(block: Problem) -> Latency:
    """The latencies that follow from the times of the calls."""
    return StageLanes(block).seconds


def stage_schedule(problem: Problem, latencies: Latencies = shared_lanes) -> tuple[Placed, ...]:
    """The schedule whose stages are predicted to take least."""
    return placed_stages(problem, staged(problem, latencies))


def staged(problem: Problem, latencies: Latencies = shared_lanes) -> list[Stage]:
    """The stages of a whole problem; equal blocks have equal stages."""
    solved: dict[Problem, Sequence[Stage]] = {}
    found: list[Stage] = []
    for calls in blocks(problem):
        block = problem.part(calls)
        if block not in solved:
            solved[block] = _best(block, latencies)
        found += _renamed(solved[block], calls)
    return found


def blocks(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Parts to be run one after another: cut where one tensor is live, larger ones than MOST_CALLS where few are."""
    waiting = series(problem.before, problem.calls)[::-1]
    while waiting:
        calls = waiting.pop()
        if len(calls) <= MOST_CALLS:
            yield calls
        else:
            parts = narrow(problem.before, calls)
            waiting += (parts if len(parts) > 1 else halves(problem.before, calls))[::-1]


def _best(block: Problem, latencies: Latencies) -> Sequence[Stage]:
    """Of the stages found on clusters and on calls those that end first."""
    latency = latencies(block)
    chains = linear_clusters(block)
    tried = dict.fromkeys(tuple(pieces(block, chains, most)) for most in CHAINS)
    found = [one for nodes in tried if (one := _pruned(block, nodes, latency)) is not None]
    if found:
        return min(found, key=lambda one: makespan(placed_stages(block, one)))
    parts = halves(block.before, tuple(block.calls))
    return [stage for part in parts for stage in _renamed(_best(block.part(part), latencies), part)]


def _pruned(block: Problem, nodes: Sequence[tuple[int, ...]], latency: Latency) -> Sequence[Stage] | None:
    """Stages of nodes, each some calls, with the widest pruning that is within the bound; None where none is."""
    before = quotient(block.before, nodes)

    def calls_of(stage: Stage) -> Stage:
        return tuple(tuple(sorted(call for node in group for call in nodes[node])) for group in stage)

    for pruning in PRUNINGS:
        try:
            found = stages(before, lambda stage: latency(calls_of(stage)), pruning, MOST_ENDINGS)
            return [calls_of(stage) for stage in found]
        except TooManyEndings:
            continue
    return None


def _renamed(found: Sequence[Stage], calls: Sequence[int]) -> list[Stage]:
    """Stages of a part in the numbers of the whole."""
    return [tuple(tuple(calls[call] for call in group) for group in stage) for stage in found]
