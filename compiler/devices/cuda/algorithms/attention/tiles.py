"""The `attention` algorithms of CUDA: queries of one head by a block, its warps sharing out queries and keys.

At batch 1 there are few heads and few queries, so that a block takes as few as 16 of them and its warps share out the
keys; with many, warps share out the queries and read the same keys.
"""

from __future__ import annotations

from itertools import product

from compiler.devices.cuda.algorithms.attention.geometry import (
    MOST_SPLIT_DEPTH,
    FlashAttention,
    FlashBlocks,
    as_flash_attention,
)
from compiler.devices.cuda.model import PORT_BYTES, moved_ns, seconds, share, waves
from compiler.devices.cuda.target import MOST_REGISTERS, CudaTarget
from compiler.ir.machine import Workload
from compiler.tuning.proposal import Proposal

WARPS = (1, 2, 4, 8)
WARP_KEYS = (16, 32, 64)
STAGES = (1, 2, 3)
MOST_WARPS = 8
MOST_PROPOSALS = 12
QUARTERS = 4
"""Of a multiprocessor: each issues one instruction of one of its warps in a cycle, and has a quarter of the tensor
cores."""
SCORE_CYCLES = 10
"""Instructions for one score of each lane: its map, the largest, the exponential, the sum, its rounding."""
SCALE_CYCLES = 40
"""Instructions for the rows of a block of keys: shuffles and the factor of what came before. One more for each sum that
it scales."""
FRAGMENT_CYCLES = 4
"""Instructions beside a matrix instruction: half an ldmatrix, addresses."""
CHAIN_CYCLES, LINK_CYCLES = 250, 20
"""What one block of keys takes a warp at least: matrix instructions that wait for one another, shuffles, exponentials.
And what each of these matrix instructions takes."""
BARRIER_CYCLES = 60
MERGE_CYCLES = 300
"""What warps tell one another in the end."""


def cuda_attention_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The cheapest tiles by the model, the best first; none for a kernel that is no attention, or of too wide heads."""
    form = as_flash_attention(workload)
    if form is None:
        return []
    if form.dtype.bytes == 2:
        algorithm, passes = "attention", 1
    else:
        algorithm, passes = ("attention_3xtf32", 3) if precision == "fp32" else ("attention_tf32", 1)
    found = []
    for query_warps, key_warps, warp_keys, stages in product(WARPS, WARPS, WARP_KEYS, STAGES):
        blocks = FlashBlocks(query_warps, key_warps, warp_keys, stages)
        if _is_sensible(form, blocks, target, passes):
            kept = share(_count(form, blocks), target)
            found.append(Proposal(blocks.tile(algorithm), _seconds(form, blocks, target, passes), share=kept))
    return sorted(found, key=lambda proposal: proposal.seconds)[:MOST_PROPOSALS]


def registers(form: FlashAttention, blocks: FlashBlocks, passes: int) -> int:
    """Of a thread, roughly: Q, the sums, the scores and what they are rounded to, fragments and addresses."""
    queries = form.depth // 4 if form.dtype.bytes == 2 else form.depth // 2
    if passes > 1 and form.depth <= MOST_SPLIT_DEPTH:
        queries *= 2
    block_sums = 16 if passes > 1 else 0
    return 40 + 16 * passes + block_sums + queries + form.columns // 2 + blocks.warp_keys * 3 // 4


def _is_sensible(form: FlashAttention, blocks: FlashBlocks, target: CudaTarget, passes: int) -> bool:
    view = form.view
    if blocks.query_warps * blocks.key_warps > MOST_WARPS:
        return False
    if blocks.query_warps > 1 and blocks.queries // 2 >= view.queries:
        return False
    keys, key_blocks = view.keys.extent, _key_blocks(form, blocks)
    if blocks.stages > key_blocks or (key_blocks == 1 and blocks.keys - blocks.warp_keys >= keys):
        return False
    fits = blocks.shared_bytes(form) <= target.block_shared_bytes
    return fits and registers(form, blocks, passes) <= MOST_REGISTERS


def _key_blocks(form: FlashAttention, blocks: FlashBlocks) -> int:
    return -(-form.view.keys.extent // blocks.keys)


def _count(form: FlashAttention, blocks: FlashBlocks) -> int:
    return form.view.batches * -(-form.view.queries // blocks.queries)


def _seconds(form: FlashAttention, blocks: FlashBlocks, target: CudaTarget, passes: int) -> float:
    """Rounds of blocks, after the first bytes are there.

    Each takes as long as its warps' instructions or its bytes, whichever is more.
    """
    steps = _key_blocks(form, blocks)
    count = _count(form, blocks)
    held = target.blocks_at_once(blocks.threads, registers(form, blocks, passes), blocks.shared_bytes(form))
    together = min(max(held, 1), -(-count // target.multiprocessors))
    mma = 16 * 8 * 16 * QUARTERS / target.mma_per_clock
    fragments = blocks.warp_keys // 8 * (form.depth // form.step) + blocks.warp_keys // form.step * form.columns // 8
    scores = blocks.warp_keys * 16 // 32
    step = fragments * (passes * mma + FRAGMENT_CYCLES) + scores * SCORE_CYCLES + SCALE_CYCLES + form.columns // 2
    warps = together * blocks.query_warps * blocks.key_warps
    chain = CHAIN_CYCLES + LINK_CYCLES * passes * form.depth // form.step
    chain += 0 if blocks.query_warps == 1 else 2 * BARRIER_CYCLES
    issued = steps * max(step * max(warps / QUARTERS, 1), chain)
    first = blocks.keys * (form.depth + form.columns) * form.dtype.bytes * together / PORT_BYTES
    if blocks.stages == 1:
        working = issued + steps * first
    else:
        working = first + max(issued, (steps - 1) * first)
    cycles = working + MERGE_CYCLES + blocks.key_warps * 16 * form.columns / 32
    rounds_ns = waves(count, held, target) * cycles / target.clock_ghz
    read = count * steps * blocks.keys * (form.depth + form.columns) * form.dtype.bytes
    return seconds(max(rounds_ns, moved_ns(read, count, target)), target)
