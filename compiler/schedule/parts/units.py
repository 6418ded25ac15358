"""Calls that stay together: where devices have memories of their own, and on the way of a state.

What a part makes in a memory of its own is given back whole, a storage at a time. So all that write one storage are to
be one part's. A state whose way, from where it is read to where it is made, is one part's waits for no other part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.schedule.solvers.ideals import Division, Recurrence, Stage
from compiler.schedule.solvers.sets import bits


@dataclass(frozen=True)
class Units:
    """A division of units, each with its calls as a set, in an order in which each comes after those it reads from."""

    division: Division
    calls: Sequence[int]

    def expanded(self, stages: Sequence[Stage]) -> tuple[Stage, ...]:
        """Stages of units as stages of calls."""
        return tuple((device, sum(self.calls[unit] for unit in bits(units))) for device, units in stages)


def units_of(division: Division, *, whole_states: bool = False) -> Units:
    """Each call by itself where all devices share a memory; else the smallest units between which a part may end.

    Besides those that write one storage, calls are together that lie on a way from a unit back to it. With
    `whole_states` that holds for ways through the next frame too.
    """
    calls = [1 << call for call in range(len(division.before))]
    states = division.states if whole_states else ()
    if not any(division.transfers) and not states:
        return Units(division, calls)
    unit = [*range(len(calls))]
    for tensor in division.tensors if any(division.transfers) else ():
        unit = _joined(unit, [unit[call] for call in bits(tensor.writers)])
    while len(order := _ordered(edges := _edges(division, unit, states))) < len(edges):
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
    carried = [replace(one, writers=units(one.writers), readers=units(one.readers)) for one in division.states]
    return Units(replace(division, before=before, seconds=seconds, tensors=tensors, states=carried), sets)


def _joined(unit: Sequence[int], those: Sequence[int]) -> list[int]:
    return [min(those) if one in those else one for one in unit]


def _edges(division: Division, unit: Sequence[int], states: Sequence[Recurrence]) -> dict[int, set[int]]:
    """For each unit those that it reads from, of these states in the frame before."""
    found: dict[int, set[int]] = {one: set() for one in unit}
    for call, before in enumerate(division.before):
        found[unit[call]] |= {unit[one] for one in before} - {unit[call]}
    for state in states:
        makers = {unit[one] for one in bits(state.writers)}
        for call in bits(state.readers):
            found[unit[call]] |= makers - {unit[call]}
    return found


def _ordered(edges: Mapping[int, set[int]]) -> list[int]:
    """Units, each after those that it reads from, without those on a circle and behind one."""
    found: dict[int, None] = {}
    while (one := next((one for one in edges if one not in found and edges[one] <= found.keys()), None)) is not None:
        found[one] = None
    return [*found]


def _circle(edges: Mapping[int, set[int]]) -> list[int]:
    """Units that read from each other, of some that all read from some of these."""
    way, one = list[int](), min(edges)
    while one not in way:
        way.append(one)
        one = min(edges[one])
    return way[way.index(one) :]
