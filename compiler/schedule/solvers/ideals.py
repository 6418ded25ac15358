"""Downward-closed sets (ideals) of calls: with each call all that it reads from.

A part of a model that begins when an ideal has ended, and ends with a larger one, waits for nothing in between
(Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020, section 4). Sets
are the bits of an int.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean

from compiler.ir.plans.transfers import Transfers
from compiler.schedule.solvers.cut import series
from compiler.schedule.solvers.sets import bits

Stage = tuple[int, int]
"""A device, and its calls as a set."""


@dataclass(frozen=True)
class Tensor:
    """Bytes that some calls write and others read; both are sets. What no call writes the caller gives.

    `leaves` says that the caller is given them.
    """

    bytes: int
    writers: int
    readers: int
    leaves: bool = False

    def crosses(self, ideal: int) -> bool:
        """Whether some of it was written within the ideal and is read beyond it."""
        return bool(self.writers & ideal and self.readers & ~ideal)


@dataclass(frozen=True)
class Recurrence:
    """A state: an output of the model that is an input of it in the next frame, by their positions.

    With the calls that read the input, and those that write the output, as sets.
    """

    output: int
    input: int
    readers: int
    writers: int


@dataclass(frozen=True)
class Crossing:
    """What a result of one device costs another, in seconds.

    handover_s  what the other device waits for it
    byte_s      how much longer a byte takes to be read than one that the reader wrote
    """

    handover_s: float = 0.0
    byte_s: float = 0.0

    def of(self, bytes: int) -> float:
        """Of so many bytes: it waits, and reads."""
        return self.handover_s + self.byte_s * bytes


@dataclass(frozen=True)
class Division:
    """What is to be divided among devices.

    before      for each call, in an order that respects it, the calls that it reads from
    seconds     for each device what each call takes there, of a frame by itself
    tensors     what calls hand to each other
    handover_s  what a device waits for another one's result
    byte_s      how much longer a byte takes to be read that another device wrote
    transfers   for each device what copies cost there, None where it works in the host's memory; empty: all do
    queues      devices with a memory of their own that are two queues of one, and work on other frames
    caller_s    what the caller's thread takes for a frame of a core that is a device, copies of inputs among it; None
                where it has a core of its own
    slowdown    for each device by how much longer calls take there while all devices are at work; empty: by nothing
    pairs       by two devices, the lower one first, what a result of one costs the other, where that is known; of
                others it is `handover_s` and `byte_s`
    """

    before: Sequence[Sequence[int]]
    seconds: Sequence[Sequence[float]]
    tensors: Sequence[Tensor] = ()
    handover_s: float = 0.0
    byte_s: float = 0.0
    transfers: Sequence[Transfers | None] = ()
    queues: frozenset[int] = frozenset()
    caller_s: float | None = None
    slowdown: Sequence[float] = ()
    states: Sequence[Recurrence] = ()
    pairs: Mapping[tuple[int, int], Crossing] = field(default_factory=dict)

    def between(self, one: int, other: int) -> Crossing:
        """What a result of one device costs another."""
        return self.pairs.get((min(one, other), max(one, other))) or Crossing(self.handover_s, self.byte_s)

    @property
    def levelled(self) -> Division:
        """With the mean of all pairs for each of them."""
        if not self.pairs:
            return self
        pairs = [self.between(one, other) for one, other in combinations(range(len(self.seconds)), 2)]
        handover_s, byte_s = fmean(one.handover_s for one in pairs), fmean(one.byte_s for one in pairs)
        return replace(self, handover_s=handover_s, byte_s=byte_s, pairs={})

    @property
    def whole(self) -> int:
        """All calls."""
        return (1 << len(self.before)) - 1

    def work_s(self, device: int, calls: int) -> float:
        """What a set of calls takes on a device, one after another."""
        return sum(self.seconds[device][call] for call in bits(calls))

    @property
    def in_flight(self) -> Division:
        """With `seconds` as they are while all devices are at work."""
        if not self.slowdown:
            return self
        each = zip(self.seconds, self.slowdown, strict=True)
        return replace(self, seconds=[[slower * own for own in seconds] for seconds, slower in each], slowdown=())

    def transfers_of(self, device: int) -> Transfers | None:
        """None for a device that works in the host's memory."""
        return self.transfers[device] if self.transfers else None

    def part_s(self, device: int, calls: int) -> float:
        """What a set of calls takes as a part on a device: with what it brings there, and gives back."""
        return self.work_s(device, calls) + self.copied_s(device, calls)

    def turn_s(self, device: int, calls: int) -> float:
        """What a set of calls keeps a device for a frame that it does, with many in flight.

        Of two queues of one device each does every second frame. Copies there, kernels and copies back go beside each
        other for different frames, each of the three one at a time, which takes twice as long for who does half.
        """
        work = self.work_s(device, calls) * (self.slowdown[device] if self.slowdown else 1.0)
        alone = work + self.copied_s(device, calls)
        if device not in self.queues:
            return alone
        return max(alone, 2 * work, *(2 * seconds for seconds in self._moved_s(device, calls)))

    def copied_s(self, device: int, calls: int) -> float:
        """What a set of calls pays as a part on a device, beside its work."""
        found = self.transfers_of(device)
        return 0.0 if found is None else found.run_s + sum(self._moved_s(device, calls))

    def _moved_s(self, device: int, calls: int) -> tuple[float, float]:
        """Of a part what is brought to its device, and what is given back."""
        found = self.transfers_of(device)
        if found is None:
            return 0.0, 0.0
        brought = [
            one.bytes for one in self.tensors if one.readers & calls and (one.writers & ~calls or not one.writers)
        ]
        given = [one.bytes for one in self.tensors if one.writers & calls and (one.readers & ~calls or one.leaves)]
        return found.brought_s(brought), found.given_back_s(given)

    def entered_s(self, device: int, ideal: int) -> float:
        """At most what a device pays that goes on from an ideal: all is brought there that is read from then on."""
        found = self.transfers_of(device)
        if found is None or ideal == self.whole:
            return 0.0
        there = [one for one in self.tensors if one.readers & ~ideal and (one.writers & ideal or not one.writers)]
        return found.run_s + found.brought_s([one.bytes for one in there])

    def left_s(self, device: int, ideal: int) -> float:
        """At most what a device pays that ends with an ideal: all is given back that is read from then on."""
        found = self.transfers_of(device)
        if found is None or not ideal:
            return 0.0
        here = [one for one in self.tensors if one.writers & ideal and (one.readers & ~ideal or one.leaves)]
        return found.given_back_s([one.bytes for one in here])

    def crossing_bytes(self, ideal: int) -> int:
        """What is written within an ideal and read beyond it."""
        return sum(one.bytes for one in self.tensors if one.crosses(ideal))

    def lent_s(self, ideal: int, calls: int, one: int, other: int) -> float:
        """What a device pays before it runs calls that read what another one, the first, made within an ideal."""
        read = sum(tensor.bytes for tensor in self.tensors if tensor.writers & ideal and tensor.readers & calls)
        return self.between(one, other).of(read) if ideal else 0.0

    def returned_s(self, calls: int, one: int, other: int) -> float:
        """What another device, the second, pays that reads the results of calls."""
        made = sum(tensor.bytes for tensor in self.tensors if tensor.writers & calls and tensor.readers & ~calls)
        return self.between(one, other).of(made)


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
