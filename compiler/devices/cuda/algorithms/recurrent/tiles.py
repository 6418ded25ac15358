"""Legal tiles of recurrent layers on a GPU.

Over how many blocks the hidden units are dealt out, and how many sequences a cluster takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.devices.cuda.algorithms.recurrent.chains import COLUMNS, THREADS, Chain, as_chains, share_of
from compiler.devices.cuda.model import BLOCK_NS, PORT_BYTES, seconds, share, waves
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.normal_form import Slots
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

CLUSTERS = (1, 2, 4, 8)
SEQUENCES = (1, 2, 4)
"""Of a cluster: their sums are registers of a thread."""
LARGEST_SPAN = 2**28
"""Elements that an int counts with room to spare, those of what is made ahead too."""
SHARED_PER_CLOCK = 128
"""Bytes that a multiprocessor reads from shared memory in a cycle."""
STEP_NS, CLUSTER_NS = 700.0, 250.0
"""Of a step: the maps' functions and barriers of a block, what a barrier of a cluster adds."""


def cuda_recurrent_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """Clusters of every size that the target has, cheapest by the model first.

    Empty for a kernel that is no chain of hidden units.
    """
    chains = as_chains(workload)
    if chains is None or max(buffer.span for buffer in (*workload.inputs, *workload.outputs)) >= LARGEST_SPAN:
        return []
    units, sequences = chains[0].units, chains[0].view.sequences
    sizes = [size for size in CLUSTERS if size == 1 or (target.has_clusters and units >= size * COLUMNS)]
    return sorted(
        (
            _proposal(chains, workload, blocks, together, target)
            for blocks in sizes
            for together in SEQUENCES
            if together == 1 or together < 2 * sequences
            if max(_state_bytes(chain, blocks, together) for chain in chains) <= target.block_shared_bytes
        ),
        key=lambda proposal: proposal.seconds,
    )


def _state_bytes(chain: Chain, blocks: int, together: int) -> int:
    """Shared memory of a block beside its weights, and to spare."""
    units = share_of(chain.units, blocks)
    own = sum(gates * units for gates in chain.temps.values())
    states = 2 * blocks * units * len(chain.exchanged)
    widest = max(product.column.extent // chain.units * units for product in chain.products)
    parts = together * max(THREADS * COLUMNS, widest)
    return 4 * (together * (own + states) + parts + 32 * 160)


def _proposal(chains: Sequence[Chain], workload: Workload, blocks: int, together: int, target: CudaTarget) -> Proposal:
    """Every step reads the weights of its units.

    Those that stay in shared memory are read there, the others from the second-level cache.
    """
    slots, view = Slots(workload), chains[0].view
    chain = max(chains, key=lambda one: sum(p.column.extent * p.depth.extent for p in one.products))
    units = share_of(chain.units, blocks)
    octets = sum(
        product.column.extent // chain.units * units * product.depth.extent * slots.buffers[product.matrix].dtype.bytes
        for product in chain.products
        if product.into not in view.ahead
    )
    kept = min(octets, max(target.block_shared_bytes - _state_bytes(chain, blocks, together), 0))
    multiplied = sum(
        product.column.extent // chain.units * units * product.depth.extent * together for product in chain.products
    )
    step = (
        STEP_NS
        + CLUSTER_NS * (blocks > 1)
        + kept / (SHARED_PER_CLOCK * target.clock_ghz)
        + (octets - kept) / (PORT_BYTES * target.clock_ghz)
        + multiplied / (target.fma_per_clock * target.clock_ghz)
    )
    grid = blocks * len(chains) * -(-view.sequences // together)
    rounds = waves(grid, 1, target)
    levels = (Level("cluster", (("units", blocks),)), Level("block", (("sequences", together),)))
    ns = rounds * (BLOCK_NS + view.time.extent * step) + kept / (PORT_BYTES * target.clock_ghz)
    return Proposal(Tile("recurrent", levels), seconds(ns, target), share=share(grid, target))
