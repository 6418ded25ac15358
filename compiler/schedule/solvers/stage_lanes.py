"""Which lanes the groups of a stage run on, and how long the stage then takes, from the times of its calls alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.schedule.problem import Placed, Problem, timed

Group = tuple[int, ...]


@dataclass(frozen=True)
class LaneGroup:
    """So many lanes of a stage, the groups of calls that run there one after another, and their seconds."""

    groups: tuple[Group, ...]
    lanes: int
    seconds: float


class StageLanes:
    """The stages of one problem on its lanes."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.fastest = [_fastest(problem, call) for call in problem.calls]
        """For each call and number of lanes it may use: how many it does use, and its seconds."""
        self.known: dict[tuple[Group, int], float] = {}

    def seconds(self, groups: Sequence[Group]) -> float:
        """Seconds of a stage, from its beginning to where the next may begin.

        That is its slowest lane, and a hand-off where it has more than one.
        """
        lane_groups = self.lane_groups(groups)
        crossing = self.problem.handover_s if sum(one.lanes for one in lane_groups) > 1 else 0.0
        return max(one.seconds for one in lane_groups) + crossing

    def lane_groups(self, groups: Sequence[Group]) -> list[LaneGroup]:
        """The lanes distributed: with enough of them each group gets some, else groups run one after another."""
        return self._apart(groups) if len(groups) <= self.problem.lanes else self._in_turn(groups)

    def _in_turn(self, groups: Sequence[Group]) -> list[LaneGroup]:
        """On single lanes, pairs of lanes and so on, or all lanes together, whichever ends first.

        Of equal ones it takes the smaller groups of lanes.
        """
        lanes = self.problem.lanes
        sizes = sorted({lanes // count for count in range(1, lanes + 1)})
        return min([self._packed(groups, size) for size in sizes], key=lambda found: max(one.seconds for one in found))

    def _packed(self, groups: Sequence[Group], size: int) -> list[LaneGroup]:
        """Lane groups of `size` lanes each, the longest group first to that which is free first.

        LPT (Graham, "Bounds on multiprocessing timing anomalies", 1969), within 4/3 of the best.
        """
        packed: list[list[Group]] = [[] for _ in range(self.problem.lanes // size)]
        filled = [0.0] * len(packed)
        for length, group in sorted((-self._length(group, size), group) for group in groups):
            first = filled.index(min(filled))
            packed[first].append(group)
            filled[first] -= length
        return [LaneGroup(tuple(of), size, seconds) for of, seconds in zip(packed, filled, strict=True)]

    def _apart(self, groups: Sequence[Group]) -> list[LaneGroup]:
        """The slowest group as fast as any numbers of lanes allow, and of these the least lanes.

        O(groups · lanes²), by dynamic programming.
        """
        shared: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
        for group in groups:
            larger: dict[int, tuple[float, tuple[int, ...]]] = {}
            for used, (slowest, counts) in shared.items():
                for count in range(1, self.problem.lanes - used + 1):
                    option = max(slowest, self._length(group, count)), (*counts, count)
                    if used + count not in larger or option < larger[used + count]:
                        larger[used + count] = option
            shared = larger
        _, _, counts = min((slowest, used, counts) for used, (slowest, counts) in shared.items())
        each = zip(groups, counts, strict=True)
        return [LaneGroup((group,), count, self._length(group, count)) for group, count in each]

    def _length(self, group: Group, lanes: int) -> float:
        """Seconds of calls one after another, each on as many of the lanes as suit it.

        What they read of other lanes of the group is counted.
        """
        if (group, lanes) not in self.known:
            self.known[group, lanes] = self._chained(group, lanes)
        return self.known[group, lanes]

    def _chained(self, group: Group, lanes: int) -> float:
        length = 0.0
        done: dict[int, tuple[int, ...]] = {}
        for call in group:
            count, seconds = self.fastest[call][lanes - 1]
            length += seconds
            if self.problem.moves and lanes > 1:
                length += self._moved(call, count, done)
                done[call] = tuple(range(count))
        return length

    def _moved(self, call: int, count: int, done: dict[int, tuple[int, ...]]) -> float:
        """What a call on the first `count` lanes reads of those that the group's calls before it wrote on others."""
        lanes = tuple(range(count))
        reads = zip(self.problem.before[call], self.problem.moves[call], strict=True)
        inside = [(move, done[one]) for one, move in reads if one in done]
        return max(sum([move.seconds * move.share(lanes, makers, lane) for move, makers in inside]) for lane in lanes)


def _fastest(problem: Problem, call: int) -> list[tuple[int, float]]:
    """A call on more than one lane also waits for a hand-off."""
    options = [(n, seconds + (problem.handover_s if n > 1 else 0.0)) for n, seconds in problem.lengths(call)]
    return [
        min((option for option in options if option[0] <= lanes), key=lambda option: (option[1], option[0]))
        for lanes in range(1, problem.lanes + 1)
    ]


def placed_stages(problem: Problem, stages: Sequence[Sequence[Group]]) -> tuple[Placed, ...]:
    """Stages on lanes, each call as early as the order on its lanes allows.

    No lane waits where a stage ends, only for what it reads. A group of lanes takes those on which most of what it
    reads was made.
    """
    shared = StageLanes(problem)
    order: list[Placed] = []
    lanes_of: dict[int, tuple[int, ...]] = {}
    for groups in stages:
        left = list(range(problem.lanes))
        for lane_group in sorted(shared.lane_groups(groups), key=lambda one: -one.seconds):
            calls = [call for group in lane_group.groups for call in group]
            made = _made(problem, calls, lanes_of)
            left.sort(key=lambda lane: (-made[lane], lane))
            lanes, left = left[: lane_group.lanes], left[lane_group.lanes :]
            for call in calls:
                count, _ = shared.fastest[call][lane_group.lanes - 1]
                lanes_of[call] = tuple(sorted(lanes[:count]))
                order.append(Placed(call, lanes_of[call], 0.0, 0.0))
    return timed(problem, order)


def _made(problem: Problem, calls: Sequence[int], lanes_of: dict[int, tuple[int, ...]]) -> list[float]:
    """For each lane what it would cost some calls that another lane wrote what it did: hand-offs and moves."""
    made = [0.0] * problem.lanes
    for call in calls:
        for at, one in enumerate(problem.before[call]):
            for lane in lanes_of.get(one, ()):
                made[lane] += problem.edge_s(call, at) or 1.0
    return made
