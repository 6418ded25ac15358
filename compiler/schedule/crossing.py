"""How much of what the lanes of a plan read was written by another lane: what moves from core to core in each inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from compiler.ir.accesses import Access, Accesses, whole
from compiler.ir.buffers import KernelGraph
from compiler.ir.plan import Plan, Task
from compiler.ir.touched import Regions


@dataclass(frozen=True)
class _Part:
    """A lane that touches bytes [begin, end) of a storage; `density` is how many bytes of each of them are its own, as they may be interleaved."""

    lane: int
    begin: int
    end: int
    density: float


def crossing_bytes(plan: Plan, kernels: KernelGraph, regions: Regions | None = None) -> int:
    """Bytes per inference that a lane reads and another lane wrote; what a lane reads more than once counts once.

    Where several lanes write into one stretch, each is taken to have written its part, by tiles, of every byte.
    """
    accesses = Accesses(kernels, regions)
    reads: dict[int, list[_Part]] = {}
    writes: dict[int, list[_Part]] = {}
    for task in plan.tasks:
        for access in accesses.of(task.call, plan.tiles[task.call][0], task.first, task.last):
            part = _Part(task.lane, access.begin, access.end, _density(plan, kernels, task, access))
            (writes if access.writes else reads).setdefault(access.storage, []).append(part)
    return round(sum(_crossing(reads.get(storage, []), written) for storage, written in writes.items()))


def _density(plan: Plan, kernels: KernelGraph, task: Task, access: Access) -> float:
    """Of a result a task writes its part by tiles; of an operand it may read all that there is in its stretch."""
    buffer = kernels.buffers[access.buffer]
    own = buffer.type.elements * buffer.dtype.bytes
    if access.writes:
        return own * (task.last - task.first) / plan.tiles[task.call][1] / (access.end - access.begin)
    stretch = whole(buffer)
    return own / (stretch.end - stretch.begin)


def _crossing(reads: Sequence[_Part], writes: Sequence[_Part]) -> float:
    """Of one storage."""
    edges = sorted({edge for part in (*reads, *writes) for edge in (part.begin, part.end)})
    total = 0.0
    for begin, end in pairwise(edges):
        written = [part for part in writes if part.begin <= begin < part.end]
        made = sum(part.density for part in written)
        for lane in {part.lane for part in reads} if made else ():
            read = max(
                (part.density for part in reads if part.lane == lane and part.begin <= begin < part.end), default=0
            )
            others = sum(part.density for part in written if part.lane != lane)
            total += (end - begin) * read * others / made
    return total
