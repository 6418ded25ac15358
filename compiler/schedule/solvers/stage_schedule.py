"""A whole problem in stages: cut into blocks, equal blocks solved once.

Each block is solved on its clusters and, where small enough, on its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from compiler.schedule.problem import Placed, Problem, makespan, timed
from compiler.schedule.solvers.clusters import linear_clusters, pieces, quotient
from compiler.schedule.solvers.cut import halves, narrow, series
from compiler.schedule.solvers.refined import StageSeconds, refined
from compiler.schedule.solvers.stage_lanes import StageLanes, placed_stages
from compiler.schedule.solvers.stages import Endings, Latency, Pruning, Stage, TooManyEndings

PRUNINGS = (Pruning(3, 8), Pruning(3, 4), Pruning(1, 4))
"""Tried from the widest search to the narrowest, until one is within the bound on endings."""
MOST_ENDINGS = 20_000
"""Pairs of a set and its ending that one search may look at: some tenths of a second."""
MOST_CALLS = 48
"""Larger blocks are cut where few tensors are live before anything is tried."""
CHAINS = (1, 2, 4, 64)
"""The most calls of a cluster that are kept together; with 1, the first, the nodes are the calls themselves."""

Latencies = Callable[[Problem], Latency]
"""For a block what its stages are predicted to take, their groups made of calls of the block."""


def shared_lanes(block: Problem) -> Latency:
    """The latencies that follow from the times of the calls."""
    return StageLanes(block).seconds


def stage_schedule(
    problem: Problem,
    latencies: Latencies = shared_lanes,
    measured: StageSeconds | None = None,
    lengths: Sequence[int] = CHAINS,
) -> tuple[Placed, ...]:
    """The schedule whose stages take least: by measurements where there are any, else by prediction."""
    return placed_stages(problem, staged(problem, latencies, measured, lengths))


def greedy_schedule(problem: Problem) -> tuple[Placed, ...]:
    """IOS's greedy: each stage is every call that is ready. O(calls · lanes + edges)."""
    depth: list[int] = []
    for earlier in problem.before:
        depth.append(max([depth[one] + 1 for one in earlier], default=0))
    by_depth: list[list[tuple[int, ...]]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for call in problem.calls:
        by_depth[depth[call]].append((call,))
    return placed_stages(problem, by_depth)


def staged(
    problem: Problem,
    latencies: Latencies = shared_lanes,
    measured: StageSeconds | None = None,
    lengths: Sequence[int] = CHAINS,
) -> list[Stage]:
    """The stages of a whole problem; equal blocks have equal stages, and are measured once.

    `lengths` are the most calls of a cluster that are tried as one node.
    """
    solved: dict[Problem, Sequence[Stage]] = {}
    found: list[Stage] = []
    for calls in blocks(problem):
        block = problem.part(calls)
        if block not in solved:
            solved[block] = _solved(block, calls, latencies, measured, lengths)
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


def _solved(
    block: Problem, calls: Sequence[int], latencies: Latencies, measured: StageSeconds | None, lengths: Sequence[int]
) -> Sequence[Stage]:
    """The stages of a block, which is made of `calls` of the whole.

    A block that is too wide for the search is cut in halves.
    """
    chains = linear_clusters(block)
    tried = dict.fromkeys(tuple(pieces(block, chains, most)) for most in lengths)
    searches = [search for nodes in tried if (search := _search(block, nodes)) is not None]
    if not searches:
        parts = halves(block.before, tuple(block.calls))
        whole = [[calls[call] for call in part] for part in parts]
        each = zip(parts, whole, strict=True)
        return [
            stage
            for part, named in each
            for stage in _renamed(_solved(block.part(part), named, latencies, measured, lengths), part)
        ]
    predicted = latencies(block)
    if measured is None:
        found = [search.least(predicted) for search in searches]
        return min(found, key=lambda one: makespan(timed(block, placed_stages(block, one))))

    def least(latency: Latency) -> Sequence[Stage]:
        return min((search.least(latency) for search in searches), key=lambda one: sum(map(latency, one)))

    return refined(least, predicted, lambda stage: measured(_renamed([stage], calls)[0]))


class _Search:
    """The endings of a block's nodes, each some of its calls."""

    def __init__(self, endings: Endings, nodes: Sequence[tuple[int, ...]]) -> None:
        self.endings, self.nodes = endings, nodes
        self.named: dict[Stage, Stage] = {}

    def least(self, latency: Latency) -> Sequence[Stage]:
        return [self._calls(stage) for stage in self.endings.least(lambda stage: latency(self._calls(stage)))]

    def _calls(self, stage: Stage) -> Stage:
        if stage not in self.named:
            groups = (sorted(call for node in group for call in self.nodes[node]) for group in stage)
            self.named[stage] = tuple(sorted(map(tuple, groups)))
        return self.named[stage]


def _search(block: Problem, nodes: Sequence[tuple[int, ...]]) -> _Search | None:
    """With the widest pruning that is within the bound; None where none is."""
    before = quotient(block.before, nodes)
    for pruning in PRUNINGS:
        try:
            return _Search(Endings(before, pruning, MOST_ENDINGS), nodes)
        except TooManyEndings as too_many:
            if too_many.always:
                break
    return None


def _renamed(found: Sequence[Stage], calls: Sequence[int]) -> list[Stage]:
    """Stages of a part in the numbers of the whole."""
    return [tuple(tuple(calls[call] for call in group) for group in stage) for stage in found]
