"""The scheduling problem as a noun, what is a schedule of it, and how short none can be. docs/scheduling.md states it formally.

Calls are numbered so that each comes after its predecessors. A schedule is a sequence of `Placed`, each after its predecessors too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from compiler.errors import VerifyError

Seconds = Callable[[int, int], float | None]
"""What a call takes on so many lanes, in seconds; None where it cannot be split over so many."""

ROUNDING = 1e-9
"""Relative: two ways of adding up the same seconds differ by less."""


@dataclass(frozen=True)
class Placed:
    """A call on `lanes`, from `begin` to `end` in seconds."""

    call: int
    lanes: tuple[int, ...]
    begin: float
    end: float


@dataclass(frozen=True)
class Problem:
    """Moldable calls with precedence on lanes that are alike.

    before      the predecessors of each call
    seconds     of each call on 1, 2, ... lanes; None (or left out) where it cannot be split over so many
    lanes       how many there are
    handover_s  what a call waits for a result, unless the call and the one it is from run on the same lane alone
    split_s     what a call on more than one lane takes beside its seconds
    """

    before: tuple[tuple[int, ...], ...]
    seconds: tuple[tuple[float | None, ...], ...]
    lanes: int
    handover_s: float = 0.0
    split_s: float = 0.0

    @property
    def calls(self) -> range:
        return range(len(self.before))

    def length(self, call: int, lanes: int) -> float | None:
        """`Seconds` of this problem: what a call takes on so many lanes, with what splitting it costs."""
        known = self.seconds[call]
        seconds = known[lanes - 1] if lanes <= len(known) else None
        return seconds if seconds is None or lanes == 1 else seconds + self.split_s

    def lengths(self, call: int) -> list[tuple[int, float]]:
        """Every number of lanes that a call may run on, and what it takes there."""
        options = ((count, self.length(call, count)) for count in range(1, self.lanes + 1))
        return [(count, length) for count, length in options if length is not None]

    def alone(self, call: int) -> float:
        """What a call takes on one lane."""
        length = self.length(call, 1)
        assert length is not None, "every call runs on one lane"
        return length

    def part(self, calls: Sequence[int]) -> Problem:
        """The problem of some calls, numbered anew in the order given; predecessors outside of them count as done."""
        at = {call: number for number, call in enumerate(calls)}
        before = tuple(tuple(sorted(at[one] for one in self.before[call] if one in at)) for call in calls)
        return Problem(before, tuple(self.seconds[call] for call in calls), self.lanes, self.handover_s, self.split_s)

    def verify(self) -> None:
        """Raises VerifyError unless calls come after their predecessors and each may run on one lane."""
        if self.lanes < 1 or len(self.seconds) != len(self.before):
            raise VerifyError(f"{len(self.before)} calls with {len(self.seconds)} durations on {self.lanes} lanes")
        for call, earlier in enumerate(self.before):
            if not all(0 <= one < call for one in earlier):
                raise VerifyError(f"call {call} has the predecessors {earlier}")
            if not self.seconds[call] or self.seconds[call][0] is None:
                raise VerifyError(f"call {call} cannot run on one lane")


def timed(problem: Problem, placed: Iterable[Placed]) -> tuple[Placed, ...]:
    """The same calls on the same lanes in the same order, each as early as that allows."""
    free = [0.0] * problem.lanes
    done: dict[int, Placed] = {}
    for one in placed:
        begin = max([*(free[lane] for lane in one.lanes), *arrivals(problem, done, one)])
        length = problem.length(one.call, len(one.lanes))
        assert length is not None, "no call is placed on lanes it cannot be split over"
        done[one.call] = Placed(one.call, one.lanes, begin, begin + length)
        for lane in one.lanes:
            free[lane] = begin + length
    return tuple(done.values())


def arrivals(problem: Problem, done: dict[int, Placed], one: Placed) -> list[float]:
    """When the results that a placed call reads have reached its lanes."""
    found = []
    for earlier in (done[call] for call in problem.before[one.call]):
        together = len(one.lanes) == 1 and earlier.lanes == one.lanes
        found.append(earlier.end + (0.0 if together else problem.handover_s))
    return found


def makespan(placed: Iterable[Placed]) -> float:
    """Seconds until the last call has ended."""
    return max((one.end for one in placed), default=0.0)


def verify_schedule(problem: Problem, placed: Sequence[Placed]) -> None:
    """Raises VerifyError unless each call runs once, as long as it takes, after its predecessors, on lanes that are its own meanwhile."""
    if sorted(one.call for one in placed) != list(problem.calls):
        raise VerifyError(f"the schedule places {len(placed)} calls, not each of {len(problem.before)} once")
    late = makespan(placed) * ROUNDING
    free = [0.0] * problem.lanes
    done: dict[int, Placed] = {}
    for one in placed:
        lanes, length = set(one.lanes), problem.length(one.call, len(one.lanes))
        if not lanes or len(lanes) != len(one.lanes) or not lanes <= {*range(problem.lanes)} or length is None:
            raise VerifyError(f"call {one.call} cannot run on lanes {one.lanes}")
        if abs(one.end - one.begin - length) > late:
            raise VerifyError(f"call {one.call} takes {length} s on lanes {one.lanes}, not {one.end - one.begin}")
        if not done.keys() >= {*problem.before[one.call]}:
            raise VerifyError(f"call {one.call} is placed before one of its predecessors {problem.before[one.call]}")
        if one.begin + late < max([*(free[lane] for lane in one.lanes), *arrivals(problem, done, one)]):
            raise VerifyError(
                f"call {one.call} begins at {one.begin} s, before its lanes are free or what it reads is there"
            )
        done[one.call] = one
        for lane in one.lanes:
            free[lane] = one.end


def ways_to_the_end(before: Sequence[Sequence[int]], lengths: Sequence[float], edge: float = 0.0) -> list[float]:
    """For each call the longest chain that begins with it: its length, those of the calls after it, and `edge` for each step."""
    ways = list(lengths)
    for call in reversed(range(len(before))):
        for one in before[call]:
            ways[one] = max(ways[one], lengths[one] + edge + ways[call])
    return ways


def lower_bound(problem: Problem) -> float:
    """Seconds that no schedule goes below: the longest chain with each call at its fastest, and all lanes at work all the time."""
    options = [problem.lengths(call) for call in problem.calls]
    chain = ways_to_the_end(problem.before, [min(length for _, length in every) for every in options])
    work = sum(min(count * length for count, length in every) for every in options)
    return max([work / problem.lanes, *chain])
