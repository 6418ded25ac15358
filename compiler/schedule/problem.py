"""The scheduling problem as a noun, what is a schedule of it, and how short none can be. docs/scheduling.md states it formally.

Calls are numbered so that each comes after its predecessors. A schedule is a sequence of `Placed`, each after its predecessors too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from compiler.errors import VerifyError

Lanes = tuple[int, ...]
"""The lanes of a call in ascending order: its first part runs on the first of them, and so on."""

ROUNDING = 1e-9
"""Relative: two ways of adding up the same seconds differ by less."""


@dataclass(frozen=True)
class Placed:
    """A call on `lanes`, from `begin` to `end` in seconds."""

    call: int
    lanes: Lanes
    begin: float
    end: float


@dataclass(frozen=True)
class Move:
    """What a call reads of one predecessor, where another lane wrote it.

    seconds  how much longer all of it takes to be read than what the reading lane wrote itself
    reads    for 1, 2, ... lanes of the call the largest share of it that one of its parts reads; left out: all
    crosses  for 1, 2, ... lanes the largest share that a part reads of what other lanes wrote, when both calls are split over the same
             lanes; left out: as much as the others wrote. A small share is an aligned edge
    """

    seconds: float
    reads: tuple[float, ...] = ()
    crosses: tuple[float, ...] = ()

    def share(self, lanes: Lanes, makers: Lanes, lane: int) -> float:
        """How much of it one lane of the call reads from other lanes than itself, from 0 to 1; `makers` are the lanes of the predecessor."""
        count = len(lanes)
        if lanes == makers and count <= len(self.crosses):
            return self.crosses[count - 1]
        reads = self.reads[count - 1] if count <= len(self.reads) else 1.0
        return min(reads, 1.0 - 1.0 / len(makers)) if lane in makers else reads

    def least(self, count: int, makers: int) -> float:
        """No more than what the slowest of `count` lanes reads from others, whichever lanes these and the `makers` are.

        Of several edges too: it is the mean over the lanes, and the slowest lane is no faster than the mean of all.
        """
        reads = self.reads[count - 1] if count <= len(self.reads) else 1.0
        shared = min(count, makers)
        mean = (shared * min(reads, 1.0 - 1.0 / makers) + (count - shared) * reads) / count
        if count != makers:
            return mean
        same = self.crosses[count - 1] if count <= len(self.crosses) else min(reads, 1.0 - 1.0 / count)
        return min(same, mean) if count > 1 else 0.0


@dataclass(frozen=True)
class Problem:
    """Moldable calls with precedence on lanes that are alike.

    before      the predecessors of each call
    seconds     of each call on 1, 2, ... lanes, with what splitting it costs; None (or left out) where it cannot be split over so many
    lanes       how many there are
    handover_s  what a call waits for a result, unless the call and the one it is from run on the same lane alone
    moves       for each call, in the order of its predecessors, what it reads of them; empty: reading from another lane costs nothing
    """

    before: tuple[tuple[int, ...], ...]
    seconds: tuple[tuple[float | None, ...], ...]
    lanes: int
    handover_s: float = 0.0
    moves: tuple[tuple[Move, ...], ...] = ()

    @property
    def calls(self) -> range:
        return range(len(self.before))

    @cached_property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """The calls that come directly after each."""
        found: list[list[int]] = [[] for _ in self.before]
        for call, earlier in enumerate(self.before):
            for one in earlier:
                found[one].append(call)
        return tuple(map(tuple, found))

    @cached_property
    def _lengths(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        numbered = (enumerate(known[: self.lanes], 1) for known in self.seconds)
        return tuple(tuple((n, one) for n, one in every if one is not None) for every in numbered)

    def length(self, call: int, lanes: int) -> float | None:
        """What a call takes on so many lanes, in seconds, when it reads what its own lanes wrote; None where it cannot be split over so many."""
        known = self.seconds[call]
        return known[lanes - 1] if lanes <= len(known) else None

    def lengths(self, call: int) -> Sequence[tuple[int, float]]:
        """Every number of lanes that a call may run on, and what it takes there."""
        return self._lengths[call]

    def alone(self, call: int) -> float:
        """What a call takes on one lane."""
        length = self.length(call, 1)
        assert length is not None, "every call runs on one lane"
        return length

    def moving(self, call: int, lanes: Lanes, done: Mapping[int, Placed]) -> float:
        """By how much a call on `lanes` takes longer because they read what others wrote: the slowest lane counts."""
        if not self.moves or not self.moves[call]:
            return 0.0
        reads = [(move, done[one].lanes) for one, move in zip(self.before[call], self.moves[call], strict=True)]
        return max(sum([move.seconds * move.share(lanes, makers, lane) for move, makers in reads]) for lane in lanes)

    def edge_s(self, call: int, at: int) -> float:
        """What it costs that a call and its predecessor number `at` run on two lanes, each on one."""
        return self.handover_s + (self.moves[call][at].seconds if self.moves else 0.0)

    def part(self, calls: Sequence[int]) -> Problem:
        """The problem of some calls, numbered anew in the order given; predecessors outside of them count as done and near."""
        at = {call: number for number, call in enumerate(calls)}
        before, moves = [], []
        for call in calls:
            inside = sorted((at[one], place) for place, one in enumerate(self.before[call]) if one in at)
            before.append(tuple(one for one, _ in inside))
            moves.append(tuple(self.moves[call][place] for _, place in inside) if self.moves else ())
        return Problem(
            tuple(before),
            tuple(self.seconds[call] for call in calls),
            self.lanes,
            self.handover_s,
            tuple(moves) if self.moves else (),
        )

    def verify(self) -> None:
        """Raises VerifyError unless calls come after their predecessors and each may run on one lane."""
        if self.lanes < 1 or len(self.seconds) != len(self.before):
            raise VerifyError(f"{len(self.before)} calls with {len(self.seconds)} durations on {self.lanes} lanes")
        if self.moves and len(self.moves) != len(self.before):
            raise VerifyError(f"{len(self.before)} calls with {len(self.moves)} moves")
        for call, earlier in enumerate(self.before):
            if not all(0 <= one < call for one in earlier):
                raise VerifyError(f"call {call} has the predecessors {earlier}")
            if not self.seconds[call] or self.seconds[call][0] is None:
                raise VerifyError(f"call {call} cannot run on one lane")
            if self.moves and len(self.moves[call]) != len(earlier):
                raise VerifyError(f"call {call} reads {len(self.moves[call])} times of {len(earlier)} predecessors")


def timed(problem: Problem, placed: Iterable[Placed]) -> tuple[Placed, ...]:
    """The same calls on the same lanes in the same order, each as early as that allows."""
    free = [0.0] * problem.lanes
    done: dict[int, Placed] = {}
    for one in placed:
        begin = max([*(free[lane] for lane in one.lanes), *arrivals(problem, done, one)])
        length = problem.length(one.call, len(one.lanes))
        assert length is not None, "no call is placed on lanes it cannot be split over"
        end = begin + (length + problem.moving(one.call, one.lanes, done))
        done[one.call] = Placed(one.call, one.lanes, begin, end)
        for lane in one.lanes:
            free[lane] = end
    return tuple(done.values())


def arrivals(problem: Problem, done: Mapping[int, Placed], one: Placed) -> list[float]:
    """When the lanes of a placed call know of the results that it reads."""
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
        if not done.keys() >= {*problem.before[one.call]}:
            raise VerifyError(f"call {one.call} is placed before one of its predecessors {problem.before[one.call]}")
        length += max(_read_from_others(problem, one, done, lane) for lane in lanes)
        if abs(one.end - one.begin - length) > late:
            raise VerifyError(f"call {one.call} takes {length} s on lanes {one.lanes}, not {one.end - one.begin}")
        if one.begin + late < max([*(free[lane] for lane in one.lanes), *arrivals(problem, done, one)]):
            raise VerifyError(
                f"call {one.call} begins at {one.begin} s, before its lanes are free or what it reads is there"
            )
        done[one.call] = one
        for lane in one.lanes:
            free[lane] = one.end


def _read_from_others(problem: Problem, one: Placed, done: Mapping[int, Placed], lane: int) -> float:
    """Seconds that one lane of a call takes longer for what others wrote, by the cases of docs/scheduling.md."""
    seconds, parts = 0.0, len(one.lanes)
    for move, earlier in zip(problem.moves[one.call] if problem.moves else (), problem.before[one.call], strict=False):
        makers = done[earlier].lanes
        part = move.reads[parts - 1] if len(move.reads) >= parts else 1.0
        others = 1.0 if lane not in makers else (len(makers) - 1) / len(makers)
        if makers == one.lanes and len(move.crosses) >= parts:
            seconds += move.seconds * move.crosses[parts - 1]
        else:
            seconds += move.seconds * min(part, others)
    return seconds


def ways_to_the_end(before: Sequence[Sequence[int]], lengths: Sequence[float], edge: float = 0.0) -> list[float]:
    """For each call the longest chain that begins with it: its length, those of the calls after it, and `edge` for each step."""
    ways = list(lengths)
    for call in reversed(range(len(before))):
        for one in before[call]:
            ways[one] = max(ways[one], lengths[one] + edge + ways[call])
    return ways


def lower_bound(problem: Problem) -> float:
    """Seconds that no schedule goes below: the longest chain with each call at its fastest, and all lanes at work all the time.

    It counts no moves and no contention, which only make calls longer.
    """
    options = [problem.lengths(call) for call in problem.calls]
    chain = ways_to_the_end(problem.before, [min(length for _, length in every) for every in options])
    work = sum(min(count * length for count, length in every) for every in options)
    return max([work / problem.lanes, *chain])
