"""Calls that stay together where devices have memories of their own.

What a part makes there is given back whole, a storage at a time. So all that write one storage are to be one part's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.schedule.solvers.ideals import Division, Stage
from compiler.schedule.solvers.sets import bits


@dataclass(frozen=True)
class Units:
    """A division of units, each with its calls as a set, in an order in which each comes after those it reads from."""

    division: Division
    calls: Sequence[int]

    def expanded(self, stages: Sequence[Stage]) -> tuple[Stage, ...]:
        """Stages of units as stages of calls."""
        return tuple((device, sum(self.calls[unit] for unit in bits(units))) for device, units in stages)


def units_of(division: Division) -> Units:
    """Each call by itself where all devices share a memory; else the smallest units between which a part may end.

    Besides those that write one storage, calls are together that lie on a way from a unit back to it.
    """
    calls = [1 << call for call in range(len(division.before))]
    if not any(division.transfers):
        return Units(division, calls)
    unit = [*range(len(calls))]
    for tensor in division.tensors:
        unit = _joined(unit, [unit[call] for call in bits(tensor.writers)])
    while len(order := _ordered(edges := _edges(division, unit))) < len(edges):
        unit = _joined(unit, _circle({one: reads - {*order} for one, reads in edges.items() if one not in order}))
    sets = [sum(calls[call] for call, own in enumerate(unit) if own == one) for one in order]
    number = {one: at for at, one in enumerate(order)}

    def units(of: int) -> int:
        return sum(1 << at for at in {number[unit[call]] for call in bits(of)})

    before = [
        sorted({number[unit[one]] for call in bits(own) for one in division.before[call]} - {at})
        for at, own in enumerate(sets)
    ]
    seconds = [[division.work_s(device, own) for own in sets] for device in range(len(division.seconds))]
    tensors = [replace(one, writers=units(one.writers), readers=units(one.readers)) for one in division.tensors]
    return Units(replace(division, before=before, seconds=seconds, tensors=tensors), sets)


def _joined(unit: Sequence[int], those: Sequence[int]) -> list[int]:
    return [min(those) if one in those else one for one in unit]


def _edges(division: Division, unit: Sequence[int]) -> dict[int, set[int]]:
    """For each unit those that it reads from."""
    found: dict[int, set[int]] = {one: set() for one in unit}
    for call, before in enumerate(division.before):
        found[unit[call]] |= {unit[one] for one in before} - {unit[call]}
    return found


def _ordered(edges: Mapping[int, set[int]]) -> list[int]:
    """Units, each after those that it reads from, without those on a circle and behind one."""
    found: list[int] = []
    while ready := [one for one in edges if one not in found and edges[one] <= {*found}][:1]:
        found += ready
    return found


def _circle(edges: Mapping[int, set[int]]) -> list[int]:
    """Units that read from each other, of some that all read from some of these."""
    way, one = list[int](), min(edges)
    while one not in way:
        way.append(one)
        one = min(edges[one])
    return way[way.index(one) :]
