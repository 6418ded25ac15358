"""Candidates, records looked up, those worth measuring measured within the budget."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial

from compiler.errors import InternalError
from compiler.ir.kernel import Routine
from compiler.ir.machine import Machine, Record, Setting, Trial, Workload
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.target import Target
from compiler.ir.tile import Cost, Menu, Tile
from compiler.knowledge.budget import TILES, TuningBudget
from compiler.knowledge.carried import carried
from compiler.knowledge.kinds import AGAIN, KERNEL, SEARCH
from compiler.knowledge.known import identity, known_alone, known_shared
from compiler.knowledge.making import Searched, search_marker
from compiler.knowledge.records import Records
from compiler.trace import Trace
from compiler.tuning.belief import rank_correlation
from compiler.tuning.error_budget import allowed_error
from compiler.tuning.helpers import DividedMachine, Elsewhere, Helpers, Task, Terms, with_mark
from compiler.tuning.menus import LegalTiles, Tiler, frugal_of, menu_of, tried_of, unmeasured
from compiler.tuning.nearby import Nearby
from compiler.tuning.progress import TuningProgress
from compiler.tuning.proposal import Proposal
from compiler.tuning.search import Budget, Contest, Search
from compiler.tuning.shared import Sharing, share, with_shared

MOST_OPTIONS = 128
"""Of the model's favourites of one algorithm that take part in a search."""
PROGRESS = 0.01
"""Part of the budget after which progress is reported again."""
EXACT = "fp32"
"""The precision whose algorithms every call may have."""
FEWEST_RANKED = 3
"""Tiles measured of a kernel before their ranks say anything of the model."""


def no_work() -> None:
    """Where nothing is to be done while others measure."""


@dataclass(frozen=True)
class Ranking:
    """How well the model ranks tiles, by Spearman's correlation of its seconds with those measured.

    `within` is the mean over `kernels` kernels of which at least FEWEST_RANKED tiles were measured, `overall` over all
    tiles of all.
    """

    within: float
    kernels: int
    overall: float

    def __str__(self) -> str:
        return (
            f"rank correlation of the model with measurements {self.within:.2f} within a kernel "
            f"(mean of {self.kernels}), {self.overall:.2f} overall"
        )


@dataclass(frozen=True)
class Tiled:
    """A menu per call; the measurements that were made and found; how good the model was.

    The last is there where enough was measured to tell. `tried` has, by workload key, all tiles whose cost is known,
    best first; `inexact` the algorithms that spend a part of the tolerance; `carried` records of earlier compilers that
    hold for this one.
    """

    menus: tuple[Menu, ...]
    measured: tuple[Record, ...]
    reused: tuple[Record, ...]
    tried: Mapping[str, tuple[tuple[Tile, Cost], ...]]
    inexact: frozenset[str] = frozenset()
    ranking: Ranking | None = None
    carried: tuple[Record, ...] = ()


def workload_key(workload: Workload) -> str:
    """SHA-256 (24 hex digits) of what a kernel computes and the geometry of its buffers.

    Operator names play no part, nor do elements that are in memory what they are in the kernel.
    """
    nameless, kernel = workload.nameless, workload.nameless.kernel
    if isinstance(kernel, Routine):
        nameless = replace(nameless, kernel=replace(kernel, params=dict(sorted(kernel.params.items()))))
    return hashlib.sha256(nameless.canonical.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Tunable:
    """One call whose kernel is to be tuned.

    times       how often it runs
    exact       whether it rounds no more than fp32 does, whatever the precision
    concurrent  whether there are others that it may run beside: its menu has a `frugal` tile too
    """

    workload: Workload
    times: int = 1
    exact: bool = False
    concurrent: bool = False

    @cached_property
    def key(self) -> str:
        """That of its workload."""
        return workload_key(self.workload)


@dataclass(frozen=True)
class Tuning:
    """What is to be tuned, and for what.

    calls      in the model's order
    lanes      of the plan
    tolerance  of which algorithms that are not exact may spend a part (`error_budget`)
    precision  whose algorithms may be chosen beside those of fp32
    state      whether the cores are `near` to each other or `far`; empty if unknown
    """

    calls: Sequence[Tunable]
    lanes: int
    setting: Setting
    tolerance: float = 0.0
    precision: str = "fp32"
    state: str = ""

    @cached_property
    def workloads(self) -> Mapping[str, Workload]:
        """Each once, by its key."""
        return {call.key: call.workload for call in self.calls}

    @cached_property
    def uses(self) -> Mapping[str, int]:
        """How often each workload is run, by its key."""
        found = dict.fromkeys(self.workloads, 0)
        for call in self.calls:
            found[call.key] += call.times
        return found

    @cached_property
    def rounding(self) -> Set[str]:
        """Keys of the workloads that some call may round as the precision does."""
        return {call.key for call in self.calls if not call.exact}

    @cached_property
    def both(self) -> Set[str]:
        """Keys of those that another call may not round so."""
        return {call.key for call in self.calls if call.exact} & self.rounding


@dataclass(frozen=True)
class Measuring:
    """By what tiles are measured, and who hears of it.

    machine    None: records and the model decide
    helpers    take a part of the trials (`compiler.tuning.helpers`); what they take counts as spent
    meanwhile  is called once they have begun, before anything is measured here
    """

    machine: Machine | None
    budget: TuningBudget
    trace: Trace
    helpers: Helpers | None = None
    meanwhile: Callable[[], None] = no_work


@dataclass(frozen=True)
class _Known:
    """What records say of the kernels that are to be tuned.

    records  with those of earlier compilers that hold for this one, `held`
    error    that an algorithm may add
    found    the records of tiles that need not be measured
    """

    records: Records
    held: tuple[Record, ...]
    error: float
    contests: Sequence[Contest]
    found: Sequence[Record]


@dataclass(frozen=True)
class _Offered:
    """By workload key the tiles whose cost is known, and menus: of all, and of those that `exact` calls have."""

    tried: Mapping[str, tuple[tuple[Tile, Cost], ...]]
    menus: Mapping[str, Menu]
    exact: Mapping[str, Menu]

    def of(self, call: Tunable) -> Menu:
        """That of one call."""
        menu = self.menus[call.key]
        return self.exact.get(call.key, menu) if call.exact else menu


def tune(tuning: Tuning, tiler: Tiler, records: Sequence[Record], measuring: Measuring) -> Tiled:
    """Menus for calls, in their order.

    A record for the same workload, tile, target, hardware and setting is used before anything is measured. Then tiles
    are searched (`search`) until nothing promising is left, their share of the budget is spent or a stop request has
    come. A model that was searched with this budget before is not searched again. Without a machine (a cross-compiled
    target) records and the model decide; without a record of a workload the tiler chooses one of those that the model
    ranks first.

    Where the state of the cores is known, kernels that are worth it are then measured on several lanes (`shared`), in a
    share of the budget, and menus say what they take there. `compiler.tuning.shared.with_shared` gives the same menus
    for another state.
    """
    known = _looked_up(tuning, tiler, Records.of(records))
    measured = _searched(tuning, tiler.target, known, measuring)
    offered = _offered(tuning, tiler, known, measured)
    reused = [*known.found]
    if tuning.state and tuning.lanes > 1:
        of_several = known_shared(known.records, tiler.target, tuning.setting, tuning.state).values()
        reused += [record for record in of_several if record.workload in tuning.workloads]
        more = _shared(tuning, tiler.target, known, offered, measured, measuring)
        offered = _with_shared(tuning, tiler.target, known, offered, more)
        measured += more
    return Tiled(
        tuple(map(offered.of, tuning.calls)),
        tuple(measured),
        tuple(reused),
        offered.tried,
        frozenset(option.tile.algorithm for one in known.contests for option in one.options if option.error),
        _ranking(known.contests),
        known.held,
    )


def _looked_up(tuning: Tuning, tiler: Tiler, records: Records) -> _Known:
    """The legal tiles of each workload, with what records say of them."""
    target, setting, workloads = tiler.target, tuning.setting, tuning.workloads
    legal = {
        key: _legal(tiler.legal_tiles, workload, tuning.lanes, tuning.precision if key in tuning.rounding else EXACT)
        for key, workload in workloads.items()
    }
    held = [one for key, each in legal.items() for one in _carried(records, key, workloads[key], each, tiler, setting)]
    records = Records([*records, *held]) if held else records
    known = known_alone(records, target, setting)
    nearby = Nearby(records, target.name, target.hardware, setting)
    error = allowed_error([legal[call.key] for call in tuning.calls], tuning.tolerance)
    contests = [
        _contest(key, workload, tuning.uses[key], _within(legal[key], error), known, nearby)
        for key, workload in workloads.items()
    ]
    found = [known[_name(contest, at)] for contest in contests for at in contest.costs]
    return _Known(records, tuple(held), error, contests, found)


def _searched(tuning: Tuning, target: Target, known: _Known, measuring: Measuring) -> list[Record]:
    """What a search measures, unless there is nothing to measure with, or it was done before."""
    machine, budget, setting = measuring.machine, measuring.budget, tuning.setting
    if not machine or budget.seconds <= 0 or _was_searched(known.contests, budget, known.records, target, setting):
        return []
    alone = Budget(budget.left(TILES), budget.trials_left, budget.clock)
    search = Search(known.contests, machine, alone, budget.stop_requested, tuning.lanes)
    terms = Terms(tuning.lanes, tuning.precision, setting.to_json())
    elsewhere = _divided(search, measuring.helpers, terms, target, measuring.trace)
    measuring.meanwhile()
    with budget.share(TILES).spending():
        measured = _run(search, measuring.trace, target, setting, budget)
    if elsewhere is not None:
        elsewhere.end()
    budget.spent[TILES] += search.elsewhere.seconds
    budget.tried += sum(not record.variant.get(AGAIN) for record in measured)
    return measured


def _offered(tuning: Tuning, tiler: Tiler, known: _Known, measured: Sequence[Record]) -> _Offered:
    """Menus by what records say and what was measured."""
    target, setting = tiler.target, tuning.setting
    fresh = {(record.workload, Tile.from_json(record.variant)) for record in measured}
    nearby = Nearby([*known.records, *measured], target.name, target.hardware, setting)
    concurrent = {call.key for call in tuning.calls if call.concurrent}

    def menus(contests: Sequence[Contest]) -> tuple[dict[str, tuple[tuple[Tile, Cost], ...]], dict[str, Menu]]:
        tried = {**unmeasured([_hinted(one, nearby) for one in contests if not one.costs], tiler.choose)}
        tried |= {contest.key: tried_of(contest, fresh) for contest in contests if contest.costs}
        beside = frugal_of([one for one in contests if one.key in concurrent], tried, tiler.choose)
        return tried, {
            one.key: menu_of(one, tried[one.key], tuning.lanes, tiler, beside.get(one.key)) for one in contests
        }

    costs = known_alone(Records([*known.records, *measured]), target, setting) if tuning.both else {}
    exact = []
    for key in sorted(tuning.both):
        workload = tuning.workloads[key]
        options = propose(tiler.legal_tiles, workload, tuning.lanes, known.error, EXACT)
        exact.append(_contest(key, workload, tuning.uses[key], options, costs, nearby))
    return _Offered(*menus(known.contests), menus(exact)[1])


def _shared(
    tuning: Tuning,
    target: Target,
    known: _Known,
    offered: _Offered,
    measured: Sequence[Record],
    measuring: Measuring,
) -> list[Record]:
    """What kernels take on several lanes, where it is measured now."""
    if measuring.machine is None:
        return []
    records = share(
        Sharing(tuning.lanes, tuning.state, measuring.budget),
        offered.menus,
        tuning.workloads,
        tuning.uses,
        known.records,
        measuring.machine,
        target,
        tuning.setting,
    )
    return _reported(records, tuning.workloads, {record.workload for record in measured}, measuring.trace)


def _with_shared(tuning: Tuning, target: Target, known: _Known, offered: _Offered, more: Sequence[Record]) -> _Offered:
    """The same with what tiles take on several lanes."""
    records = [*known.records, *more]

    def shared(menus: Mapping[str, Menu]) -> dict[str, Menu]:
        found = with_shared([*menus.values()], records, target, tuning.setting, tuning.state, more)
        return dict(zip(menus, found, strict=True))

    return replace(offered, menus=shared(offered.menus), exact=shared(offered.exact))


def measure_for_another(
    tasks: Sequence[Task],
    terms: Terms,
    tiler: Tiler,
    machine: Machine,
    trace: Trace,
    more: Callable[[float, int], Sequence[Task]],
) -> int:
    """Measures trials that another process offered, until there are no more; how many, each reported.

    `more` is given the seconds that the last tasks took and how many tiles were measured, and gives the next ones.

    What is no legal tile here is not measured. Raises ParseError for a text that is none, and InternalError for one
    that is of another kernel than it says.
    """
    legal: dict[str, tuple[Workload, set[Tile]]] = {}
    whole = 0
    while tasks:
        began, measured = time.monotonic(), 0
        again = {task.key for task in tasks if task.again}
        for task in tasks:
            if task.key not in legal:
                legal[task.key] = _legal_of(task, terms, tiler)
        trials = [
            Trial(legal[task.key][0], task.key, tile, 1)
            for task in tasks
            for tile in map(Tile.from_json, task.tiles)
            if tile in legal[task.key][1]
        ]
        for record in machine.measure(trials, max(task.seconds for task in tasks)):
            if record.is_plausible:
                measured += 1
                trace.record(with_mark(record) if record.workload in again else record.to_json())
        whole += measured
        tasks = more(time.monotonic() - began, measured)
    return whole


def _legal_of(task: Task, terms: Terms, tiler: Tiler) -> tuple[Workload, set[Tile]]:
    workload = parse_workload(task.text)
    if workload_key(workload) != task.key:
        raise InternalError(f"the text of kernel {task.key} is of another one")
    return workload, {one.tile for one in tiler.legal_tiles(workload, terms.lanes, terms.precision)}


def _carried(
    records: Records,
    key: str,
    workload: Workload,
    options: Sequence[Proposal],
    tiler: Tiler,
    setting: Setting,
) -> list[Record]:
    """Records of earlier compilers of a workload under its legal tiles, where these compiled the same source."""
    if not records.find(KERNEL, tiler.target, workload=key):
        return []
    sources = {identity(one.tile.to_json()): partial(tiler.source_of, workload, one.tile) for one in options}
    return carried(records, key, sources, tiler.target, setting)


def _reported(
    records: Iterable[Record], workloads: Mapping[str, Workload], reported: set[str], trace: Trace
) -> list[Record]:
    """Tells of records on several lanes, of a workload before the first record of it.

    What they measure of kernels is returned.
    """
    found = []
    for record in records:
        if record.workload in workloads and record.workload not in reported:
            reported.add(record.workload)
            trace.workload(record.workload, str(workloads[record.workload]))
        trace.record(record.to_json())
        found += [record] if record.workload in workloads else []
    return found


def propose(
    legal_tiles: LegalTiles, workload: Workload, lanes: int, error: float = 0.0, precision: str = "fp32"
) -> list[Proposal]:
    """The legal tiles that add no more than `error`, best by the model first."""
    return _within(_legal(legal_tiles, workload, lanes, precision), error)


def _legal(legal_tiles: LegalTiles, workload: Workload, lanes: int, precision: str) -> list[Proposal]:
    """Each tile once, as the algorithm that thinks it fastest proposes it, best first."""
    options = sorted(legal_tiles(workload, lanes, precision), key=lambda option: option.seconds)
    distinct = {option.tile: option for option in reversed(options)}
    return sorted(distinct.values(), key=lambda option: option.seconds)


def _within(options: Sequence[Proposal], error: float) -> list[Proposal]:
    """Options that add no more than `error`; an algorithm that has very many leaves room for the others."""
    room: dict[str, int] = defaultdict(lambda: MOST_OPTIONS)
    kept = []
    for option in options:
        if option.error <= error and room[option.tile.algorithm]:
            room[option.tile.algorithm] -= 1
            kept.append(option)
    return kept


def _name(contest: Contest, at: int) -> tuple[str, str]:
    return contest.key, identity(contest.options[at].tile.to_json())


def _contest(
    key: str,
    workload: Workload,
    uses: int,
    options: Sequence[Proposal],
    known: Mapping[tuple[str, str], Record],
    nearby: Nearby,
) -> Contest:
    contest = _hinted(Contest(key, workload, uses, options), nearby)
    for at in range(len(options)):
        if record := known.get(_name(contest, at)):
            contest.costs[at] = record.seconds
            contest.proven.add(at)
    return contest


def _hinted(contest: Contest, nearby: Nearby) -> Contest:
    """With what is known of kernels like it, also what this run measured.

    What is chosen unmeasured is the same when these come as records.
    """
    kernel, shapes = contest.workload.kernel, contest.workload.shapes
    return replace(
        contest, hints=nearby.hints(contest.key, kernel.family, shapes, [one.tile for one in contest.options])
    )


def _divided(
    search: Search, helpers: Helpers | None, terms: Terms, target: Target, trace: Trace
) -> DividedMachine | None:
    """Has helpers measure a part of what a search picks; they begin at once. None where there are none."""
    if helpers is None:
        return None
    search.elsewhere = Elsewhere(others=helpers.offer(terms, ()))
    search.machine = machine = DividedMachine(
        search.machine,
        helpers,
        terms,
        target,
        search.stop_requested,
        lambda said: trace.progress(search.spent, said),
        search.elsewhere,
    )
    machine.begin(search.first_trials(), search.budget.seconds)
    return machine


def _run(search: Search, trace: Trace, target: Target, setting: Setting, whole: TuningBudget) -> list[Record]:
    """Runs a search, which may be given a part of the whole budget, and tells of it.

    It tells of each workload before the first record of it. What others measured they report.
    """
    reported: set[str] = set()
    measured = []
    part = 0.0
    progress = TuningProgress(search, trace)
    for contest, record in search.run():
        if contest.key not in reported:
            reported.add(contest.key)
            trace.workload(contest.key, str(contest.workload))
        (trace.heard if search.elsewhere.made(record) else trace.record)(record.to_json())
        measured.append(record)
        progress.add(contest, record)
        if search.spent >= part + PROGRESS:
            part = search.spent
            trace.progress(part, f"measured {search.measured} tiles of {len(reported)} kernels")
    progress.tell()
    count = f"{search.measured} of {progress.legal} candidates measured"
    if search.exhausted or not search.stop_requested():
        trace.record(_search_record(search, target, setting, whole).to_json())
    if not search.exhausted:
        ended = "finished early on request" if search.stop_requested() else "the tuning budget ended the search"
        trace.notice(f"{ended}: {count}")
    return measured


def _was_searched(
    contests: Sequence[Contest], budget: TuningBudget, records: Records, target: Target, setting: Setting
) -> bool:
    """Whether these kernels, with the tiles they have, were searched with as large a budget.

    A search until nothing promising was left counts like one with any budget.
    """
    return records.was_searched(SEARCH, _space(contests), target, setting, budget.seconds, budget.trials)


def _search_record(search: Search, target: Target, setting: Setting, budget: TuningBudget) -> Record:
    total = sum(contest.uses * contest.best for contest in search.contests)
    about = f"{len(search.contests)} kernels; seconds of all their calls, each by its best tile"
    searched = Searched(budget.seconds, budget.trials, search.exhausted)
    return search_marker(_space(search.contests), about, target, setting, searched, total, search.measured)


def _space(contests: Sequence[Contest]) -> str:
    """SHA-256 (24 hex digits) of the kernels of a model, how often each is called, and its legal tiles."""
    whole = sorted(
        (one.key, one.uses, sorted(identity(option.tile.to_json()) for option in one.options)) for one in contests
    )
    return hashlib.sha256(repr(whole).encode()).hexdigest()[:24]


def _ranking(contests: Sequence[Contest]) -> Ranking | None:
    pairs = [[(one.options[at].seconds, seconds) for at, seconds in one.costs.items()] for one in contests]
    ranked = [rank_correlation(*zip(*one, strict=True)) for one in pairs if len(one) >= FEWEST_RANKED]
    if not ranked:
        return None
    overall = rank_correlation(*zip(*(pair for one in pairs for pair in one), strict=True))
    return Ranking(sum(ranked) / len(ranked), len(ranked), overall)
