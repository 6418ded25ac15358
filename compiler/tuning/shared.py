"""Kernels measured on several lanes, those that matter most first.

Dividing what one lane takes knows nothing of what lanes cost each other. What lanes cost depends on whether the cores
are near to each other or far, so such a record counts in its own state only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.ir.machine import Machine, Record, Setting, Trial, Workload
from compiler.ir.target import Target
from compiler.ir.tile import Cost, Menu, Variant
from compiler.knowledge.budget import TuningBudget
from compiler.knowledge.kinds import SEARCH, STATE
from compiler.knowledge.known import identity, known_shared
from compiler.knowledge.making import Searched, search_marker
from compiler.knowledge.records import Records

WORTH_S = 5e-6
"""A kernel that takes no longer than a few hand-overs gains nothing from being shared."""
TILES = 2
"""How many tiles of each kernel are measured on several lanes.

They are those that take least when what one lane takes is divided, one of them with rows for each lane.
"""
BATCH = 16


@dataclass(frozen=True)
class Sharing:
    """On how many lanes kernels are to be measured, and in which state the cores are.

    The budget has a share for it.
    """

    lanes: int
    state: str
    budget: TuningBudget


def share(
    sharing: Sharing,
    menus: Mapping[str, Menu],
    workloads: Mapping[str, Workload],
    uses: Mapping[str, int],
    records: Sequence[Record],
    machine: Machine,
    target: Target,
    setting: Setting,
) -> Iterator[Record]:
    """Measures the best tiles of `menus` (by workload key) on 2 lanes and on all, and yields the records.

    The last record says that it was done in this state. The dearest kernels come first, until their share of the budget
    is spent or a stop request has come. What is among `records` is not measured again, nor is anything where the same
    kernels were measured with as large a budget before.
    """
    known = known_shared(records, target, setting, sharing.state)
    wanted = [
        trial
        for trial in shared_trials(menus, workloads, uses, sharing.lanes)
        if (trial.key, identity(trial.tile.to_json()), trial.lanes) not in known
    ]
    marker = _marker(sharing, menus, target, setting)
    if not wanted or sharing.budget.seconds <= 0:
        return
    if Records.of(records).was_searched(SEARCH, marker.workload, target, setting, sharing.budget.seconds):
        return
    part = sharing.budget.share("lanes")
    moved = False
    while wanted and not part.is_over():
        batch, wanted = wanted[:BATCH], wanted[BATCH:]
        with part.spending():
            for record in machine.measure(batch, part.left()):
                if record.is_plausible:
                    moved = moved or record.variant.get(STATE) != sharing.state
                    yield record
    if not moved and not sharing.budget.stop_requested():
        yield marker


def shared_trials(
    menus: Mapping[str, Menu], workloads: Mapping[str, Workload], uses: Mapping[str, int], lanes: int
) -> list[Trial]:
    """What is worth measuring on several lanes, the kernel that takes most of the model's time first."""
    worth = [key for key, menu in menus.items() if not menu.best.cost.is_modelled and menu.best.cost.seconds > WORTH_S]
    worth.sort(key=lambda key: (-uses[key] * menus[key].best.cost.seconds, key))
    found = []
    for key in worth:
        for count in sorted({2, lanes}):
            able = [one for one in menus[key].variants if one.lanes == 1 and one.tiles >= count]
            able.sort(key=lambda variant: divided(variant, count))
            cut = next((at for at, variant in enumerate(able) if variant.row_blocks >= count), 0)
            taken = [*able[: TILES - 1], able[max(cut, TILES - 1)]] if len(able) >= TILES else able
            found += [Trial(workloads[key], key, variant.tile, count) for variant in taken]
    return found


def divided(variant: Variant, lanes: int) -> float:
    """Seconds of the lane with most tile tasks.

    What one lane takes for all of them is shared as evenly as whole ones can be.
    """
    return variant.cost.seconds * -(-variant.tiles // lanes) / max(variant.tiles, 1)


def with_shared(
    menus: Sequence[Menu],
    records: Sequence[Record],
    target: Target,
    setting: Setting,
    state: str,
    fresh: Sequence[Record] = (),
) -> tuple[Menu, ...]:
    """Menus with what `records` say of their tiles on several lanes in a state of the cores.

    It comes after what each takes on one lane. Variants that were measured on several lanes in another state are left
    out. `fresh` are those of the records that were measured just now.
    """
    new = {id(record) for record in fresh}
    known = known_shared(records, target, setting, state)
    costs: dict[str, list[tuple[str, int, Cost]]] = {}
    for (key, tile, count), record in known.items():
        cost = Cost(record.seconds, "measured" if id(record) in new else "record")
        costs.setdefault(key, []).append((tile, count, cost))
    return tuple(_with(menu, costs.get(menu.workload, ())) for menu in menus)


def _with(menu: Menu, shared: Sequence[tuple[str, int, Cost]]) -> Menu:
    alone = tuple(variant for variant in menu.variants if variant.lanes == 1)
    by_tile = {identity(variant.tile.to_json()): variant for variant in alone}
    found = [
        replace(variant, lanes=count, cost=cost)
        for tile, count, cost in shared
        if (variant := by_tile.get(tile)) and variant.tiles >= count
    ]
    found.sort(key=lambda variant: (variant.lanes, variant.cost.seconds, str(variant.tile)))
    return replace(menu, variants=(*alone, *found))


def _marker(sharing: Sharing, menus: Mapping[str, Menu], target: Target, setting: Setting) -> Record:
    """Says with which budget these kernels with these tiles were measured on lanes, in which state."""
    space = sorted(
        (key, sorted(identity(variant.tile.to_json()) for variant in menu.variants)) for key, menu in menus.items()
    )
    total = sum(menu.best.cost.seconds for menu in menus.values())
    name = hashlib.sha256(repr((space, sharing.lanes, sharing.state)).encode()).hexdigest()[:24]
    about = f"{len(menus)} kernels on {sharing.lanes} lanes of {sharing.state} cores; seconds of each once, on one lane"
    searched = Searched(sharing.budget.seconds, state=sharing.state)
    return search_marker(name, about, target, setting, searched, total, len(menus), lanes=sharing.lanes)
