"""Candidates, records looked up, those worth measuring measured within the budget."""

from __future__ import annotations

import hashlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, zip_longest

from compiler.errors import InternalError
from compiler.ir.kernel import Routine
from compiler.ir.machine import Machine, Record, Setting, Trial, Workload
from compiler.ir.parse import parse_workload
from compiler.ir.target import Target
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.knowledge.budget import TILES, TuningBudget
from compiler.knowledge.carried import carried
from compiler.knowledge.kinds import AGAIN, KERNEL, SEARCH
from compiler.knowledge.known import identity, known_alone, known_shared
from compiler.knowledge.making import Searched, search_marker
from compiler.knowledge.records import Records
from compiler.trace import Trace
from compiler.tuning.belief import rank_correlation
from compiler.tuning.error_budget import allowed_error
from compiler.tuning.frugal import frugal
from compiler.tuning.helpers import DividedMachine, Elsewhere, Helpers, Task, Terms, with_mark
from compiler.tuning.nearby import Nearby
from compiler.tuning.progress import TuningProgress
from compiler.tuning.proposal import Proposal
from compiler.tuning.search import ROWS_WORTH, Budget, Contest, Search
from compiler.tuning.shared import Sharing, divided, share, with_shared

MOST_OPTIONS = 128
"""Of the model's favourites of one algorithm that take part in a search."""
PROGRESS = 0.01
"""Part of the budget after which progress is reported again."""
MOST_FRUGAL = 3
"""Frugal tiles of a kernel that `choose` is offered."""
EXACT = "fp32"
"""The precision whose algorithms every call may have."""
FEWEST_RANKED = 3
"""Tiles measured of a kernel before their ranks say anything of the model."""

CountTiles = Callable[[Workload, Tile], int]
SourceOf = Callable[[Workload, Tile], str]
"""The digest of the code that a kernel has under a tile."""
LegalTiles = Callable[[Workload, int, str], list[Proposal]]
"""The legal tiles of a workload for a plan of so many lanes, in a precision."""
Choose = Callable[[Sequence[tuple[Workload, Sequence[Tile]]]], Sequence[int]]
"""Of each workload of which nothing was measured, the position of the tile to take.

Its tiles come best by the model first.
"""


def no_source(workload: Workload, tile: Tile) -> str:
    """The `SourceOf` of who generates none: records of the present compiler alone count."""
    return ""


def no_work() -> None:
    """Where nothing is to be done while others measure."""


def best_by_model(options: Sequence[tuple[Workload, Sequence[Tile]]]) -> Sequence[int]:
    """The `Choose` that believes the model."""
    return [0] * len(options)


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
    return hashlib.sha256(repr(nameless).replace(", element=None", "").encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Tuning:
    """What is to be tuned, and for what.

    workloads   in call order
    lanes       of the plan
    tolerance   of which algorithms that are not exact may spend a part (`error_budget`)
    precision   whose algorithms may be chosen beside those of fp32
    state       whether the cores are `near` to each other or `far`; empty if unknown
    may_run_concurrently  which calls have others that they may run beside: their menus have a `frugal` tile too
    times       how often each call runs; those left out once
    exact       which calls round no more than fp32 does, whatever the precision; those left out may
    """

    workloads: Sequence[Workload]
    lanes: int
    setting: Setting
    tolerance: float = 0.0
    precision: str = "fp32"
    state: str = ""
    may_run_concurrently: Sequence[bool] = ()
    times: Sequence[int] = ()
    exact: Sequence[bool] = ()


@dataclass(frozen=True)
class Tiler:
    """What a kind of device answers of tiles.

    It tells which are legal, into how many tile tasks one cuts a kernel, which is taken unmeasured, and of which source
    a kernel is under one. Where there are `resident` tiles, those that resident blocks may carry out, a menu has one
    if one was measured.
    """

    target: Target
    legal_tiles: LegalTiles
    count_tiles: CountTiles
    choose: Choose = best_by_model
    source_of: SourceOf = no_source
    resident: Callable[[Tile], bool] | None = None


def tune(
    tuning: Tuning,
    tiler: Tiler,
    records: Sequence[Record],
    machine: Machine | None,
    budget: TuningBudget,
    trace: Trace,
    helpers: Helpers | None = None,
    meanwhile: Callable[[], None] = no_work,
) -> Tiled:
    """Menus for workloads in call order.

    A record for the same workload, tile, target, hardware and setting is used before anything is measured. Then tiles
    are searched (`search`) until nothing promising is left, their share of the budget is spent or a stop request has
    come. A model that was searched with this budget before is not searched again. Without a machine (a cross-compiled
    target) records and the model decide; without a record of a workload the tiler chooses one of those that the model
    ranks first.

    Where the state of the cores is known, kernels that are worth it are then measured on several lanes (`shared`), in a
    share of the budget, and menus say what they take there. `compiler.tuning.shared.with_shared` gives the same menus
    for another state.

    Where there are `helpers`, trials are divided among them and this process (`compiler.tuning.helpers`); what they
    take counts as spent. They begin, and `meanwhile` is called before anything is measured here.
    """
    workloads, lanes, setting, state = tuning.workloads, tuning.lanes, tuning.setting, tuning.state
    target = tiler.target
    keys = [workload_key(workload) for workload in workloads]
    distinct = dict(zip(keys, workloads, strict=True))
    uses = dict.fromkeys(keys, 0)
    for key, times in zip_longest(keys, tuning.times, fillvalue=1):
        uses[str(key)] += int(times)
    records = Records.of(records)
    exact = [is_exact for _, is_exact in zip_longest(keys, tuning.exact, fillvalue=False)]
    rounding = {key for key, is_exact in zip(keys, exact, strict=True) if not is_exact}
    legal = {
        key: _legal(tiler.legal_tiles, workload, lanes, tuning.precision if key in rounding else EXACT)
        for key, workload in distinct.items()
    }
    held = [one for key, each in legal.items() for one in _carried(records, key, distinct[key], each, tiler, setting)]
    records = Records([*records, *held]) if held else records
    known = known_alone(records, target, setting)
    nearby = Nearby(records, target.name, target.hardware, setting)
    error = allowed_error([legal[key] for key in keys], tuning.tolerance)
    contests = [
        _contest(key, workload, uses[key], _within(legal[key], error), known, nearby)
        for key, workload in distinct.items()
    ]
    found = {(contest.key, at): known[_name(contest, at)] for contest in contests for at in contest.costs}
    measured: list[Record] = []
    if machine and budget.seconds > 0 and not _was_searched(contests, budget, records, target, setting):
        alone = Budget(budget.left(TILES), budget.trials_left, budget.clock)
        search = Search(contests, machine, alone, budget.stop_requested, lanes)
        divided = _divided(search, helpers, Terms(lanes, tuning.precision, setting.to_json()), target, trace)
        meanwhile()
        with budget.share(TILES).spending():
            measured = _searched(search, trace, target, setting, budget)
        if divided is not None:
            divided.end()
        budget.spent[TILES] += search.elsewhere.seconds
        budget.tried += sum(not record.variant.get(AGAIN) for record in measured)
    fresh = {(record.workload, Tile.from_json(record.variant)) for record in measured}
    nearby = Nearby([*records, *measured], target.name, target.hardware, setting)
    shared_keys = {key for key, company in zip(keys, tuning.may_run_concurrently, strict=False) if company}
    tried, menus = _offered(contests, fresh, nearby, shared_keys, lanes, tiler)
    known = known_alone(Records([*records, *measured]), target, setting)
    both = {key for key, is_exact in zip(keys, exact, strict=True) if is_exact and key in rounding}
    plain = {key: propose(tiler.legal_tiles, distinct[key], lanes, error, EXACT) for key in sorted(both)}
    known = known_alone(Records([*records, *measured]), target, setting) if both else known
    exacts = [_contest(key, distinct[key], uses[key], options, known, nearby) for key, options in plain.items()]
    _, exact_menus = _offered(exacts, fresh, nearby, shared_keys, lanes, tiler)
    reused = [*found.values()]
    if state and lanes > 1:
        sharing = Sharing(lanes, state, budget)
        on_lanes = share(sharing, menus, distinct, uses, records, machine, target, setting) if machine else ()
        more = _reported(on_lanes, distinct, {record.workload for record in measured}, trace)
        on_several = known_shared(records, target, setting, state).values()
        reused += [record for record in on_several if record.workload in distinct]
        measured += more
        known_now = [*records, *more]
        for each in (menus, exact_menus):
            shared = with_shared([*each.values()], known_now, target, setting, state, more)
            each |= dict(zip(each, shared, strict=True))
    inexact = {option.tile.algorithm for one in contests for option in one.options if option.error}
    return Tiled(
        tuple(
            exact_menus.get(key, menus[key]) if is_exact else menus[key]
            for key, is_exact in zip(keys, exact, strict=True)
        ),
        tuple(measured),
        tuple(reused),
        tried,
        frozenset(inexact),
        _ranking(contests),
        tuple(held),
    )


def _offered(
    contests: Sequence[Contest],
    fresh: set[tuple[str, Tile]],
    nearby: Nearby,
    shared_keys: set[str],
    lanes: int,
    tiler: Tiler,
) -> tuple[dict[str, tuple[tuple[Tile, Cost], ...]], dict[str, Menu]]:
    """Of each workload, by key, the tiles whose cost is known and the menu."""
    choose = tiler.choose
    tried = {**_chosen([_hinted(one, nearby) for one in contests if not one.costs], choose)}
    tried |= {contest.key: _tried(contest, fresh) for contest in contests if contest.costs}
    beside = _beside([one for one in contests if one.key in shared_keys], tried, choose)
    menus = {
        contest.key: _menu(contest, tried[contest.key], lanes, tiler, beside.get(contest.key)) for contest in contests
    }
    return tried, menus


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


def _searched(
    search: Search,
    trace: Trace,
    target: Target,
    setting: Setting,
    whole: TuningBudget,
) -> list[Record]:
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


def _chosen(contests: Sequence[Contest], choose: Choose) -> Mapping[str, tuple[tuple[Tile, Cost], ...]]:
    """Of workloads of which nothing is known, the one tile that is taken, with the model's seconds."""
    orders = [contest.order() for contest in contests]
    asked = [
        (contest.workload, [contest.options[at].tile for at in order])
        for contest, order in zip(contests, orders, strict=True)
    ]
    taken = [order[at] for order, at in zip(orders, choose(asked), strict=True)]
    return {
        contest.key: ((contest.options[at].tile, Cost(contest.options[at].seconds, "model")),)
        for contest, at in zip(contests, taken, strict=True)
    }


def _tried(contest: Contest, fresh: set[tuple[str, Tile]]) -> tuple[tuple[Tile, Cost], ...]:
    """What was measured, by time."""
    order = sorted(contest.costs, key=lambda at: (contest.costs[at], at))
    tiles = [contest.options[at].tile for at in order]
    sources = ["measured" if (contest.key, tile) in fresh else "record" for tile in tiles]
    return tuple(
        (tile, Cost(contest.costs[at], source)) for at, tile, source in zip(order, tiles, sources, strict=True)
    )


def _beside(
    contests: Sequence[Contest], tried: Mapping[str, Sequence[tuple[Tile, Cost]]], choose: Choose
) -> Mapping[str, tuple[Tile, Cost]]:
    """By workload key a `frugal` tile of those that were measured.

    Where none was, it is the model's one that `choose` takes before the best.
    """
    found: dict[str, tuple[Tile, Cost]] = {}
    asked: list[tuple[Contest, list[int]]] = []
    for contest in contests:
        place = {option.tile: at for at, option in enumerate(contest.options)}
        fast = place[tried[contest.key][0][0]]
        known = contest.costs or {at: option.seconds for at, option in enumerate(contest.options)}
        best = frugal(contest.options, known, fast)[:MOST_FRUGAL]
        if best and contest.costs:
            found[contest.key] = next(one for one in tried[contest.key] if place[one[0]] == best[0])
        elif best:
            asked.append((contest, [*best, fast]))
    offers = [(contest.workload, [contest.options[at].tile for at in order]) for contest, order in asked]
    for (contest, order), taken in zip(asked, choose(offers) if offers else (), strict=True):
        if taken < len(order) - 1:
            option = contest.options[order[taken]]
            found[contest.key] = option.tile, Cost(option.seconds, "model")
    return found


def _menu(
    contest: Contest,
    tried: Sequence[tuple[Tile, Cost]],
    lanes: int,
    tiler: Tiler,
    beside: tuple[Tile, Cost] | None,
) -> Menu:
    """The tiles that may be the best on one lane or on more.

    None of them, shared evenly, takes as long as one before it in whole tile tasks. Where none has rows for each lane,
    the fastest that has comes after them, if it takes little longer. Last come the one that is best `beside` other
    kernels, and the fastest `resident` one where there is none yet.
    """
    count_tiles, resident = tiler.count_tiles, tiler.resident
    row_blocks = {option.tile: option.row_blocks for option in contest.options}
    variants: list[Variant] = []
    least = math.inf
    for tile, cost in tried:
        if cost.seconds >= lanes * least:
            break
        variants.append(Variant(tile, count_tiles(contest.workload, tile), 1, cost, row_blocks[tile]))
        least = min(least, divided(variants[-1], lanes))
    if lanes > 1 and not any(_cuts_rows(variant, lanes, least) for variant in variants):
        others = (
            Variant(tile, count_tiles(contest.workload, tile), 1, cost, row_blocks[tile])
            for tile, cost in tried[len(variants) :]
            if row_blocks[tile] >= lanes
        )
        cuts = [variant for variant in others if _cuts_rows(variant, lanes, least)]
        variants += sorted(cuts, key=lambda variant: divided(variant, lanes))[:1]
    if beside and beside[0] not in [variant.tile for variant in variants]:
        tile, cost = beside
        variants.append(Variant(tile, count_tiles(contest.workload, tile), 1, cost, row_blocks[tile]))
    if resident and not any(resident(variant.tile) for variant in variants):
        others = (
            Variant(tile, count_tiles(contest.workload, tile), 1, cost, row_blocks[tile])
            for tile, cost in tried
            if resident(tile)
        )
        variants += islice(others, 1)
    return Menu(contest.key, tuple(variants))


def _cuts_rows(variant: Variant, lanes: int, least: float) -> bool:
    """Whether each lane has rows of its own, and takes little longer than `least`."""
    return variant.row_blocks >= lanes and divided(variant, lanes) <= ROWS_WORTH * least


def _ranking(contests: Sequence[Contest]) -> Ranking | None:
    pairs = [[(one.options[at].seconds, seconds) for at, seconds in one.costs.items()] for one in contests]
    ranked = [rank_correlation(*zip(*one, strict=True)) for one in pairs if len(one) >= FEWEST_RANKED]
    if not ranked:
        return None
    overall = rank_correlation(*zip(*(pair for one in pairs for pair in one), strict=True))
    return Ranking(sum(ranked) / len(ranked), len(ranked), overall)
