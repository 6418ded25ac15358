"""Candidates, records looked up, the best few measured within the budget."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compiler.ir.kernel import Routine
from compiler.ir.machine import Machine, Record, Trial, Workload
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.targets.cpu import CpuTarget
from compiler.tile.algorithms import ALGORITHMS, loop_tiles
from compiler.tile.model import Proposal
from compiler.trace import Hurry, Trace, unhurried

MEASURED_PER_KERNEL = 3
"""How many of the model's favourites are measured."""
WORTH_MEASURING = 1.5
"""A tile that the model thinks this much slower than its favourite is not measured."""
BATCH = 24
"""Trials built and timed together: large enough to interleave, small enough to show progress and meet the deadline."""
FIRST_BATCH = 8
"""Smaller, so that somebody who soon asks for the best found so far gets one that was measured."""

CountTiles = Callable[[Workload, Tile], int]


@dataclass(frozen=True)
class Tiled:
    """A menu per call, and how many measurements were made and found."""

    menus: tuple[Menu, ...]
    measured: tuple[Record, ...]
    reused: tuple[Record, ...]


def workload_key(workload: Workload) -> str:
    """SHA-256 (24 hex digits) of what a kernel computes and the geometry of its buffers; operator names play no part."""
    kernel = replace(workload.kernel, family="")
    if isinstance(kernel, Routine):
        kernel = replace(kernel, params=dict(sorted(kernel.params.items())))
    nameless = replace(workload, kernel=kernel)
    return hashlib.sha256(repr(nameless).encode()).hexdigest()[:24]


def tile(
    workloads: Sequence[Workload],
    target: CpuTarget,
    lanes: int,
    records: Sequence[Record],
    machine: Machine | None,
    budget_s: float,
    count_tiles: CountTiles,
    trace: Trace,
    hurry: Hurry = unhurried,
) -> Tiled:
    """Menus for workloads in call order.

    A record for the same workload, tile, target and hardware is used before anything is measured; what is left is measured, the
    dearest workloads first, until the budget is spent or `hurry` says so. Without a machine (a cross-compiled target) the model decides.
    """
    keys = [workload_key(workload) for workload in workloads]
    distinct = dict(zip(keys, workloads, strict=True))
    proposals = {key: propose(workload, target, lanes) for key, workload in distinct.items()}
    known = _known(records, target)
    costs: dict[tuple[str, Tile], Record] = {}
    for key, options in proposals.items():
        found = {option.tile: known.get((key, _identity(option.tile.to_json()))) for option in options}
        costs |= {(key, tile): record for tile, record in found.items() if record}
    reused = tuple(costs.values())
    missing = _worth_measuring(distinct, proposals, costs, {key: keys.count(key) for key in distinct})
    measured = list(_measure(missing, machine, budget_s, trace, hurry)) if machine else []
    costs |= {(record.workload, _tile_of(record)): record for record in measured}
    menus = {key: _menu(key, distinct[key], options, costs, reused, count_tiles) for key, options in proposals.items()}
    return Tiled(tuple(menus[key] for key in keys), tuple(measured), reused)


def propose(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The tiles worth considering, of every algorithm, best by the model first. Plain loops take what nothing else does."""
    options = [option for algorithm in ALGORITHMS for option in algorithm(workload, target, lanes)]
    options = sorted(options, key=lambda option: option.seconds) or loop_tiles(workload, target, lanes)
    return [one for one in options[:MEASURED_PER_KERNEL] if one.seconds <= WORTH_MEASURING * options[0].seconds]


def _known(records: Sequence[Record], target: CpuTarget) -> Mapping[tuple[str, str], Record]:
    known = {}
    for record in records:
        if (record.kind, record.target, record.hardware, record.threads) == ("kernel", target.name, target.hardware, 1):
            known[record.workload, _identity(record.variant)] = record
    return known


def _identity(variant: Mapping[str, Any]) -> str:
    """What tells one tile from another, whatever the order in which a database returns the keys."""
    return json.dumps([variant.get(part) for part in ("algorithm", "levels", "scopes")], sort_keys=True)


def _tile_of(record: Record) -> Tile:
    return Tile.from_json(record.variant)


def _worth_measuring(
    distinct: Mapping[str, Workload],
    proposals: Mapping[str, list[Proposal]],
    costs: Mapping[tuple[str, Tile], Record],
    uses: Mapping[str, int],
) -> list[Trial]:
    """Trials not known yet, the workloads that take most of the model's time first."""
    ordered = sorted(distinct, key=lambda key: -proposals[key][0].seconds * uses[key])
    return [
        Trial(distinct[key], key, option.tile, 1)
        for key in ordered
        for option in proposals[key]
        if (key, option.tile) not in costs
    ]


def _measure(
    trials: Sequence[Trial], machine: Machine, budget_s: float, trace: Trace, hurry: Hurry
) -> Iterator[Record]:
    """A record for each trial that ran before the time was up; a workload is told before the first record of it."""
    count = 0
    told: set[str] = set()
    end = time.monotonic() + budget_s
    begun = 0
    while begun < len(trials):
        left = end - time.monotonic()
        if left <= 0 or hurry():
            break
        batch = trials[begun : begun + (BATCH if begun else FIRST_BATCH)]
        begun += len(batch)
        texts = {trial.key: trial.workload for trial in batch}
        for record in machine.measure(batch, left):
            count += 1
            if record.workload not in told:
                told.add(record.workload)
                trace.workload(record.workload, str(texts[record.workload]))
            trace.record(record.to_json())
            yield record
        trace.progress(begun / len(trials), f"measured {count} of {len(trials)} candidates")
    if count < len(trials):
        found = f"{count} of {len(trials)} candidates"
        early = f"finished early on request: {found} measured"
        trace.notice(early if hurry() else f"the tuning budget of {budget_s:g} s measured {found}")


def _menu(
    key: str,
    workload: Workload,
    options: Sequence[Proposal],
    costs: Mapping[tuple[str, Tile], Record],
    reused: Sequence[Record],
    count_tiles: CountTiles,
) -> Menu:
    """Measured variants first, by time; modelled ones only where nothing was measured."""
    measured = [(costs[key, option.tile].seconds, option) for option in options if (key, option.tile) in costs]
    chosen = sorted(measured, key=lambda entry: entry[0]) or [(options[0].seconds, options[0])]

    def source(option: Proposal) -> str:
        record = costs.get((key, option.tile))
        return "model" if record is None else "record" if record in reused else "measured"

    variants = tuple(
        Variant(option.tile, count_tiles(workload, option.tile), 1, Cost(seconds, source(option)))
        for seconds, option in chosen
    )
    return Menu(key, variants)
