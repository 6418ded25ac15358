"""What each pair of the cores that a job names costs the two: a hand-over between them, measured or by its record.

Cores share caches in groups, and lie on one die or on two: a division that puts a cut between far ones waits there.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from compiler.ir.machine import Record
from compiler.ir.plans.lanes import LaneCosts, Pair
from compiler.session import Session
from compiler.steps.costs.lanes import lane_costs, state_of
from compiler.steps.dividing.devices import Devices

ALIKE = 1.5
"""Pairs of which a hand-over differs by less cost the same: that of one pair differs by as much from time to time, and
solvers take cores for interchangeable that cost all others the same."""


def pairs_known(session: Session, devices: Devices) -> dict[Pair, Record]:
    """By pair of devices that are cores, by their positions in the job; none of a pair of which nothing is known.

    Each is measured now where that is permitted, and looked up in the state that this shows. Pairs that share no core
    are measured at the same time, and how many are is told after each such round.
    """
    on_lanes = session.backend.lanes
    places = {device.core: at for at, device in enumerate(devices.named) if device.core is not None}
    found: dict[Pair, Record] = {}
    if on_lanes is None or len(places) < 2:
        return found
    rounds = on_lanes.pairs([*places])
    done, of = 0, sum(map(len, rounds))
    for pairs in rounds:
        with session.budget.share("device").spending():
            records = on_lanes.handovers(session.records, pairs, measure=session.may_measure)
        session.add_records(records[pair] for pair in pairs if pair in records)
        for pair, record in records.items():
            one, other = sorted(places[core] for core in pair)
            found[one, other] = record
        done += len(pairs)
        if len(rounds) > 1:
            session.trace.progress(done / of, f"hand-overs between {len(places)} cores: {done} of {of} pairs")
    return dict(sorted(found.items()))


def pair_costs(records: Mapping[Pair, Record]) -> dict[Pair, LaneCosts]:
    """What pairs cost, with the mean of those that are alike for each of them."""
    found: dict[Pair, LaneCosts] = {}
    for group in alike_pairs(records):
        each = [lane_costs(records[pair]) for pair in group]
        mean = LaneCosts(*(fmean(figures) for figures in zip(*map(_figures, each), strict=True)))
        found.update(dict.fromkeys(group, mean))
    return found


def alike_pairs(records: Mapping[Pair, Record]) -> list[list[Pair]]:
    """The pairs in groups that are in one state and differ by less than ALIKE, the nearest group first."""
    groups: list[list[Pair]] = []
    for pair in sorted(records, key=lambda pair: (records[pair].seconds, pair)):
        first = records[groups[-1][0]] if groups else None
        own = records[pair]
        if first and own.seconds < ALIKE * first.seconds and state_of(own) == state_of(first):
            groups[-1].append(pair)
        else:
            groups.append([pair])
    return groups


def pairs_notice(devices: Devices, records: Mapping[Pair, Record]) -> str:
    """Which pairs of cores are near to each other and which far; empty where all are alike."""
    groups = alike_pairs(records)
    if len(groups) < 2:
        return ""
    names = devices.asked.devices
    said = [
        f"{1e9 * fmean(records[pair].seconds for pair in group):.0f} ns between "
        + ", ".join(f"{names[one]} and {names[other]}" for one, other in group)
        for group in groups
    ]
    return f"a hand-over takes {'; '.join(said)}"


def _figures(costs: LaneCosts) -> tuple[float, float, float]:
    return costs.split_s, costs.byte_s, costs.upgrade_s
