"""Turns in CUDA C++: maps that read along one axis and write along another, through shared memory.

A block takes a tile of `reads` x `writes` points. Its threads bring what is read along `reads` to shared memory,
neighbours loading neighbours; then each computes points along `writes`, neighbours storing neighbours. Rows in shared
memory are four bytes longer than they need be, so that a warp that goes down a column meets each bank once.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from compiler.codegen.functions import decode
from compiler.codegen.reductions import temp_aware
from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.codegen.axes import index_type
from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.codegen.rounds import in_rounds
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, CudaEmitter, convert
from compiler.devices.cuda.model import moved_ns, seconds, share
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.normal_form import Slots, positions
from compiler.forms.transpose import Transpose, as_transpose
from compiler.ir.expr import Load
from compiler.ir.index import Axis
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

SIDES = (16, 32, 64, 128)
MOST_POINTS, LEAST_POINTS = 4096, 256
LEAST_RUN = 16
"""Elements that lie side by side where a turn pays: with fewer, the caches put accesses together as well."""
SHARED_BYTES = 40 * 1024
SECTOR_BYTES = 32
"""What memory moves at least."""


def cuda_transpose_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """Tiles of every shape that fits; empty for a kernel that is no turn, or of too short rows."""
    turn = as_transpose(workload)
    if (
        turn is None
        or turn.reads.extent < LEAST_RUN
        or turn.writes.extent < 2
        or turn.writes.extent * turn.reads.extent < LEAST_POINTS
    ):
        return []
    slots = Slots(workload)
    octets = sum(slots.buffers[load.slot].dtype.bytes for load in turn.transposed)
    return sorted(
        (
            _proposal(turn, workload, reads, writes, target)
            for writes in sorted({min(turn.writes.extent, side) for side in SIDES})
            for reads in SIDES
            if LEAST_POINTS <= reads * writes <= MOST_POINTS and writes * (reads + 4) * octets <= SHARED_BYTES
        ),
        key=lambda proposal: proposal.seconds,
    )


def _proposal(turn: Transpose, workload: Workload, reads: int, writes: int, target: CudaTarget) -> Proposal:
    """Bytes in whole sectors, by as many blocks as there are.

    A tile that hangs over the tensors' ends counts as a whole one.
    """
    bands = (-(-turn.reads.extent // reads), -(-turn.writes.extent // writes))
    blocks = prod((*bands, *(axis.extent for axis in turn.outer)))
    over = bands[0] * reads * bands[1] * writes / (turn.reads.extent * turn.writes.extent)
    moved = sum(buffer.bytes for buffer in (*workload.inputs, *workload.outputs))
    narrowest = min(buffer.dtype.bytes for buffer in (*workload.inputs, *workload.outputs))
    run = reads if turn.writes.extent <= writes else min(reads, writes)
    waste = max(1.0, SECTOR_BYTES / (narrowest * run))
    levels = (Level("block", (("reads", reads), ("writes", writes))),)
    found = seconds(moved_ns(moved * over * waste, blocks, target), target)
    return Proposal(Tile("transpose", levels), found, share=share(blocks, target))


THREADS = 256
AT_ONCE = 8
"""Points of a thread that are worked on together."""
BANK_BYTES = 4


def lower_cuda_transpose(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_transpose` accepts. Level `block`: `reads` and `writes`, the tile's extents."""
    turn = as_transpose(workload)
    assert turn is not None, "the tile stage offers `transpose` only to kernels of that form"
    return _Transpose(name, workload, turn, tile.extent("block", "reads"), tile.extent("block", "writes")).lower()


def pitch_of(reads: int, dtype: DType) -> int:
    """Elements from one row of a tile in shared memory to the next."""
    return reads + max(BANK_BYTES // dtype.bytes, 1)


def turned_bytes(turn: Transpose, slots: Slots, reads: int, writes: int) -> int:
    """Shared memory of a tile."""
    dtypes = [slots.buffers[load.slot].dtype for load in turn.transposed]
    return sum(_aligned(writes * pitch_of(reads, dtype) * dtype.bytes) for dtype in dtypes)


def _aligned(count: int) -> int:
    return -(-count // 16) * 16


@dataclass
class _Transpose:
    name: str
    workload: Workload
    turn: Transpose
    reads: int
    writes: int

    def __post_init__(self) -> None:
        self.writer = Writer()
        self.slots = Slots(self.workload)
        self.elements = {slot: buffer.dtype for slot, buffer in self.slots.buffers.items()}
        spans = (buffer.span for buffer in self.slots.buffers.values())
        extents = (axis.extent for axis in self.turn.kernel.shared)
        indices = positions(self.turn.kernel, temp_aware(self.turn.kernel, self.slots))
        self.int_type = index_type(indices, (*spans, *extents))

    def lower(self) -> CudaLowered:
        turn, writer = self.turn, self.writer
        bands = (
            Axis("ReadsBand", -(-turn.reads.extent // self.reads)),
            Axis("WritesBand", -(-turn.writes.extent // self.writes)),
        )
        places = (*turn.outer, *bands)
        decode(writer, places, "tile", self.int_type)
        writer.line(f"const {self.int_type} firstRead = {bands[0]} * {self.reads};")
        writer.line(f"const {self.int_type} firstWrite = {bands[1]} * {self.writes};")
        tiles = self._bring()
        writer.line("__syncthreads();")
        self._compute(tiles)
        return framed(
            self.name,
            self.workload,
            writer.lines,
            Frame(
                grid=prod(axis.extent for axis in places),
                block=THREADS,
                shared_bytes=turned_bytes(turn, self.slots, self.reads, self.writes),
                index=self.int_type,
            ),
            notes=[f"tiles of {self.reads} x {self.writes}, read along {turn.reads} and written along {turn.writes}"],
        )

    def _bring(self) -> Mapping[Load, str]:
        """What is read along `reads`, to shared memory; the element of each load at a point of the tile."""
        found: dict[Load, str] = {}
        place = 0
        for load in self.turn.transposed:
            dtype = self.elements[load.slot]
            pitch, name, ctype = pitch_of(self.reads, dtype), self.writer.name(f"turned_{load.slot}"), CUDA_TYPES[dtype]
            self.writer.line(f"{ctype} *const {name} = ({ctype} *)(shared + {place});")
            place += _aligned(self.writes * pitch * dtype.bytes)
            found[load] = f"{name}[row * {pitch} + column]"
        with self._points("row", "column", self.reads):
            emitter = self._emitter()
            for load, element in found.items():
                pointer, offset = self.slots.address(load.slot, load.index)
                self.writer.line(f"{element} = {pointer}[{emitter.index(offset)}];")
        return found

    def _compute(self, tiles: Mapping[Load, str]) -> None:
        """All blocks at each point of the tile."""
        with self._points("column", "row", self.writes):
            emitter = self._emitter()
            for load, element in tiles.items():
                name = self.writer.name("element")
                computed = convert(element, self.elements[load.slot], load.dtype)
                self.writer.line(f"const {CUDA_TYPES[load.dtype]} {name} = {computed};")
                emitter.held[load] = name
            for block in self.turn.kernel.blocks:
                for store, value in zip(block.stores, block.values, strict=True):
                    held = emitter.scalar(value)
                    if store.slot in self.slots.buffers:
                        emitter.store(store.slot, store.index, held, value.dtype)
                    else:
                        emitter.held[Load(store.slot, store.index, value.dtype)] = held

    def _points(self, outer: str, inner: str, extent: int) -> ExitStack:
        """A loop over the tile's points that lie in the tensors.

        Neighbouring threads are at neighbouring places of `inner`.
        """
        stack, turn, size = ExitStack(), self.turn, self.reads * self.writes
        stack.enter_context(in_rounds(self.writer, "point", size, "(int)threadIdx.x", THREADS, AT_ONCE))
        self.writer.line(f"const int {outer} = point / {extent}, {inner} = point % {extent};")
        limits = [
            f"{first} + {at} < {axis.extent}"
            for axis, tile, first, at in (
                (turn.reads, self.reads, "firstRead", "column"),
                (turn.writes, self.writes, "firstWrite", "row"),
            )
            if axis.extent % tile
        ]
        if limits:
            stack.enter_context(self.writer.block(f"if ({' && '.join(limits)})"))
        return stack

    def _emitter(self) -> CudaEmitter:
        emitter = CudaEmitter(self.writer, self.slots.address, self.elements)
        emitter.names = {self.turn.reads: "(firstRead + column)", self.turn.writes: "(firstWrite + row)"}
        return emitter


TRANSPOSE = CudaAlgorithm(("transpose",), cuda_transpose_tiles, lower_cuda_transpose)
