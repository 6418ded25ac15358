"""Downward-closed sets (ideals) of calls: with each call all that it reads from.

A part of a model that begins when an ideal has ended, and ends with a larger one, waits for nothing in between
(Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020, section 4). Sets
are the bits of an int.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.schedule.solvers.cut import series
from compiler.schedule.solvers.sets import bits

Stage = tuple[int, int]
"""A device, and its calls as a set."""


@dataclass(frozen=True)
class Tensor:
    """Bytes that some calls write and others read; both are sets."""

    bytes: int
    writers: int
    readers: int

    def crosses(self, ideal: int) -> bool:
        """Whether some of it was written within the ideal and is read beyond it."""
        return bool(self.writers & ideal and self.readers & ~ideal)


@dataclass(frozen=True)
class Division:
    """What is to be divided among devices.

    before      for each call, in an order that respects it, the calls that it reads from
    seconds     for each device what each call takes there
    tensors     what calls hand to each other
    handover_s  what a device waits for another one's result
    byte_s      how much longer a byte takes to be read that another device wrote
    """

    before: Sequence[Sequence[int]]
    seconds: Sequence[Sequence[float]]
    tensors: Sequence[Tensor] = ()
    handover_s: float = 0.0
    byte_s: float = 0.0

    @property
    def whole(self) -> int:
        """All calls."""
        return (1 << len(self.before)) - 1

    def work_s(self, device: int, calls: int) -> float:
        """What a set of calls takes on a device, one after another."""
        return sum(self.seconds[device][call] for call in bits(calls))

    def taking_over_s(self, ideal: int) -> float:
        """What a device pays that goes on where others have come: it waits, and reads what crosses."""
        if not ideal:
            return 0.0
        return self.handover_s + self.byte_s * sum(one.bytes for one in self.tensors if one.crosses(ideal))

    def lent_s(self, ideal: int, calls: int) -> float:
        """What a device pays before it runs calls that read what another one made within an ideal."""
        read = sum(one.bytes for one in self.tensors if one.writers & ideal and one.readers & calls)
        return self.handover_s + self.byte_s * read if ideal else 0.0

    def returned_s(self, calls: int) -> float:
        """What another device pays that reads the results of calls."""
        made = sum(one.bytes for one in self.tensors if one.writers & calls and one.readers & ~calls)
        return self.handover_s + self.byte_s * made


def ideals(before: Sequence[Sequence[int]], most: int) -> list[int]:
    """All ideals, smallest first, if there are at most so many; else fewer, among them every prefix of the calls.

    Where the calls fall into blocks in series (all of one before all of the next), ideals are those of single blocks
    behind whole ones; of a block with too many only the prefixes are kept.
    """
    blocks = series(before, range(len(before)))
    share = max(most // max(len(blocks), 1), 1)
    found = [0]
    done = 0
    for block in blocks:
        inside = _within(before, block, most - len(found) if len(blocks) == 1 else max(share, len(block)))
        found += [done | one for one in inside]
        done |= sum(1 << call for call in block)
    return found


def _within(before: Sequence[Sequence[int]], block: Sequence[int], most: int) -> list[int]:
    """The ideals of a block but the empty one, smallest first."""
    own = {*block}
    needs = {call: sum(1 << one for one in before[call] if one in own) for call in block}
    found: set[int] = set()
    fresh = {0}
    while fresh:
        fresh = {
            ideal | 1 << call for ideal in fresh for call in block if not ideal >> call & 1 and not needs[call] & ~ideal
        }
        found |= fresh
        if len(found) > most:
            prefix, prefixes = 0, []
            for call in block:
                prefix |= 1 << call
                prefixes.append(prefix)
            return prefixes
    return sorted(found, key=lambda one: (one.bit_count(), one))
