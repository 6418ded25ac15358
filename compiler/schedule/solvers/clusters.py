"""Linear clusters: chains of calls that one lane runs without a hand-off, and the graph of chains, which has no cycle.

Kim and Browne, "A general approach to mapping of parallel computations upon multiprocessor architectures", ICPP 1988.
For coarse-grained graphs one lane for each cluster is within twice the optimum (Gerasoulis, Venugopal and Yang,
"Clustering task graphs for message passing architectures", ICS 1990).
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.schedule.problem import Problem

Cluster = tuple[int, ...]


def linear_clusters(problem: Problem) -> list[Cluster]:
    """Disjoint chains that cover the calls, each after those it reads from: contracted, they leave no cycle.

    While there are calls in no chain, the longest path through them (their seconds on one lane, and on every edge a
    hand-off and what is moved there) becomes one, up to where a path from outside re-enters it, since the contracted
    graph would have a cycle. O(calls · edges).
    """
    home: list[Cluster] = [(call,) for call in problem.calls]
    clusters: list[Cluster] = []
    free = {*problem.calls}
    while free:
        first, *rest = _longest_path(problem, free)
        chain = [first]
        for call in rest:
            if _reenters(problem.after, home, first, call):
                break
            chain.append(call)
            for one in chain:
                home[one] = tuple(chain)
        clusters.append(tuple(chain))
        free -= {*chain}
    return _in_order(problem.before, clusters)


def pieces(problem: Problem, clusters: Sequence[Cluster], most: int) -> list[Cluster]:
    """The clusters cut into chains of at most so many calls; these too leave no cycle when contracted."""
    cut = [cluster[at : at + most] for cluster in clusters for at in range(0, len(cluster), most)]
    return _in_order(problem.before, cut)


def quotient(before: Sequence[Sequence[int]], clusters: Sequence[Cluster]) -> tuple[tuple[int, ...], ...]:
    """The clusters that each cluster reads from, itself left out."""
    number = {call: at for at, cluster in enumerate(clusters) for call in cluster}
    found = []
    for at, cluster in enumerate(clusters):
        found.append(tuple(sorted({number[one] for call in cluster for one in before[call] if one in number} - {at})))
    return tuple(found)


def _longest_path(problem: Problem, free: set[int]) -> list[int]:
    """The path with most seconds through calls that are in no cluster yet."""
    best: dict[int, tuple[float, int | None]] = {}
    for call in sorted(free):
        reached: tuple[float, int | None] = (0.0, None)
        for edge, one in enumerate(problem.before[call]):
            if one in free and best[one][0] + problem.edge_s(call, edge) > reached[0]:
                reached = (best[one][0] + problem.edge_s(call, edge), one)
        best[call] = (reached[0] + problem.alone(call), reached[1])
    at: int | None = max(best, key=lambda call: (best[call][0], -call))
    path = []
    while at is not None:
        path.append(at)
        at = best[at][1]
    return path[::-1]


def _reenters(after: Sequence[Sequence[int]], home: Sequence[Cluster], first: int, call: int) -> bool:
    """Whether, besides edges, a path leads from the cluster of `first` to `call`; `home` has each call's cluster."""
    found = {home[first]}
    waiting = [home[reader] for one in home[first] for reader in after[one] if reader != call]
    while waiting:
        at = waiting.pop()
        if at[0] == call:
            return True
        if at not in found:
            found.add(at)
            waiting += [home[reader] for one in at for reader in after[one]]
    return False


def _in_order(before: Sequence[Sequence[int]], clusters: list[Cluster]) -> list[Cluster]:
    """Each cluster after those it reads from, otherwise by first call.

    Raises ValueError where they read from each other in a circle.
    """
    clusters = sorted(clusters)
    reads = quotient(before, clusters)
    order: dict[int, Cluster] = {}
    while len(order) < len(clusters):
        ready = (at for at in range(len(clusters)) if at not in order and order.keys() >= {*reads[at]})
        at = next(ready, None)
        if at is None:
            raise ValueError(f"clusters read from each other in a circle: {clusters}")
        order[at] = clusters[at]
    return list(order.values())
