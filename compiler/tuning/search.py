"""Which tiles are measured, in which order, and when to stop.

First every kernel's favourites are measured, the dearest kernels first. Then comes the gradient: what a tile is
expected to save in the whole model decides who is next, whatever kernel it belongs to (Zheng et al., "Ansor", OSDI
2020, section 6), until nothing promising or no budget is left. What leads a kernel is then measured again beside its
rivals: of many candidates the one that was luckiest leads first (the winner's curse).
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compiler.ir.machine import Machine, Record, Trial, Workload
from compiler.ir.tile import Tile
from compiler.knowledge.kinds import AGAIN
from compiler.trace import StopRequest, never_stops
from compiler.tuning.belief import Belief, expected_improvement
from compiler.tuning.helpers import Elsewhere
from compiler.tuning.proposal import Proposal

FIRST = 3
"""How many favourites of each kernel are measured before the gradient decides; more where more algorithms compete."""
RIVAL = 2.0
"""An algorithm whose best tile the model thinks this much slower than its favourite has to wait for the gradient."""
BATCH = 32
"""Trials built and timed together.

The compiler's start costs as much as three of them, and progress is reported between batches.
"""
BATCH_OF_EACH = 128
"""More for each process, where a batch is divided among several: the last part of each is waited for."""
FIRST_BATCH = 8
"""Smaller, so that somebody who soon asks for the best found so far gets one that was measured."""
AT_ONCE = 4
"""Tiles of one kernel in one batch of the gradient: the next ones are better chosen once these are known."""
PROMISING = 0.003
"""A tile expected to save less than this part of its kernel is not measured."""
WORTHWHILE = 5e-4
"""Nor one expected to save less than this part of all kernels together."""
CLOSE = 1.08
"""Tiles this much slower than the leader may have been unlucky."""
RIVALS = 3
"""How many of them are measured again beside it."""
FINAL = 0.15
"""Part of the budget that is kept for measuring leaders again."""
ROWS = 0.05
"""Part that is kept, on several lanes, for tiles that give each of them rows of its own..."""
ROWS_WORTH = 1.1
"""... which are as good as others that take less by this factor: what moves between lanes may cost more than that..."""
MATTERS = 2e-3
"""... of kernels that take at least this part of all together."""
HINT = 0.5
"""Of a tile's expected log seconds where records of near shapes or near hardware know it; the model has the rest."""


@dataclass(frozen=True)
class Budget:
    """What a search may take: wall seconds, and how many tiles it may measure (None: as many as it wants)."""

    seconds: float
    trials: int | None = None
    clock: Callable[[], float] = time.monotonic


@dataclass
class Contest:
    """The tiles of one workload and what is known of them.

    uses    how many calls of the model it stands for
    costs   seconds by position in `options`: measured, or known from records
    proven  positions that count as they are: known from records, or measured again
    """

    key: str
    workload: Workload
    uses: int
    options: Sequence[Proposal]
    costs: dict[int, float] = field(default_factory=dict)
    proven: set[int] = field(default_factory=set)
    hints: Mapping[Tile, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.expected = [math.log(seconds) for seconds in _hinted(self.options, self.hints)]
        self.belief = Belief([option.tile for option in self.options], self.expected)

    @property
    def best(self) -> float:
        """Seconds of the leader; the model's of its favourite as long as nothing was measured."""
        return min(self.costs.values()) if self.costs else math.exp(min(self.expected))

    @property
    def leader(self) -> int:
        """Of those measured."""
        return min(self.costs, key=lambda at: (self.costs[at], at))

    def order(self) -> list[int]:
        """All options, by what the model and the hints expect of them."""
        return sorted(range(len(self.options)), key=lambda at: (self.expected[at], at))

    def favourites(self, lanes: int = 1) -> list[int]:
        """What is measured first.

        That is the best of each algorithm that may win, then the model's and the hints' next favourites. On several
        lanes the last of these gives way to the favourite of those that give each lane rows of its own, if none of them
        does.
        """
        order = self.order()
        heads: dict[str, int] = {}
        for at in order:
            if self.expected[at] <= self.expected[order[0]] + math.log(RIVAL):
                heads.setdefault(self.options[at].tile.algorithm, at)
        first = [*heads.values(), *(at for at in order if at not in heads.values())][: max(FIRST, len(heads))]
        cuts = [at for at in order if self.options[at].row_blocks >= lanes > 1]
        if cuts and not any(at in cuts for at in first):
            first = [*first[: max(FIRST - 1, len(heads))], cuts[0]]
        return first

    def row_cut(self, lanes: int) -> int | None:
        """The tile with rows for each lane that is expected to be fastest.

        None where one was measured that is about as fast as the leader, or all were.
        """
        cuts = [at for at, option in enumerate(self.options) if option.row_blocks >= lanes > 1]
        left = [at for at in cuts if at not in self.costs]
        if not left or any(self.costs.get(at, math.inf) <= ROWS_WORTH * self.best for at in cuts):
            return None
        means, _ = self.belief.given({at: math.log(seconds) for at, seconds in self.costs.items()})
        return min(left, key=lambda at: (float(means[at]), at))

    def position(self, tile: Tile) -> int:
        """Where one of the tiles stands in `options`."""
        return next(at for at, option in enumerate(self.options) if option.tile == tile)

    def trial(self, at: int) -> Trial:
        """What is measured of the option `at`: its tile on one lane."""
        return Trial(self.workload, self.key, self.options[at].tile, 1)


@dataclass
class Search:
    """A search under way.

    After `run`, `exhausted` says that nothing promising was left, `measured` how many tiles were measured.
    """

    contests: Sequence[Contest]
    machine: Machine
    budget: Budget
    stop_requested: StopRequest = never_stops
    lanes: int = 1
    measured: int = 0
    exhausted: bool = False
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
    """What other processes measure of what `machine` is asked for; it changes while that measures."""
    gains: Sequence[float] | None = None
    """Of the candidates worth measuring next, in this order, the seconds of an inference that each is expected to save;
    None before each kernel has its first measurements."""

    def __post_init__(self) -> None:
        self._began = self.budget.clock()
        self._batches: list[tuple[int, float]] = []

    def run(self) -> Iterator[tuple[Contest, Record]]:
        """Measures, and yields each record with the contest it belongs to, which already knows it.

        Of a tile measured again there is a second one.
        """
        self._began = self.budget.clock()
        yield from self._favourites()
        yield from self._gradient()
        yield from self._row_cuts()
        yield from self._leaders_again()

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return self.budget.clock() - self._began

    @property
    def total(self) -> float:
        """Seconds of all calls of an inference, one after the other, each by the best tile known so far."""
        return sum(contest.uses * contest.best for contest in self.contests)

    @property
    def spent(self) -> float:
        """The part of the budget that is gone, 0 to 1."""
        parts = [1 - self._left() / self.budget.seconds if self.budget.seconds > 0 else 1.0]
        if self.budget.trials is not None:
            parts.append(self.measured / self.budget.trials if self.budget.trials else 1.0)
        return min(max(parts), 1.0)

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left for candidates never measured; the rest is kept for what comes after."""
        return max(0.0, self._left() - self._kept * self.budget.seconds)

    @property
    def each_s(self) -> float | None:
        """Seconds that building and timing a candidate took so far, on average; None before the first batch."""
        count = sum(count for count, _ in self._batches)
        return sum(seconds for _, seconds in self._batches) / count if count else None

    def first_trials(self) -> list[Trial]:
        """What is going to be measured first."""
        return [contest.trial(at) for contest, at in self._waiting_favourites()[: self._room(self._kept)]]

    def _waiting_favourites(self) -> list[tuple[Contest, int]]:
        dearest = sorted(self.contests, key=lambda contest: -contest.uses * contest.best)
        return [
            (contest, at) for contest in dearest for at in contest.favourites(self.lanes) if at not in contest.costs
        ]

    def _favourites(self) -> Iterator[tuple[Contest, Record]]:
        waiting = self._waiting_favourites()
        while waiting and (size := self._room(self._kept)):
            yield from self._measure(waiting[:size])
            del waiting[:size]

    def _gradient(self) -> Iterator[tuple[Contest, Record]]:
        count = -1
        while self.measured > count and all(contest.costs for contest in self.contests):
            promising = self._promising()
            self.exhausted = not promising
            self.gains = [gain for gain, _, _ in promising]
            picks = promising[: self._room(self._kept)]
            if not picks:
                return
            count = self.measured
            for found in self._measure([(contest, at) for _, contest, at in picks]):
                self.gains = self.gains[1:]
                yield found

    def _row_cuts(self) -> Iterator[tuple[Contest, Record]]:
        """For each kernel that matters a tile that gives each lane rows of its own.

        Only where none is known that does so and takes little longer than the leader.
        """
        least = MATTERS * sum(contest.uses * contest.best for contest in self.contests)
        dearest = sorted(self.contests, key=lambda contest: -contest.uses * contest.best)
        waiting = [
            (contest, at)
            for contest in dearest
            if contest.costs
            and contest.uses * contest.best >= least
            and (at := contest.row_cut(self.lanes)) is not None
        ]
        while waiting and (size := self._room(FINAL)):
            yield from self._measure(waiting[:size])
            del waiting[:size]

    def _leaders_again(self) -> Iterator[tuple[Contest, Record]]:
        """Until each leader has been measured twice, or stood alone."""
        while not self._over():
            waiting = [
                [(contest, at) for at in again]
                for contest in sorted(self.contests, key=lambda contest: -contest.uses * contest.best)
                if (again := _again(contest))
            ]
            if not waiting:
                return
            proven = sum(len(contest.proven) for contest in self.contests)
            while waiting and not self._over():
                batch = [one for group in waiting[: BATCH // RIVALS] for one in group]
                del waiting[: BATCH // RIVALS]
                yield from self._measure(batch, again=True)
            if sum(len(contest.proven) for contest in self.contests) == proven:
                return

    def _measure(
        self, picks: Sequence[tuple[Contest, int]], *, again: bool = False
    ) -> Iterator[tuple[Contest, Record]]:
        contests = {contest.key: contest for contest, _ in picks}
        positions = {(contest.key, contest.options[at].tile): at for contest, at in picks}
        began = self.budget.clock()
        for record in self.machine.measure([contest.trial(at) for contest, at in picks], self._left()):
            if not record.is_plausible:
                continue
            contest = contests[record.workload]
            at = positions[record.workload, Tile.from_json(record.variant)]
            contest.costs[at] = record.seconds
            if again:
                contest.proven.add(at)
                record = replace(record, variant={**record.variant, AGAIN: True})
            else:
                self.measured += 1
            yield contest, record
        self._batches.append((len(picks), self.budget.clock() - began))

    def _promising(self) -> list[tuple[float, Contest, int]]:
        """(seconds that the model is expected to save, contest, position).

        The best come first, at most AT_ONCE of a contest.
        """
        shift = self._shift()
        total = self.total
        found = [pick for contest in self.contests if contest.costs for pick in _next(contest, shift, total)]
        return sorted(found, key=lambda pick: -pick[0])

    def _shift(self) -> Mapping[str, float]:
        """By how much each algorithm's log seconds are off the model's, over all kernels."""
        off: dict[str, list[float]] = defaultdict(list)
        for contest in self.contests:
            for at, seconds in contest.costs.items():
                off[contest.options[at].tile.algorithm].append(math.log(seconds) - contest.expected[at])
        return {algorithm: sum(values) / (len(values) + 1) for algorithm, values in off.items()}

    @property
    def _kept(self) -> float:
        """The part of the budget for what comes after the gradient."""
        return FINAL + (ROWS if self.lanes > 1 else 0.0)

    def _left(self) -> float:
        return self.budget.seconds - (self.budget.clock() - self._began) - self.elsewhere.seconds

    def _over(self) -> bool:
        return self._left() <= 0 or self.stop_requested()

    def _room(self, kept: float) -> int:
        """How many tiles the next batch may hold.

        0 once the search is over, but for what a part of the budget is kept for.
        """
        left = self._left() - kept * self.budget.seconds
        if left <= 0 or self.stop_requested():
            return 0
        size = BATCH if self._batches else FIRST_BATCH
        if self.elsewhere.others:
            size = BATCH_OF_EACH * (1 + self.elsewhere.others)
        if each := self.each_s:
            size = min(size, max(int(left / each), 1))
        return size if self.budget.trials is None else min(size, max(self.budget.trials - self.measured, 0))


def _hinted(options: Sequence[Proposal], hints: Mapping[Tile, float]) -> list[float]:
    """The model's seconds, drawn towards what hints say of a tile relative to the best."""
    favourite = min(option.seconds for option in options)
    return [
        option.seconds ** (1 - HINT) * (favourite * hints[option.tile]) ** HINT
        if option.tile in hints
        else option.seconds
        for option in options
    ]


def _next(contest: Contest, shift: Mapping[str, float], total: float) -> list[tuple[float, Contest, int]]:
    """The tiles of a contest that are worth measuring next.

    Each is chosen as if those before it had cost what is expected.
    """
    moved = [shift.get(option.tile.algorithm, 0.0) for option in contest.options]
    seen = {at: math.log(seconds) - moved[at] for at, seconds in contest.costs.items()}
    best = contest.best
    picks: list[tuple[float, Contest, int]] = []
    while len(picks) < AT_ONCE and len(seen) < len(contest.options):
        means, deviations = contest.belief.given(seen)
        gains = {
            at: expected_improvement(best, float(means[at]) + moved[at], float(deviations[at]))
            for at in range(len(contest.options))
            if at not in seen
        }
        at = max(gains, key=lambda one: (gains[one], -one))
        if gains[at] < PROMISING * best or contest.uses * gains[at] < WORTHWHILE * total:
            break
        picks.append((contest.uses * gains[at], contest, at))
        seen[at] = float(means[at])
        best = min(best, math.exp(float(means[at]) + moved[at]))
    return picks


def _again(contest: Contest) -> list[int]:
    """A leader that was measured once, with those that may be better; empty where it has no rival or is proven."""
    if not contest.costs or contest.leader in contest.proven:
        return []
    order = sorted(contest.costs, key=lambda at: (contest.costs[at], at))
    close = [at for at in order if contest.costs[at] <= CLOSE * contest.best][:RIVALS]
    return close if len(close) > 1 else []
