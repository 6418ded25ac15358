"""What the tasks of a plan read and write, as segments of storages."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.buffers import Buffer, KernelGraph
from compiler.ir.plans.touched import Regions, Segment, Touched
from compiler.ir.tile import Tile


@dataclass(frozen=True)
class Access:
    """An operand of a call, as some of its tile tasks touch it.

    Bytes [begin, end) of its storage, in one memory space.
    """

    buffer: int
    storage: int
    begin: int
    end: int
    writes: bool
    memory: int = 0


class Accesses:
    """What tile tasks of calls touch in storages that calls write: constants and inputs conflict with nothing.

    Without `regions` a task may touch all of every operand. With `every` constants and inputs count too.
    """

    def __init__(self, kernels: KernelGraph, regions: Regions | None = None, every: bool = False) -> None:
        self._kernels, self._regions = kernels, regions
        ids = kernels.buffers if every else (id for call in kernels.calls for id in call.outputs)
        self._counted = {kernels.buffers[id].storage for id in ids}
        self._found: dict[tuple[int, Tile | None, int, int], tuple[Access, ...]] = {}

    def of(self, call: int, tile: Tile, first: int, last: int) -> tuple[Access, ...]:
        """Of tile tasks [first, last) of a call, carried out under a tile; what is empty is left out."""
        key = (call, tile, first, last) if self._regions else (call, None, 0, 0)
        if key not in self._found:
            self._found[key] = self._of(call, tile, first, last)
        return self._found[key]

    def _of(self, call: int, tile: Tile, first: int, last: int) -> tuple[Access, ...]:
        operands, buffers = self._kernels.calls[call], self._kernels.buffers
        if self._regions:
            touched = self._regions.touched(call, tile, first, last)
        else:
            touched = Touched(*(tuple(whole(buffers[id]) for id in ids) for ids in (operands.inputs, operands.outputs)))
        sides = ((operands.inputs, touched.reads, False), (operands.outputs, touched.writes, True))
        return tuple(
            Access(id, buffers[id].storage, part.begin, part.end, writes)
            for ids, parts, writes in sides
            for id, part in zip(ids, parts, strict=True)
            if buffers[id].storage in self._counted and part.begin < part.end
        )


def whole(buffer: Buffer) -> Segment:
    """From a buffer's first byte in its storage to past its last; no byte of one without elements."""
    size = buffer.dtype.bytes
    return Segment(buffer.offset * size, buffer.span * size)


def density(buffer: Buffer, access: Access, share: float) -> float:
    """Which part of the bytes of its segment an access touches, as others may lie between them.

    Of a result tile tasks that are `share` of all write as large a share; of an operand they may read all that there is
    in their segment.
    """
    own = buffer.bytes
    if access.writes:
        return own * share / (access.end - access.begin)
    segment = whole(buffer)
    return own / (segment.end - segment.begin)


def written_over(kernels: KernelGraph, call: int) -> tuple[tuple[int, int], ...]:
    """Pairs (new, old) of storages: the call may write one exactly over the other.

    All that it reads there it reads where, and when, it writes.
    """
    operands, buffers = kernels.calls[call], kernels.buffers
    read = [buffers[id] for id in operands.inputs]

    def is_met(out: int, into: int) -> bool:
        """Whether an input is read at the point that an output is written, and lies where that does."""
        return (out, into) in operands.in_place and buffers[operands.outputs[out]].offset == read[into].offset

    pairs = (
        (buffers[operands.outputs[out]].storage, read[into].storage)
        for out, into in operands.in_place
        if all(is_met(out, at) for at, buffer in enumerate(read) if buffer.storage == read[into].storage)
    )
    return tuple(dict.fromkeys(pairs))
