"""What calls read of what others wrote, by bytes.

That is what it costs when another lane wrote them, and how much stays on a lane when both calls are split alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from compiler.ir.buffers import Buffer, KernelGraph
from compiler.ir.plans.touched import Regions, Segment, Touched
from compiler.ir.tile import Variant
from compiler.schedule.problem import Move

Options = Sequence[Sequence[Variant | None]]
"""For each call its variant on 1, 2, ... lanes; None where it cannot."""


def moves_of(
    kernels: KernelGraph,
    before: Sequence[Sequence[int]],
    options: Options,
    byte_s: float,
    regions: Regions | None = None,
) -> tuple[tuple[Move, ...], ...]:
    """For each call, in the order of its predecessors, what it reads of them; empty where a byte costs nothing.

    `byte_s` is how much longer a byte takes to be read that another lane wrote. Without `regions` each part of a call
    reads all of every operand. O(edges · lanes²), and the regions of every part of a call once.
    """
    if byte_s <= 0.0:
        return ()
    parts = _Parts(options, regions) if regions is not None else None
    found = []
    for reader, earlier in enumerate(before):
        every = []
        for maker in earlier:
            joints = _joints(kernels, maker, reader)
            seconds = byte_s * sum(joint.bytes for joint in joints)
            every.append(Move(seconds, *parts.shares(joints, maker, reader)) if parts and seconds else Move(seconds))
        found.append(tuple(every))
    return tuple(found)


@dataclass(frozen=True)
class _Joint:
    """So many bytes of one result of a call that another reads as one of its operands, by position."""

    result: int
    operand: int
    bytes: int


def _joints(kernels: KernelGraph, maker: int, reader: int) -> list[_Joint]:
    """An operand is counted once, however many of the reader's slots it fills."""
    made = [kernels.buffers[id] for id in kernels.calls[maker].outputs]
    read = {id: at for at, id in enumerate(kernels.calls[reader].inputs)}
    pairs = (
        (result, at, _common(buffer, kernels.buffers[id]))
        for result, buffer in enumerate(made)
        for id, at in read.items()
    )
    return [_Joint(result, at, common) for result, at, common in pairs if common]


def _common(made: Buffer, read: Buffer) -> int:
    """Bytes that two buffers have in common: all of the smaller one, if they lie in one range of a storage."""
    apart = made.storage != read.storage or made.span <= read.offset or read.span <= made.offset
    return 0 if apart else min(made.type.elements, read.type.elements) * made.dtype.bytes


class _Parts:
    """What the parts of calls touch, for each number of lanes."""

    def __init__(self, options: Options, regions: Regions) -> None:
        self.options, self.regions = options, regions
        self.known: dict[tuple[int, int], list[Touched] | None] = {}

    def shares(self, joints: Sequence[_Joint], maker: int, reader: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """`reads` and `crosses` of a `Move`."""
        every = [self._shares(joints, maker, reader, count) for count in range(1, len(self.options[reader]) + 1)]
        return tuple(reads for reads, _ in every), tuple(crosses for _, crosses in every)

    def _shares(self, joints: Sequence[_Joint], maker: int, reader: int, count: int) -> tuple[float, float]:
        """The largest shares of a part in what is read, both calls on `count` lanes.

        The first is of all of it, the second of what other parts wrote.
        """
        read, made = self._touched(reader, count), self._touched(maker, count)
        if count == 1 or read is None:
            return 1.0, 0.0 if count == 1 else 1.0
        total = sum(joint.bytes for joint in joints)
        reads, crosses = 0.0, 0.0
        for part in range(count):
            own, others = 0.0, 0.0
            for joint in joints:
                segments = [part_of.reads[joint.operand] for part_of in read]
                written = [part_of.writes[joint.result] for part_of in made or self._touched(maker, 1) or ()]
                share, crossing = _share(segments, written, part)
                own += share * joint.bytes / total
                others += crossing * joint.bytes / total
            reads, crosses = max(reads, own), max(crosses, others)
        return reads, min(crosses, reads, 1.0 - 1.0 / count)

    def _touched(self, call: int, count: int) -> list[Touched] | None:
        """What each of so many parts of a call touches; None where it cannot be split so."""
        if (call, count) not in self.known:
            variant = self.options[call][count - 1]
            self.known[call, count] = None if variant is None else self._split(call, variant, count)
        return self.known[call, count]

    def _split(self, call: int, variant: Variant, count: int) -> list[Touched]:
        ends = [variant.tiles * part // count for part in range(count + 1)]
        return [self.regions.touched(call, variant.tile, first, last) for first, last in pairwise(ends)]


def _share(read: Sequence[Segment], written: Sequence[Segment], part: int) -> tuple[float, float]:
    """Of what the parts of a call read of a result, the shares that one part reads of all, and of others.

    Others are all parts of the maker but its own, by what they may have written. Ranges may hold more than is
    touched: what two parts may both have written counts as the other's.
    """
    made = _hull(written)
    whole = _hull(read).common(made)
    if not whole:
        return 1.0, 1.0
    own = Segment(max(read[part].begin, made.begin), min(read[part].end, made.end))
    others = sum(own.common(one) for at, one in enumerate(written) if at != part)
    return own.common(made) / whole, min(others, own.common(made)) / whole


def _hull(segments: Sequence[Segment]) -> Segment:
    filled = [one for one in segments if one.begin < one.end]
    return Segment(min((one.begin for one in filled), default=0), max((one.end for one in filled), default=0))
