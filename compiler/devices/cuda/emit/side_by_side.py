"""Independent small kernels as one launch (horizontal fusion; Rammer, OSDI 2020, section 3).

Each block is a tile task of one of them. At batch 1 many kernels have fewer blocks than the GPU has multiprocessors,
and a launch that depends on another costs more than its work.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import ceil

from compiler.devices.cuda.codegen.entry import Part, TileFunction, entry_text
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.target import MOST_REGISTERS, REGISTERS, WARP, CudaTarget

MOST_ARGUMENTS = 512
"""Pointers in the 4 KiB of parameters that a kernel takes (CUDA C++ Programming Guide, "Function Parameters")."""
USUAL_REGISTERS = 128
"""What a thread needs at most where its kernel does not say how many blocks are to fit a multiprocessor: such have few
values at a time."""


def can_share(members: Sequence[CudaLowered]) -> bool:
    """Whether kernels can share a launch.

    Each block knows its tile alone, clusters are of one size, and threads that a block has no use for are whole warps.
    """
    tiles = [tile for one in members for tile in one.tiles]
    if not all(len(one.tiles) == 1 and one.grid and one.block % WARP == 0 for one in members):
        return False
    if len({one.cluster for one in members} - {1}) > 1 or len({tile.condition for tile in tiles} - {""}) > 1:
        return False
    return sum(len(tile.parameters) for tile in tiles) <= MOST_ARGUMENTS


def fit_together(members: Sequence[CudaLowered], target: CudaTarget) -> bool:
    """Whether kernels can share a launch, and gain by it.

    They gain where none may get too few registers, and where the blocks of all, each of which takes the room of the
    largest, need no more rounds (waves) than the kernels one after another: a round costs less than a launch.
    """
    if not can_share(members) or not _enough_registers([tile for one in members for tile in one.tiles]):
        return False
    return ceil(_waves(members, target)) <= sum(ceil(_waves([one], target)) for one in members)


def slots_of(members: Sequence[CudaLowered], target: CudaTarget) -> float:
    """Blocks of kernels that share a launch, as a part of those that the device holds at once; at most 1."""
    return min(_waves(members, target), 1.0)


def _enough_registers(tiles: Sequence[TileFunction]) -> bool:
    """Whether threads of a launch get as many registers as each tile function would have, or needs.

    Those of the largest block get fewest.
    """
    threads = max(tile.threads for tile in tiles)
    resident = min((tile.resident for tile in tiles if tile.resident), default=1)
    granted = _registers(threads, resident)
    return all(
        granted
        >= min(_registers(tile.threads, tile.resident or 1), MOST_REGISTERS if tile.resident else USUAL_REGISTERS)
        for tile in tiles
    )


def _registers(threads: int, resident: int) -> int:
    """What a thread can have where a multiprocessor is to hold so many blocks."""
    return min(MOST_REGISTERS, REGISTERS // (threads * resident))


def _waves(members: Sequence[CudaLowered], target: CudaTarget) -> float:
    """Rounds in which the blocks of a launch run, the last one as far as it is filled."""
    threads, shared_bytes = max(one.block for one in members), max(one.shared_bytes for one in members)
    at_once = target.blocks_at_once(threads, min(USUAL_REGISTERS, _registers(threads, 1)), shared_bytes)
    return sum(one.grid for one in members) / (max(at_once, 1) * target.multiprocessors)


def side_by_side(name: str, members: Sequence[CudaLowered]) -> CudaLowered:
    """One kernel called `name` whose first blocks are the first member's, and so on.

    It is given what the members are given, in order. Members with clusters come first, so that theirs begin where
    clusters do; what is left of the last cluster has nothing to do.
    """
    assert all(one.cluster >= other.cluster for one, other in pairwise(members)), members
    tiles = [tile for one in members for tile in one.tiles]
    begins = [*accumulate((one.grid for one in members), initial=0)]
    cluster = members[0].cluster
    grid = -(-begins[-1] // cluster) * cluster
    ends = [*begins[1:-1], None if grid == begins[-1] else begins[-1]]
    parts = [Part(tile, begin, end) for tile, begin, end in zip(tiles, begins, ends, strict=False)]
    functions = tuple(dict.fromkeys(tiles))
    entry = f"/* Side by side: {', '.join(one.name for one in members)}. */\n{entry_text(name, parts)}"
    return CudaLowered(
        name,
        "\n".join([*(tile.text for tile in functions), entry]),
        grid,
        max(one.block for one in members),
        max(one.shared_bytes for one in members),
        sum(one.scratch_bytes for one in members),
        sum(one.counters for one in members),
        cluster,
        tiles=functions,
        entry=entry,
        waits=any(one.waits for one in members),
        needs=max(one.needs for one in members),
    )
