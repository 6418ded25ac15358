"""Where a call ends first, given what has been placed: on one lane, or on several at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.schedule.problem import Lanes, Placed, Problem

Options = Sequence[tuple[int, float]]
"""Numbers of lanes that a call may get, ascending, and what it takes there."""
Makers = tuple[Lanes, ...]
"""The lanes of each predecessor."""


class Placing:
    """Places calls of one problem.

    `free` says from when on each lane is free; `done` has what has been placed, the predecessors among it.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.every = tuple(range(problem.lanes))
        self.single = [(lane,) for lane in self.every]
        self.known: dict[tuple[int, Lanes, Makers], float] = {}

    def each(self, call: int, options: Options, free: Sequence[float], done: Mapping[int, Placed]) -> list[Placed]:
        """The call in each of its options. O(options · lanes · (predecessors + log lanes))."""
        earlier = [done[one] for one in self.problem.before[call]]
        makers = tuple([one.lanes for one in earlier])
        arrives = max([one.end for one in earlier]) + self.problem.handover_s if earlier else 0.0
        first: list[int] = []
        found = []
        for count, length in options:
            if count == 1:
                found.append(self._on_one(call, length, free, earlier, makers))
            else:
                first = first or self._free_first(free, arrives, makers)
                found.append(self._on_several(call, count, length, free, first, arrives, makers))
        return found

    def _on_one(
        self, call: int, length: float, free: Sequence[float], earlier: Sequence[Placed], makers: Makers
    ) -> Placed:
        """The lane on which it ends first; of equal ones one that made an operand, then the least idle."""
        handover = self.problem.handover_s
        best: tuple[float, bool, float, int] | None = None
        chosen = 0.0
        for lane in self.every:
            begin, own, alone = free[lane], False, self.single[lane]
            for one in earlier:
                arrives = one.end if one.lanes == alone else one.end + handover
                if arrives > begin:
                    begin = arrives
                own = own or lane in one.lanes
            option = (begin + (length + self._moved(call, alone, makers)), not own, -free[lane], lane)
            if best is None or option < best:
                best, chosen = option, begin
        assert best is not None
        return Placed(call, self.single[best[3]], chosen, best[0])

    def _free_first(self, free: Sequence[float], arrives: float, makers: Makers) -> list[int]:
        """The lanes by when a call can begin there; of equal ones first those that made an operand."""
        own = {lane for lanes in makers for lane in lanes}
        return sorted(self.every, key=lambda lane: (max(free[lane], arrives), lane not in own, lane))

    def _on_several(
        self,
        call: int,
        count: int,
        length: float,
        free: Sequence[float],
        first: Sequence[int],
        arrives: float,
        makers: Makers,
    ) -> Placed:
        """The lanes that are free first or, if that is sooner with what is moved, those of a predecessor."""
        sets: dict[Lanes, None] = {tuple(sorted(first[:count])): None}
        if self.problem.moves:
            sets |= {lanes: None for lanes in makers if len(lanes) == count}
        found = []
        for chosen in sets:
            begin = max([arrives, *[free[lane] for lane in chosen]])
            found.append(Placed(call, chosen, begin, begin + (length + self._moved(call, chosen, makers))))
        return min(found, key=lambda one: one.end) if len(found) > 1 else found[0]

    def _moved(self, call: int, lanes: Lanes, makers: Makers) -> float:
        """By how much the call takes longer because its lanes read what others wrote, as `Problem.moving` has it."""
        if not self.problem.moves or not makers:
            return 0.0
        key = (call, lanes, makers)
        if key not in self.known:
            reads = [*zip(self.problem.moves[call], makers, strict=True)]
            self.known[key] = max(sum([m.seconds * m.share(lanes, of, lane) for m, of in reads]) for lane in lanes)
        return self.known[key]
