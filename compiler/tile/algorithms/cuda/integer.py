"""Legal tiles of products of bytes on a GPU (`compiler.codegen.cuda.cu_integer`): as of other products, with 32 elements of k in a fragment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from compiler.ir.cuda_operand import access_of
from compiler.ir.integer import IntegerContraction, as_integer
from compiler.ir.machine import Workload
from compiler.ir.normal_form import Slots
from compiler.ir.tile import Level, Tile
from compiler.targets.cuda import CudaTarget
from compiler.tile.algorithms.cuda.contraction import (
    CHAIN_CYCLES,
    ELEMENT_CYCLES,
    LATENCY_NS,
    MEETING_NS,
    MOST_HELD,
    MOST_OFFSET,
    MOST_PROPOSALS,
    MOST_REGISTERS,
    PARTS,
    STAGES,
    STEP_BYTES,
    STEP_NS,
    WARP,
    WARP_TILES,
)
from compiler.tile.algorithms.cuda.model import PORT_BYTES, seconds, share
from compiler.tile.model import Proposal

FRAGMENT_DEPTH = 32
"""Bytes of k in one matrix instruction."""
RATE = 2 * 0.8
"""Multiply-adds of bytes for one of fp16, and how near a warp comes to that."""


def cuda_integer_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first; none for what is no product of bytes, or pads rows of many zero points."""
    form = as_integer(workload)
    buffers = (*workload.inputs, *workload.outputs)
    if form is None or any(buffer.span >= MOST_OFFSET for buffer in buffers):
        return []
    view, a_zero = form.view, form.a.zero
    if not view.batches * view.rows * view.columns * view.depth:
        return []
    if form.a.condition is not None and a_zero is not None and a_zero.axes:
        return []
    slots = Slots(workload)
    packed = form.packing(workload, 1) is not None
    a_count = access_of(form.a.value, view.k[-1], slots, form.a.value.dtype).count
    b_count = 16 if packed else access_of(form.b.value, view.k[-1], slots, form.b.value.dtype).count
    works = (_Work(form, tile, a_count, b_count) for tile in _tiles(view.depth))
    found = [
        Proposal(work.tile, seconds(work.ns(target), target), share=share(work.blocks, target))
        for work in works
        if work.fits(target)
    ]
    return sorted(found, key=lambda proposal: proposal.seconds)[:MOST_PROPOSALS]


def _tiles(depth: int) -> Iterator[Tile]:
    for m, n, warp_m, warp_n in WARP_TILES:
        for step in STEP_BYTES:
            steps = -(-depth // step)
            for stages in STAGES:
                for parts in PARTS:
                    whole = -(-steps // -(-steps // parts)) == parts
                    if stages <= max(steps + 1, 2) and whole:
                        grid = (Level("grid", (("k", parts),)),) if parts > 1 else ()
                        block = Level("block", (("m", m), ("n", n), ("k", step), ("stages", stages)))
                        yield Tile("integer", (*grid, block, Level("warp", (("m", warp_m), ("n", warp_n)))))


@dataclass(frozen=True)
class _Work:
    """One tile and what it costs; operands are brought `a_count` and `b_count` bytes at once."""

    form: IntegerContraction
    tile: Tile
    a_count: int
    b_count: int

    @property
    def _block(self) -> tuple[int, int, int, int]:
        """m, n, k and stages."""
        m, n, k, stages = (self.tile.extent("block", axis) for axis in ("m", "n", "k", "stages"))
        return m, n, k, stages

    @property
    def _warp(self) -> tuple[int, int]:
        return self.tile.extent("warp", "m"), self.tile.extent("warp", "n")

    @property
    def parts(self) -> int:
        return self.tile.extent("grid", "k", 1)

    @property
    def threads(self) -> int:
        (m, n, _, _), (warp_m, warp_n) = self._block, self._warp
        return m // warp_m * (n // warp_n) * WARP

    @property
    def blocks(self) -> int:
        view, (m, n, _, _) = self.form.view, self._block
        return view.batches * -(-view.rows // m) * -(-view.columns // n) * self.parts

    @property
    def shared_bytes(self) -> int:
        m, n, k, stages = self._block
        return max(stages * (m + n) * (k + 16), m * (n + 8) * 4)

    @property
    def _gathered(self) -> int:
        """Bytes that a thread takes one by one in a step."""
        m, n, k, _ = self._block
        rows = m * (self.a_count == 1) + n * (self.b_count == 1)
        return rows * k // self.threads

    @property
    def registers(self) -> int:
        warp_m, warp_n = self._warp
        return warp_m * warp_n // WARP + (warp_m + warp_n) // 2 + self._gathered + 56

    def fits(self, target: CudaTarget) -> bool:
        m, n, k, _ = self._block
        return (
            self.shared_bytes <= target.block_shared_bytes
            and self.registers <= MOST_REGISTERS
            and self._gathered <= MOST_HELD
            and k * min(m, n) % self.threads == 0
        )

    def ns(self, target: CudaTarget) -> float:
        """Nanoseconds of all waves of blocks: each the latency of its first bytes, its steps, and its results."""
        m, n, k, stages = self._block
        held = max(target.blocks_at_once(self.threads, self.registers, self.shared_bytes), 1)
        together = min(held, -(-self.blocks // target.multiprocessors))
        waves = -(-self.blocks // (together * target.multiprocessors))
        steps = ceil(ceil(self.form.view.depth / k) / self.parts)
        busy = min(self.blocks, target.multiprocessors)
        per_ns = min(PORT_BYTES * target.clock_ghz, target.l2_per_ns / busy)
        cycles = m * n * k / (target.mma_per_clock * RATE) + self._gathered * self.threads / WARP * ELEMENT_CYCLES / 4
        chain = k // FRAGMENT_DEPTH * CHAIN_CYCLES / target.clock_ghz
        waiting = LATENCY_NS if self._gathered else LATENCY_NS / (stages - 1)
        step = max(
            together * (m + n) * k / per_ns, together * cycles / target.clock_ghz + STEP_NS, chain + STEP_NS, waiting
        )
        sums = m * n * 4 / per_ns
        end = sums * together if self.parts == 1 else MEETING_NS + sums * (together + self.parts)
        return waves * (LATENCY_NS + steps * step + end)
