"""Legal tiles of products on a GPU, for `mma`, `mma_tf32`, `mma_3xtf32` and `ffma`.

They are lowered by `compiler.devices.cuda.algorithms.contraction.lowering`. A tile is a block tile that warps (or
threads) share out, a step of k, a number of stages, and into how many parts k is split so that tiles of batch-1 shapes
fill the multiprocessors. What it costs is modelled from what one multiprocessor does in a step of k.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import ClassVar

from compiler.devices.cuda.algorithms.contraction.operand import access_of, half_of, source
from compiler.devices.cuda.model import PORT_BYTES, seconds, share
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.contraction import Contraction, as_contraction, packing_of
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Expr, conjuncts
from compiler.ir.index import Axis
from compiler.ir.machine import Workload
from compiler.ir.once import once
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

MOST_PROPOSALS = 60
WARP = 32
MOST_OFFSET = 2**31
"""Elements that offsets of 32 bits reach."""

WARP_TILES = (
    *((64, 8, 16, 8), (128, 8, 32, 8), (32, 16, 16, 8), (64, 16, 16, 16), (128, 16, 32, 16)),
    *((16, 32, 16, 8), (16, 64, 16, 16), (16, 128, 16, 32)),
    *((32, 32, 16, 16), (32, 64, 16, 32), (32, 64, 16, 16), (32, 128, 32, 32)),
    *((64, 32, 32, 16), (64, 64, 32, 32), (64, 64, 32, 16), (64, 128, 32, 64), (64, 128, 32, 32)),
    *((128, 32, 32, 32), (128, 64, 32, 32), (128, 64, 64, 32), (128, 128, 64, 64), (128, 128, 64, 32)),
)
"""m and n of a block tile, m and n of a warp's part of it."""
THREAD_TILES = (
    *((16, 32, 2, 2), (16, 64, 2, 4), (32, 32, 4, 2), (32, 64, 4, 4), (64, 32, 4, 4)),
    *((64, 64, 8, 4), (128, 64, 8, 8), (64, 128, 8, 8), (128, 128, 8, 8)),
)
"""m and n of a block tile, m and n of a thread's part of it."""
STEP_BYTES = (64, 128)
"""Of a row in one step of k."""
STAGES = (2, 3, 4, 6)
PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Into how many parts k is split."""
MOST_WAVES_SPLIT = 2
"""Blocks for each multiprocessor beyond which there is no reason to split k."""
CLUSTERS = (2, 4, 8)
"""Those that the blocks of a cluster may take."""
MOST_HELD = 32
"""Elements on their way through registers in a step."""
MOST_SPLIT_SUMS = 32 * 32
"""Sums of a warp that multiplies by three products, each of which needs its operands twice."""
MOST_REGISTERS = 200
"""Estimated: beyond them spills are likely."""

LATENCY_NS = 350.0
"""From asking for a step's bytes to having them: a trip to the second-level cache."""
STEP_NS = 25.0
"""Of a step beside its products: a barrier, addresses, the first fragments."""
CHAIN_CYCLES = 35
"""Between two products that add to the same sums."""
MEETING_NS = 1200.0
"""Of split k: partial sums to memory, a counter, and back."""
CLUSTER_NS = 500.0
"""Of split k in a cluster: two barriers, and sums from the shared memory of other blocks."""
SHARED_BYTES_PER_CLOCK = 128
ELEMENT_CYCLES = 12
"""Instructions of a warp for 32 elements that are gathered one by one, each of which has one row and one k."""
DECODED_CYCLES = 3.5
"""The same for each further axis that a place is decoded to, and each condition. Counted in the machine code of first
layers: 22 an element for three such axes, 36 with four conditions beside them."""


def product_registers(algorithm: str, part_m: int, part_n: int) -> int:
    """Registers for sums and operands: of a thread with its part of the results for ffma, else of a warp with its."""
    if algorithm == "ffma":
        return part_m * part_n + 4 * (part_n + 1)
    each = 2 if algorithm == "mma_3xtf32" else 1  # sums of a step beside those of all, two parts of operands
    return each * (part_m * part_n // WARP + (part_m // 4 + part_n // 4) * 2)


@dataclass(frozen=True)
class Reading:
    """What an operand's `Access` costs: `count` elements at once, each of them made of so many loads.

    `instructions` are those of an element that is gathered.
    """

    count: int
    loads: int = 0
    is_copy: bool = False
    instructions: float = ELEMENT_CYCLES


@dataclass(frozen=True)
class Shape:
    """What all tiles of a workload share and all that they cost depends on.

    Extents, and how operands are read as `element`. B is None where it is packed. Many workloads of a program, and more
    of those that choices and joins would make of it, have one shape.
    """

    batches: int
    rows: int
    columns: int
    depth: int
    element: DType
    a: Reading
    b: Reading | None

    @property
    def is_held(self) -> bool:
        """Whether an operand goes through registers, which one step ahead fills: more stages are of no use."""
        return not self.a.is_copy or (self.b is not None and not self.b.is_copy)


def cuda_contraction_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first; none for what is no product."""
    view = as_contraction(workload)
    buffers = (*workload.inputs, *workload.outputs)
    if view is None or any(buffer.span >= MOST_OFFSET for buffer in buffers):
        return []
    if not view.batches * view.rows * view.columns:
        return []
    ways = [(name, shape_of(view, workload, element)) for name, element in products_of(view, workload, precision)]
    if precision != "fp32":  # where an image competes with elements that are gathered one by one
        ways = [(name, replace(shape, a=_counted(shape.a, view))) for name, shape in ways]
    return [*_cheapest(tuple(ways), target)]


@lru_cache(maxsize=256)
def _cheapest(ways: tuple[tuple[str, Shape], ...], target: CudaTarget) -> tuple[Proposal, ...]:
    """The most promising tiles of products by some algorithms, best first."""
    works = (work for algorithm, shape in ways for work in _works(algorithm, shape, target))
    best = heapq.nsmallest(MOST_PROPOSALS, works, key=lambda work: seconds(work.ns(target), target))
    return tuple(work.proposal(target) for work in best)


def products_of(view: Contraction, workload: Workload, precision: str) -> list[tuple[str, DType]]:
    """The ways to multiply that a job's precision allows, with the dtype of operands in shared memory."""
    half = half_of(view, workload, exact=precision in ("fp32", "tf32"))
    if half is not None:
        return [("mma", half)]
    if precision == "fp32":
        return [("mma_3xtf32", DType.F32), ("ffma", DType.F32)]
    return [("mma_tf32", DType.F32)]


def shape_of(view: Contraction, workload: Workload, element: DType) -> Shape:
    """The shape of a product whose operands lie in shared memory as `element`."""
    slots = Slots(workload)
    packed = packing_of(view, workload, 1) is not None
    a, b = (_reading(value, view.k[-1], slots, element) for value in (view.a, view.b))
    return Shape(view.batches, view.rows, view.columns, view.depth, element, a, None if packed else b)


def _counted(reading: Reading, view: Contraction) -> Reading:
    """How A is read, with what decoding the places of single elements and their conditions ask for."""
    if reading.count > 1:
        return reading
    condition, value = source(view.a)
    conditions = conjuncts(condition) if condition is not None else []
    axes = value.axes.union(*(one.axes for one in conditions))
    decoded = sum(max(len(axes & set(side)) - 1, 0) for side in (view.m, view.k))
    return replace(reading, instructions=ELEMENT_CYCLES + DECODED_CYCLES * (decoded + len(conditions)))


def _reading(value: Expr, k: Axis, slots: Slots, element: DType) -> Reading:
    access = access_of(value, k, slots, element)
    return Reading(access.count, len(access.loads), access.is_copy)


def _works(algorithm: str, shape: Shape, target: CudaTarget) -> Iterator[Work]:
    for m, n, part_m, part_n in THREAD_TILES if algorithm == "ffma" else WARP_TILES:
        if algorithm == "mma_3xtf32" and part_m * part_n > MOST_SPLIT_SUMS:
            continue
        for depth, steps in steps_of(shape):
            for stages in STAGES:
                if stages > (2 if shape.is_held else max(steps + 1, 2)):
                    continue
                for parts, cluster in splits(shape, m, n, steps, target):
                    work = Work(algorithm, shape, m, n, part_m, part_n, depth, stages, parts, cluster)
                    if work.fits(target):
                        yield work


def steps_of(shape: Shape) -> Iterator[tuple[int, int]]:
    """Elements of k in a step, and how many steps there are."""
    for step_bytes in STEP_BYTES:
        depth = step_bytes // shape.element.bytes
        yield depth, -(-shape.depth // depth)


def splits(shape: Shape, m: int, n: int, steps: int, target: CudaTarget) -> Iterator[tuple[int, bool]]:
    """Into how many parts k may be split, and whether the blocks of a cluster take them."""
    clusters = CLUSTERS if target.has_clusters else ()
    tiles = shape.batches * -(-shape.rows // m) * -(-shape.columns // n)
    for parts in PARTS:
        if parts > steps or -(-steps // -(-steps // parts)) < parts:
            continue
        if parts > 1 and tiles * parts > MOST_WAVES_SPLIT * target.multiprocessors:
            continue
        for cluster in (False, True) if parts in clusters else (False,):
            yield parts, cluster


@dataclass(frozen=True)
class Work:
    """One tile and what it costs."""

    algorithm: str
    shape: Shape
    m: int
    n: int
    part_m: int
    part_n: int
    depth: int
    stages: int
    parts: int
    cluster: bool

    lag: ClassVar[int] = 0
    """Steps behind that still read their stages while the next one begins."""

    def proposal(self, target: CudaTarget) -> Proposal:
        """The tile with its expected seconds, and its share of the device."""
        return Proposal(self.tile, seconds(self.ns(target), target), share=share(self.blocks, target))

    @property
    def tile(self) -> Tile:
        """These sizes as a tile, by which the lowering reads them."""
        block = Level("block", (("m", self.m), ("n", self.n), ("k", self.depth), ("stages", self.stages)))
        inner = Level(self._inner, (("m", self.part_m), ("n", self.part_n)))
        grid = (Level("cluster" if self.cluster else "grid", (("k", self.parts),)),) if self.parts > 1 else ()
        return Tile(self.algorithm, (*grid, block, inner))

    @property
    def _inner(self) -> str:
        """Who has a part of the block tile."""
        return "thread" if self.algorithm == "ffma" else "warp"

    @once
    def threads(self) -> int:
        """Threads of a block."""
        lanes = 1 if self.algorithm == "ffma" else WARP
        return self.m // self.part_m * (self.n // self.part_n) * lanes

    @once
    def steps(self) -> int:
        """Of one block."""
        return ceil(ceil(self.shape.depth / self.depth) / self.parts)

    @once
    def blocks(self) -> int:
        """Blocks of the launch, those of all parts of k."""
        shape = self.shape
        return shape.batches * -(-shape.rows // self.m) * -(-shape.columns // self.n) * self.parts

    @once
    def step_bytes(self) -> int:
        """Bytes of both operands in one step of k."""
        return (self.m + self.n) * self.depth * self.shape.element.bytes

    @once
    def shared_bytes(self) -> int:
        """Of one block: its stages with padded rows, or the sums that take their place."""
        stages = self.stages * (self.step_bytes + 16 * (self.m + self.n))
        return max(stages, self.m * (self.n + 8) * 4)

    @once
    def registers(self) -> int:
        """An estimate: sums, operands of a step, addresses, what is gathered."""
        own = product_registers(self.algorithm, self.part_m, self.part_n)
        return own + 40 + self._held + 3 * (self.m * self.depth // (self.threads * self.shape.a.count))

    @once
    def _sides(self) -> tuple[tuple[Reading, int], ...]:
        """Operands that are not packed, with the elements that each thread takes in a step."""
        shape = self.shape
        sides = ((shape.a, self.m), *(((shape.b, self.n),) if shape.b else ()))
        return tuple((reading, rows * self.depth // self.threads) for reading, rows in sides)

    @once
    def _held(self) -> int:
        """Registers for what is not copied."""
        return sum(count * max(reading.loads, 1) for reading, count in self._sides if not reading.is_copy)

    @once
    def _gathered(self) -> float:
        """Instructions for the elements that a thread takes one by one in a step."""
        return sum(count * reading.instructions for reading, count in self._sides if reading.count == 1)

    def fits(self, target: CudaTarget) -> bool:
        """Whether the device has the shared memory and registers, and what is gathered divides evenly among threads."""
        return (
            self.shared_bytes <= target.block_shared_bytes
            and self.registers <= MOST_REGISTERS
            and self._held <= MOST_HELD
            and self.depth * min(self.m, self.n) % self.threads == 0
        )

    def ns(self, target: CudaTarget) -> float:
        """Nanoseconds of all waves of blocks."""
        at_once = target.blocks_at_once(self.threads, self.registers, self.shared_bytes)
        together = min(max(at_once, 1), -(-self.blocks // target.multiprocessors))
        waves = -(-self.blocks // (together * target.multiprocessors))
        steps = self._first_ns(together, target) + self.steps * self._step_ns(together, target)
        return waves * (steps + self._end_ns(together, target))

    def _first_ns(self, together: int, target: CudaTarget) -> float:
        """Before the first step's products."""
        return LATENCY_NS

    def _step_ns(self, together: int, target: CudaTarget) -> float:
        """One step of k of the blocks that a multiprocessor holds: the scarcest of its units, or waiting."""
        moved = self._moved_ns(together, target)
        units = together * self._cycles(target) / target.clock_ghz
        waiting = LATENCY_NS / (self.stages - 1 - self.lag)
        if self._held:
            waiting = LATENCY_NS
        return max(moved, self._units_ns(units), self._chain_ns(target) + STEP_NS, waiting)

    def _moved_ns(self, together: int, target: CudaTarget) -> float:
        """A step's bytes of the blocks that a multiprocessor holds, from the second-level cache."""
        busy = min(self.blocks, target.multiprocessors)
        return together * self.step_bytes / min(PORT_BYTES * target.clock_ghz, target.l2_per_ns / busy)

    def _units_ns(self, units: float) -> float:
        """A step of a multiprocessor whose units are busy for so long."""
        return units + STEP_NS

    def _cycles(self, target: CudaTarget) -> float:
        """Of a multiprocessor, for one block's step: products, reading shared memory, gathering."""
        products = self.m * self.n * self.depth
        warps = self.threads // WARP
        if self.algorithm == "ffma":
            rate, read = target.fma_per_clock * 0.8, products * 4 * (1 / self.part_m + 1 / self.part_n) / 4
        else:
            rate = target.mma_per_clock * self._per_clock * 0.8
            read = warps * (self.part_m + self.part_n) * self.depth * self.shape.element.bytes
        gathered = self._gathered * self.threads / WARP / 4
        return max(products / rate, read / SHARED_BYTES_PER_CLOCK) + gathered

    @property
    def _per_clock(self) -> float:
        """Products on tensor cores for one of 16 bits."""
        return {"mma": 1.0, "mma_tf32": 0.5, "mma_3xtf32": 0.5 / 3}[self.algorithm]

    def _chain_ns(self, target: CudaTarget) -> float:
        """The products of a step that wait for one another."""
        if self.algorithm == "ffma":
            return self.depth * 4 / target.clock_ghz
        steps = self.depth * self.shape.element.bytes / 32 * (3 if self.algorithm == "mma_3xtf32" else 1)
        return steps * CHAIN_CYCLES / target.clock_ghz

    def _end_ns(self, together: int, target: CudaTarget) -> float:
        """Results, and the meeting of the parts of k."""
        per_ns = min(PORT_BYTES * target.clock_ghz, target.l2_per_ns / min(self.blocks, target.multiprocessors))
        sums = self.m * self.n * 4 / per_ns
        if self.parts == 1:
            return sums * together
        return CLUSTER_NS + 2 * sums if self.cluster else MEETING_NS + sums * (together + self.parts)
