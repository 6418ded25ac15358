"""What products cost on a GPU: what a block asks of a multiprocessor, and how long that takes.

A multiprocessor holds several blocks, which share out its units and its port to the second-level cache. Each block
fills stages of shared memory with the operands of later steps of k while it multiplies those of one: what is done in a
step goes on side by side, and takes as long as the longest. Before the first step one thing waits for another. In the
end results are stored, and the parts of k meet. As many blocks as there are multiprocessors for are a wave.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from compiler.devices.cuda.model import PORT_BYTES, STALL, seconds, share
from compiler.devices.cuda.products.tiles import Shape, Sizes
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

T = TypeVar("T")

MOST_HELD = 32
"""Elements on their way through registers in a step."""
MOST_REGISTERS = 200
"""Estimated: beyond them spills are likely."""
OTHER_REGISTERS = 40
"""Of a thread, beside sums, operands and what is on its way: addresses."""

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
PER_CLOCK = {"mma": 1.0, "mma_tf32": 0.5, "mma_3xtf32": 0.5 / 3, "mma_integer": 2.0}
"""Products on tensor cores for one of 16 bits."""
NEAR = 0.8
"""How near warps come to what units can do."""


@dataclass(frozen=True)
class Issue:
    """Instructions of each of some warps: a multiprocessor begins `rate` in a cycle, and one of a warp in STALL."""

    instructions: float
    warps: float
    rate: float


@dataclass(frozen=True)
class Stage:
    """What a block does between two barriers.

    nbytes     from the second-level cache
    cycles     for which it has the multiprocessor's units to itself: tensor cores, shared memory
    issue      instructions beside these
    beside_ns  what cannot go on meanwhile
    least_ns   for which something waits, whatever units there are: products for products, bytes asked for earlier
    """

    nbytes: float = 0.0
    cycles: float = 0.0
    issue: Issue | None = None
    beside_ns: float = 0.0
    least_ns: float = 0.0


@dataclass(frozen=True)
class Block:
    """What a block of a launch of `count` asks of a multiprocessor.

    first, step  before the first step, one thing after another; and each of so many `steps`, side by side
    start_ns     of the launch; and `barrier_ns` of each step, whatever takes longest in it
    """

    sizes: Sizes
    count: int
    threads: int
    registers: int
    shared_bytes: int
    first: Stage
    step: Stage
    steps: int
    start_ns: float = 0.0
    barrier_ns: float = 0.0
    most_registers: int = MOST_REGISTERS


def fits(block: Block, target: CudaTarget) -> bool:
    """Whether the device has the shared memory and registers."""
    return block.shared_bytes <= target.block_shared_bytes and block.registers <= block.most_registers


def block_ns(block: Block, target: CudaTarget) -> float:
    """Nanoseconds of all waves of blocks."""
    at_once = target.blocks_at_once(block.threads, block.registers, block.shared_bytes)
    together = min(max(at_once, 1), -(-block.count // target.multiprocessors))
    waves = -(-block.count // (together * target.multiprocessors))
    per_ns = min(PORT_BYTES * target.clock_ghz, target.l2_per_ns / min(block.count, target.multiprocessors))

    def shared(stage: Stage) -> tuple[float, float]:
        """What a stage takes of port and units that the blocks share."""
        units = together * stage.cycles / target.clock_ghz
        if (issue := stage.issue) is not None:
            units += issue.instructions * max(together * issue.warps / issue.rate, STALL) / target.clock_ghz
        return together * stage.nbytes / per_ns, units

    moved, units = shared(block.step)
    step = block.barrier_ns + max(moved, units + block.step.beside_ns, block.step.least_ns)
    first = sum(shared(block.first), block.first.least_ns) + block.first.beside_ns
    return block.start_ns + waves * (first + block.steps * step + _end_ns(block.sizes, together, per_ns))


def _end_ns(sizes: Sizes, together: int, per_ns: float) -> float:
    """Results, and the meeting of the parts of k."""
    sums = sizes.m * sizes.n * 4 / per_ns
    if sizes.parts == 1:
        return sums * together
    return CLUSTER_NS + 2 * sums if sizes.cluster else MEETING_NS + sums * (together + sizes.parts)


def cheapest(
    blocks: Iterable[tuple[T, Block | None]],
    most: int,
    target: CudaTarget,
    tile: Callable[[T], Tile],
    *,
    in_seconds: bool = False,
) -> list[Proposal]:
    """The cheapest of what fits the device, best first. Each block stands behind what `tile` makes its tile of.

    `in_seconds`: nanoseconds that are the same as seconds are equal, and of equal ones the first are taken.
    """
    fitting = ((of, block) for of, block in blocks if block is not None and fits(block, target))
    priced = ((block_ns(block, target), block, of) for of, block in fitting)

    def rank(one: tuple[float, Block, T]) -> float:
        return seconds(one[0], target) if in_seconds else one[0]

    return [
        Proposal(tile(of), seconds(ns, target), share=share(block.count, target))
        for ns, block, of in heapq.nsmallest(most, priced, key=rank)
    ]


def threads_of(algorithm: str, sizes: Sizes) -> int:
    """Threads of a block, each of which has a part of its results, or each warp."""
    return sizes.shares * (1 if algorithm == "ffma" else WARP)


def product_registers(algorithm: str, sizes: Sizes) -> int:
    """Registers for sums and operands: of a thread with its part of the results for ffma, else of a warp with its."""
    part_m, part_n = sizes.part_m, sizes.part_n
    if algorithm == "ffma":
        return part_m * part_n + 4 * (part_n + 1)
    each = 2 if algorithm == "mma_3xtf32" else 1  # sums of a step beside those of all, two parts of operands
    return each * (part_m * part_n // WARP + (part_m // 4 + part_n // 4) * 2)


def multiplied(algorithm: str, sizes: Sizes, size: int, target: CudaTarget) -> tuple[float, float]:
    """Of a step: cycles of products or of reading shared memory, and nanoseconds in which products wait for products.

    An element of an operand has `size` bytes.
    """
    depth, products = sizes.depth, sizes.m * sizes.n * sizes.depth
    if algorithm == "ffma":
        read = products * 4 * (1 / sizes.part_m + 1 / sizes.part_n) / 4
        return max(
            products / (target.fma_per_clock * NEAR), read / SHARED_BYTES_PER_CLOCK
        ), depth * 4 / target.clock_ghz
    read = sizes.shares * (sizes.part_m + sizes.part_n) * depth * size
    rate = target.mma_per_clock * PER_CLOCK[algorithm] * NEAR
    links = depth * size / 32 * (3 if algorithm == "mma_3xtf32" else 1)
    return max(products / rate, read / SHARED_BYTES_PER_CLOCK), links * CHAIN_CYCLES / target.clock_ghz


def waiting_ns(shape: Shape, stages: int, lag: int = 0) -> float:
    """For a step's bytes, which were asked for as many steps before as there are stages ahead."""
    return LATENCY_NS if shape.is_held else LATENCY_NS / (stages - 1 - lag)


def pipelined_block(
    shape: Shape, sizes: Sizes, threads: int, registers: int, step_bytes: int, cycles: float, chain_ns: float
) -> Block:
    """A block with both operands in stages; `cycles` and `chain_ns` are those of a step's products (`multiplied`)."""
    least_ns = max(chain_ns + STEP_NS, waiting_ns(shape, sizes.stages))
    return Block(
        sizes,
        shape.blocks(sizes),
        threads,
        registers,
        max(sizes.stages * (step_bytes + 16 * (sizes.m + sizes.n)), sizes.sums_bytes),  # rows are padded
        Stage(least_ns=LATENCY_NS),
        Stage(step_bytes, cycles, beside_ns=STEP_NS, least_ns=least_ns),
        shape.steps(sizes),
    )


def product_block(
    shape: Shape, sizes: Sizes, threads: int, registers: int, step_bytes: int, cycles: float, chain_ns: float
) -> Block | None:
    """The same, with what it takes to read operands as `shape` says; None where that does not divide among threads.

    `registers` are those for sums and operands.
    """
    sides = ((shape.a, sizes.m), *(((shape.b, sizes.n),) if shape.b else ()))
    held, gathered = 0, 0.0
    for reading, rows in sides:
        count = rows * sizes.depth // threads
        if not reading.is_copy:  # pieces of bytes lie four in a register
            held += -(-count * max(reading.loads, 1) // (4 if reading.count > 1 and shape.element.bytes == 1 else 1))
        if reading.count == 1:
            gathered += count * reading.instructions
    if held > MOST_HELD or not divides(sizes, threads):
        return None
    registers += OTHER_REGISTERS + held + 3 * (sizes.m * sizes.depth // (threads * shape.a.count))
    cycles += gathered * threads / WARP / 4
    return pipelined_block(shape, sizes, threads, registers, step_bytes, cycles, chain_ns)


def dense_block(algorithm: str, shape: Shape, sizes: Sizes, target: CudaTarget) -> Block | None:
    """A block of a product of rows in shared memory, or of bytes, with both operands in each step."""
    size, threads = shape.element.bytes, threads_of(algorithm, sizes)
    step_bytes = (sizes.m + sizes.n) * sizes.depth * size
    registers = product_registers(algorithm, sizes)
    return product_block(shape, sizes, threads, registers, step_bytes, *multiplied(algorithm, sizes, size, target))


def divides(sizes: Sizes, threads: int) -> bool:
    """Whether a step's elements of each operand divide evenly among threads."""
    return sizes.depth * min(sizes.m, sizes.n) % threads == 0
