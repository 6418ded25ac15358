"""Kernels of one search divided among this process and others that have the same device.

The kernels are offered, each with a part of the budget. Whoever is idle takes some of those that are left, the dearest
first, so that each kernel is searched by one; so does this process. What others measured comes back as records, which
are taken in like those of earlier jobs. At last all kernels are searched together, with what is left of the budget:
where others measured enough, that finds nothing promising.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from compiler.ir.machine import Record, Setting, plausible
from compiler.ir.target import Target
from compiler.knowledge.kinds import AGAIN
from compiler.knowledge.known import identity, known_alone
from compiler.trace import Trace
from compiler.tuning.search import Contest, Search

DIVIDED = 0.9
"""Part of the budget that is divided among kernels; the rest is for all of them together."""
WORTH_S = 2.0
"""Seconds of a search below which it is over before others have begun."""
ASK_EVERY_S = 0.25
"""How often is asked for what others measure, with nothing left to measure here."""


@dataclass(frozen=True)
class Terms:
    """What a helper has to know besides the kernels to search them as this process would.

    error    what an algorithm may add (`error_budget.allowed_error`)
    setting  `Setting.to_json`
    model_s  seconds of all kernels of the model, by what was known when they were offered
    """

    lanes: int
    precision: str
    error: float
    setting: Mapping[str, Any]
    model_s: float

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        return {**asdict(self), "setting": dict(self.setting)}

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Terms:
        """Reads `to_json` back. Raises KeyError when a field is missing."""
        return Terms(**{name: plain[name] for name in Terms.__dataclass_fields__})


@dataclass(frozen=True)
class Task:
    """One kernel to be searched: its text, how many calls it stands for, and the seconds and tiles that it may take."""

    key: str
    text: str
    uses: int
    seconds: float
    trials: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        return asdict(self)

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Task:
        """Reads `to_json` back. Raises KeyError when a field is missing."""
        return Task(**{name: plain[name] for name in Task.__dataclass_fields__})


@dataclass(frozen=True)
class Given:
    """An answer of the helpers.

    keys      kernels that this process has to search now; no other will
    records   `Record.to_json` of what others measured since the last answer
    pending   how many kernels others still work on
    seconds   that others took until now, all together
    by        how many kernels each of them has finished, by name
    """

    keys: tuple[str, ...] = ()
    records: tuple[Mapping[str, Any], ...] = ()
    pending: int = 0
    seconds: float = 0.0
    by: Mapping[str, int] = field(default_factory=dict)


class Helpers(Protocol):
    """Other processes that have the same device, as far as they are idle. Who is gone gives nothing."""

    def offer(self, terms: Terms, tasks: Sequence[Task]) -> bool:
        """Kernels that may be taken from now on. False: there is nobody, and nothing was offered."""
        ...

    def take(self, seconds: float, measured: int) -> Given:
        """The next kernels for this process; those it was given before are done, and took so much."""
        ...

    def over(self) -> None:
        """What was offered and is not done is nobody's to measure any more."""
        ...


def fanned_out(
    search: Search,
    helpers: Helpers,
    terms: Terms,
    trace: Trace,
    target: Target,
    setting: Setting,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[Contest, Record, bool]]:
    """Has the kernels of a search measured by helpers and by its own machine, before it runs for all together.

    Yields each measurement with its contest, which knows it, and whether a helper made it. `search.elsewhere_s` becomes
    the seconds that helpers took; kernels that a lost helper had come back to be taken again.
    """
    if len(search.contests) < 2 or search.budget.seconds < WORTH_S:
        return
    tasks = tasks_of(search.contests, search.budget.seconds, search.budget.trials)
    if not helpers.offer(terms, tasks):
        return
    try:
        yield from _divided(search, helpers, terms, tasks, trace, target, setting, sleep)
    finally:
        helpers.over()


def _divided(
    search: Search,
    helpers: Helpers,
    terms: Terms,
    tasks: Sequence[Task],
    trace: Trace,
    target: Target,
    setting: Setting,
    sleep: Callable[[float], None],
) -> Iterator[tuple[Contest, Record, bool]]:
    """What `fanned_out` yields, of kernels that were offered."""
    contests = {contest.key: contest for contest in search.contests}
    seconds_of = {task.key: task.seconds for task in tasks}
    trials_of = {task.key: task.trials for task in tasks}
    known: set[tuple[str, str, float]] = set()
    took, measured = 0.0, 0
    reported: dict[str, int] = {}
    while True:
        given = helpers.take(took, measured)
        took, measured = 0.0, 0
        search.elsewhere_s = given.seconds
        for contest, record in _taken_in(given.records, contests, target, setting, known):
            search.measured += not record.variant.get(AGAIN)
            yield contest, record, True
        if given.by != reported:
            reported = dict(given.by)
            said = ", ".join(f"{count} by {name}" for name, count in sorted(reported.items()))
            trace.progress(
                search.spent, f"{sum(reported.values())} of {len(contests)} kernels measured by others: {said}"
            )
        mine = [contests[key] for key in given.keys if key in contests]
        if search.spent >= 1 or search.stop_requested() or not (mine or given.pending):
            return
        if not mine:
            sleep(ASK_EVERY_S)
            continue
        part = Search(
            mine,
            search.machine,
            replace(search.budget, seconds=sum(seconds_of[one.key] for one in mine), trials=_trials(mine, trials_of)),
            search.stop_requested,
            search.lanes,
            model_s=terms.model_s,
        )
        for contest, record in part.run():
            search.measured += not record.variant.get(AGAIN)
            yield contest, record, False
        took, measured = part.elapsed, part.measured


def tasks_of(contests: Sequence[Contest], seconds: float, trials: int | None) -> list[Task]:
    """A task for each kernel, the dearest first.

    Half of the budget is divided evenly, since each tile takes about as long to build, half by what kernels cost.
    """
    dear = {one.key: one.uses * one.best for one in contests}
    whole = sum(dear.values())
    parts = {key: DIVIDED * (0.5 / len(dear) + 0.5 * each / whole) for key, each in dear.items()}
    return [
        Task(
            one.key,
            str(one.workload),
            one.uses,
            parts[one.key] * seconds,
            None if trials is None else parts[one.key] * trials,
        )
        for one in sorted(contests, key=lambda one: -dear[one.key])
    ]


def trials_in(parts: Sequence[float | None]) -> int | None:
    """Tiles that several tasks may take together, at least one; None: as many as fit."""
    limited = [part for part in parts if part is not None]
    return max(int(sum(limited)), 1) if limited else None


def _trials(mine: Sequence[Contest], trials_of: Mapping[str, float | None]) -> int | None:
    return trials_in([trials_of[one.key] for one in mine])


def _taken_in(
    plain: Sequence[Mapping[str, Any]],
    contests: Mapping[str, Contest],
    target: Target,
    setting: Setting,
    known: set[tuple[str, str, float]],
) -> Iterator[tuple[Contest, Record]]:
    """Records of tiles that a contest has, which then knows them; each once."""
    records = plausible(plain)
    count = known_alone(records, target, setting)
    for record in records:
        contest = contests.get(record.workload)
        name = identity(record.variant)
        if contest is None or count.get((record.workload, name)) is not record:
            continue
        if (record.workload, name, record.seconds) in known:
            continue
        known.add((record.workload, name, record.seconds))
        at = next((at for at, one in enumerate(contest.options) if identity(one.tile.to_json()) == name), None)
        if at is None:
            continue
        contest.costs[at] = record.seconds
        if record.variant.get(AGAIN):
            contest.proven.add(at)
        yield contest, record
