"""Cross-lane traffic of a split call: what its parts touch beyond their own ranges.

It is what moves between lanes if all calls around the call are split alike.
"""

from __future__ import annotations

from itertools import pairwise

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.accesses import Access, Accesses, whole
from compiler.ir.tile import Variant


def remote_bytes(kernels: KernelGraph, accesses: Accesses, call: int, variant: Variant, lanes: int) -> float:
    """Bytes that the part which has most of them reads, or writes, outside of its own range of operands and results.

    Of each, the n-th part's own is the n-th of as many equal ranges as there are lanes: where the parts of most
    calls of a network that works on images lie, if each lane takes some of the rows. `variant` has a tile task for each
    lane.
    """
    ends = [variant.tiles * part // lanes for part in range(lanes + 1)]
    touched = [accesses.of(call, variant.tile, first, last) for first, last in pairwise(ends)]
    return max(
        sum(_outside(kernels, access, part, lanes) for access in of_part) for part, of_part in enumerate(touched)
    )


def _outside(kernels: KernelGraph, access: Access, part: int, lanes: int) -> float:
    """Of a result a part writes no more than its share, however far that is spread."""
    buffer = kernels.buffers[access.buffer]
    every, size = whole(buffer), access.end - access.begin
    bytes_of, span = buffer.bytes, every.end - every.begin
    low, high = (every.begin + span * at / lanes for at in (part, part + 1))
    own = max(0.0, min(high, access.end) - max(low, access.begin))
    moved = min(bytes_of / lanes, bytes_of * size / span) if access.writes else bytes_of * size / span
    return moved * (1.0 - own / size)
