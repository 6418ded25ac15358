"""What small programs cost: `compiler.rewrite.choose.GraphCosts`, by fusing them and by what their kernels cost.

A program takes at least the work of all its kernels shared by the lanes, and at least as long as the longest path
through it, on which each kernel is whole on one lane or shared by all, whichever ends earlier: branches may run side by
side, so the sum alone is not what counts. To each kernel comes what calling it takes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compiler.fuse import fuse
from compiler.ir.machine import Machine, Record, Setting, Trial, Workload
from compiler.ir.target import Target
from compiler.ir.tile import Cost
from compiler.knowledge.budget import Share
from compiler.knowledge.kinds import SEARCH
from compiler.knowledge.making import Searched, search_marker
from compiler.knowledge.records import Records
from compiler.rewrite.choose import Verdict
from compiler.rewrite.region import Region
from compiler.schedule.plans.dependencies import predecessors
from compiler.steps.costs.kernels import KernelCosts, offered_joins
from compiler.tuning.tune import propose, workload_key

CALL_SECONDS = 2e-7
"""Of one kernel, beside its loops: the call, the next task found, the first lines of its operands fetched."""
BATCH = 8
"""Tiles built and timed together: few, since the budget is small, and what is under way when it ends is lost."""
FAVOURITES = 3
"""Tiles that are measured of a kernel of which nothing is known: those that the model thinks best."""
HOPE = 1.1
"""A program is measured where by the model it takes less than this times that of the region as it is.

The model errs by as much.
"""


@dataclass(frozen=True)
class Measuring:
    """A device on which kernels may be measured, as its share of the tuning budget allows."""

    machine: Machine
    share: Share

    def was_done(self, program: str, known: Sequence[Record], target: Target, setting: Setting) -> bool:
        """Whether the choices of a program, by its key, were weighed before with as large a budget.

        Then nothing is measured again.
        """
        return Records.of(known).was_searched(SEARCH, program, target, setting, self.share.seconds, self.share.trials)

    def record(self, program: str, measured: int, target: Target, setting: Setting) -> Record:
        """What says that the choices of a program were weighed with this budget."""
        about = "kernels of choices; the seconds that their measuring might take"
        seconds = self.share.seconds
        searched = Searched(seconds, self.share.trials, exhausted=False)
        return search_marker(program, about, target, setting, searched, seconds, measured, operator="choose")


def program_key(workloads: Iterable[Workload], choices: Iterable[str]) -> str:
    """SHA-256 (24 hex digits) of the kernels of a program before choices, and the names of these."""
    whole = sorted(map(workload_key, workloads)), sorted(choices)
    return hashlib.sha256(repr(whole).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class _Fused:
    """The kernels of a region: the keys of their workloads in call order, and the calls before each.

    joins      keys of the kernels that some calls may become, with the positions of these
    workloads  by key, those of the joins too
    """

    keys: tuple[str, ...]
    before: tuple[tuple[int, ...], ...]
    joins: tuple[tuple[str, tuple[int, ...]], ...]
    workloads: Mapping[str, Workload]

    @property
    def all_keys(self) -> tuple[str, ...]:
        return (*self.keys, *(key for key, _ in self.joins))


@dataclass
class FusedCosts:
    """`GraphCosts` by the costs of kernels. Regions of equal structure are fused once.

    meeting_s  what sharing a kernel between lanes costs beside its work
    fresh      the measurements that were made, each with its workload
    has_asked  whether there was anything to measure, for which there may have been no time
    """

    kernels: KernelCosts
    meeting_s: float = 0.0
    without: frozenset[str] = frozenset()
    measuring: Measuring | None = None
    fresh: list[tuple[Workload, Record]] = field(default_factory=list)
    has_asked: bool = False
    _fused: dict[str, _Fused] = field(default_factory=dict)

    def estimates(self, regions: Sequence[Region]) -> tuple[Cost, ...]:
        """By the model alone, so that a search finds the same whatever was measured meanwhile."""
        fused = [self._kernels_of(region) for region in regions]
        return tuple(Cost(self._seconds(one, is_measured=False), "model") for one in fused)

    def verdicts(self, contests: Sequence[Sequence[Region]]) -> tuple[Verdict, ...]:
        """Kernels of which nothing is known are measured while there is time.

        Those of the contests with the most to gain come first.
        """
        fused = [[self._kernels_of(region) for region in contest] for contest in contests]
        if self.measuring is not None:
            self._measure(self.measuring, fused)
        return tuple(Verdict(self._costs(contest), self._differing_s(contest)) for contest in fused)

    def _kernels_of(self, region: Region) -> _Fused:
        if region.structure not in self._fused:
            plain = fuse(region.graph, self.without, free=region.free).kernels
            kernels = self.kernels.backend.stored(plain, self.kernels.precision)
            offered = offered_joins(kernels, self.kernels, self.without)
            calls = (*kernels.calls, *(join.call for join in offered))
            workloads = [self.kernels.backend.workload_of(kernels, call) for call in calls]
            keys = tuple(workload_key(workload) for workload in workloads)
            self.kernels = self.kernels.recalling(dict(zip(keys, workloads, strict=True)))
            count = len(kernels.calls)
            self._fused[region.structure] = _Fused(
                keys[:count],
                predecessors(kernels),
                tuple((key, join.calls) for key, join in zip(keys[count:], offered, strict=True)),
                dict(zip(keys, workloads, strict=True)),
            )
        return self._fused[region.structure]

    def _costs(self, contest: Sequence[_Fused]) -> tuple[Cost, ...]:
        """The kernels that are compared are all measured, or all modelled.

        Those that all programs have in common are no part of the comparison.
        """
        is_measured = all(key in self.kernels.measured for key in _differing(contest))
        return tuple(Cost(self._seconds(one, is_measured), "record" if is_measured else "model") for one in contest)

    def _seconds(self, fused: _Fused, is_measured: bool) -> float:
        """With the joins that save work, those that save most first."""
        each = [self._call_seconds(fused, key, is_measured) for key in fused.keys]
        options = [(self._call_seconds(fused, key, is_measured), calls) for key, calls in fused.joins]
        saved = [sum(each[at] for at in calls) - seconds for seconds, calls in options]
        taken: set[int] = set()
        for at in sorted(range(len(options)), key=lambda at: (-saved[at], at)):
            seconds, calls = options[at]
            if saved[at] > 0 and taken.isdisjoint(calls):
                taken.update(calls)
                each = [0.0 if call in calls else known for call, known in enumerate(each)]
                each[calls[-1]] = seconds
        return least_seconds(each, fused.before, self.kernels.lanes, self.meeting_s)

    def _call_seconds(self, fused: _Fused, key: str, is_measured: bool) -> float:
        if is_measured and key in self.kernels.measured:
            return CALL_SECONDS + self.kernels.measured[key]
        return CALL_SECONDS + self.kernels.model(key, fused.workloads[key])

    def _differing_s(self, contest: Sequence[_Fused]) -> tuple[float, ...]:
        first, *_ = contest

        def work(one: _Fused, keys: Counter[str]) -> float:
            return sum(count * self._call_seconds(one, key, is_measured=False) for key, count in keys.items())

        own = Counter(first.keys)
        counts = [Counter(one.keys) for one in contest]
        differing = [
            max(work(first, own - other), work(one, other - own)) for one, other in zip(contest, counts, strict=True)
        ]
        return tuple(seconds / self.kernels.lanes for seconds in differing)

    def _measure(self, measuring: Measuring, contests: Sequence[Sequence[_Fused]]) -> None:
        """Batch by batch, until the share is spent."""
        share, budget = measuring.share, measuring.share.budget
        allowed = None if share.trials is None else max(share.trials - len(self.fresh), 0)
        trials = self._trials(contests)[:allowed]
        self.has_asked = self.has_asked or bool(trials)
        best: dict[str, float] = {}
        while trials and not share.is_over():
            batch, trials = trials[:BATCH], trials[BATCH:]
            workloads = {trial.key: trial.workload for trial in batch}
            with share.spending():
                for record in measuring.machine.measure(batch, share.left()):
                    if record.is_plausible:
                        self.fresh.append((workloads[record.workload], record))
                        budget.tried += 1
                        best[record.workload] = min(record.seconds, best.get(record.workload, record.seconds))
        self.kernels = replace(self.kernels, measured={**self.kernels.measured, **best})

    def _trials(self, contests: Sequence[Sequence[_Fused]]) -> list[Trial]:
        """The top tiles of each unknown kernel that is in some programs of a contest but not in all."""
        backend, precision = self.kernels.backend, self.kernels.precision
        unknown: dict[str, Workload] = {}
        for contest in sorted(map(self._promising, contests), key=self._gain, reverse=True):
            workloads = {key: workload for one in contest for key, workload in one.workloads.items()}
            missing = [key for key in _differing(contest) if key not in self.kernels.measured]
            unknown.update((key, workloads[key]) for key in missing)
        return [
            Trial(workload, key, option.tile, 1)
            for key, workload in unknown.items()
            for option in propose(backend.legal_tiles, workload, self.kernels.lanes, precision=precision)[:FAVOURITES]
        ]

    def _promising(self, contest: Sequence[_Fused]) -> list[_Fused]:
        """The programs of a contest that may win it by the model."""
        first, *others = contest
        limit = HOPE * self._seconds(first, is_measured=False)
        return [first, *(one for one in others if self._seconds(one, is_measured=False) < limit)]

    def _gain(self, contest: Sequence[_Fused]) -> float:
        """Seconds that the best program of a contest saves by the model."""
        seconds = [self._seconds(one, is_measured=False) for one in contest]
        return seconds[0] - min(seconds[1:], default=seconds[0])


def least_seconds(each: Sequence[float], before: Sequence[Sequence[int]], lanes: int, meeting_s: float) -> float:
    """A bound on how soon calls can have ended: seconds of each on one lane, and the calls before each."""
    ends: list[float] = []
    for seconds, earlier in zip(each, before, strict=True):
        alone = min(seconds, seconds / lanes + meeting_s)
        ends.append(alone + max((ends[at] for at in earlier), default=0.0))
    return max(sum(each) / lanes, max(ends, default=0.0))


def _differing(contest: Sequence[_Fused]) -> list[str]:
    """Keys of kernels that not every program has, or not as often, in order of appearance."""
    counts = [Counter(one.all_keys) for one in contest]
    keys = dict.fromkeys(key for one in contest for key in one.all_keys)
    return [key for key in keys if len({count[key] for count in counts}) > 1]
