"""What a tile should cost on a GPU: the floor of bytes and arithmetic, at the rate of as many multiprocessors as have something to do."""

from __future__ import annotations

from compiler.targets.cuda import CudaTarget

BLOCK_NS = 700.0
"""From a block's start to its first result: addresses, a first trip to memory, a last one."""
PORT_BYTES = 64
"""Bytes that one multiprocessor takes from the second-level cache in a cycle."""


def moved_ns(nbytes: float, blocks: int, target: CudaTarget) -> float:
    """Nanoseconds of moving bytes from or to the second-level cache, where at batch 1 activations and most weights are found."""
    busy = max(min(blocks, target.multiprocessors), 1)
    return nbytes / min(target.l2_per_ns, busy * PORT_BYTES * target.clock_ghz)


def waves(blocks: int, at_once: int, target: CudaTarget) -> int:
    """Rounds in which blocks run when a multiprocessor holds `at_once` of them."""
    return -(-blocks // (max(at_once, 1) * target.multiprocessors))


def seconds(ns: float, target: CudaTarget) -> float:
    """A kernel's share of an inference's time: its work of `ns` nanoseconds, its blocks' start and end, its launch."""
    return 1e-9 * (target.launch_ns + BLOCK_NS + ns)
