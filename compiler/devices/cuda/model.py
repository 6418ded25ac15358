"""What a tile should cost on a GPU.

The floor of bytes and arithmetic, at the rate of as many multiprocessors as have something to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.devices.cuda.target import CODE_CACHE, MOST_REGISTERS, CudaTarget
from compiler.schedule.gpu.code import Code
from compiler.schedule.gpu.launch_load import LaunchLoad
from compiler.schedule.gpu.resident import Resident, ResidentCall

BLOCK_NS = 700.0
"""From a block's start to its first result: addresses, a first trip to memory, a last one."""
TRIP_NS = 250.0
"""One more dependent trip to the second-level cache."""
MEETING_NS = 1000.0
"""What it costs that blocks leave partial results and the last one fetches them."""
STALL = 2.0
"""Cycles between two instructions of a warp that has its scheduler for itself."""
LARGEST_SPAN = 2**30
"""Elements of a buffer that an int counts with room to spare."""
PORT_BYTES = 64
"""Bytes that one multiprocessor takes from the second-level cache in a cycle."""


def moved_ns(nbytes: float, blocks: int, target: CudaTarget) -> float:
    """Nanoseconds of moving bytes from or to the second-level cache.

    At batch 1 activations and most weights are found there.
    """
    busy = max(min(blocks, target.multiprocessors), 1)
    return nbytes / min(target.l2_per_ns, busy * PORT_BYTES * target.clock_ghz)


def waves(blocks: int, at_once: int, target: CudaTarget) -> int:
    """Rounds in which blocks run when a multiprocessor holds `at_once` of them."""
    return -(-blocks // (max(at_once, 1) * target.multiprocessors))


def share(blocks: int, target: CudaTarget) -> float:
    """The part of the multiprocessors that so many blocks keep at work."""
    return min(blocks / target.multiprocessors, 1.0)


def seconds(ns: float, target: CudaTarget) -> float:
    """A kernel's share of an inference's time: its work of `ns` nanoseconds, its blocks' start and end, its launch."""
    return 1e-9 * (target.launch_ns + BLOCK_NS + ns)


def prefetched_ns(nbytes: float, in_cache: bool, target: CudaTarget) -> float:
    """At most what a kernel gains by asking for so many bytes of weights before it waits for its predecessor.

    They come from memory while it waits for the launch before it, if they are not `in_cache` anyhow.
    """
    return 0.0 if in_cache else min(nbytes / target.dram_per_ns, target.launch_ns)


EARLY_NS = TRIP_NS
"""At most what a kernel gains by loading what follows a product before the sums are gathered: one trip."""


def load(
    kernels: Sequence[tuple[float, int]],
    slots: float,
    target: CudaTarget,
    weights: float = 0.0,
    code: Sequence[Code] = (),
) -> LaunchLoad:
    """What kernels ask of the device as one launch, from each one's seconds alone, launch included, and its blocks.

    They take as long as the longest of them, or as all their work spread over the device, or as their `weights` take to
    come from memory: bytes that no second-level cache holds. `slots` is what their blocks fill of it.
    """
    cross_s, fan_in_s = 1e-9 * target.cross_ns, 1e-9 * target.fan_in_ns
    gap_s = 1e-9 * target.launch_ns
    works = [(max(alone - seconds(0.0, target), 0.0), share(blocks, target)) for alone, blocks in kernels]
    longest, spread = max(work for work, _ in works), sum(work * part for work, part in works)
    # Less than a launch where a kernel was measured to begin early.
    until_work = max(alone for alone, _ in kernels) - longest
    gap_s = min(gap_s, until_work)
    work_s = max(longest, spread, 1e-9 * weights / target.dram_per_ns)
    part = spread / work_s if work_s else 0.0
    start_s = until_work - gap_s
    return LaunchLoad(gap_s, start_s, work_s, min(slots, 1.0), part, cross_s, fan_in_s, tuple(code))


def code_of(name: str, nbytes: int, target: CudaTarget) -> Code:
    """A kernel's machine code."""
    return Code(name, nbytes, 1e-9 * target.code_ns * nbytes / 1024, CODE_CACHE)


TURN_NS = 100.0 + TRIP_NS
"""Of a block between two tasks: a barrier, the next task looked up; its ticket was taken meanwhile. The thread that
counts the task then waits for MEMBAR.ALL.GPU, and the block's next barrier for that thread."""
RESIDENT_REGISTERS = 16
"""More than the tile function that needs most: a resident block knows which task it has and what comes next."""


@dataclass(frozen=True)
class Need:
    """A kernel alone, launch included, in seconds, and what NVRTC says that one of its blocks needs.

    `weights` are its bytes that come from memory.
    """

    seconds: float
    blocks: int
    threads: int
    registers: int
    shared_bytes: int
    weights: float = 0.0
    code: tuple[Code, ...] = ()


def resident(kernels: Sequence[Need], threads: int, shared_bytes: int, target: CudaTarget) -> Resident | None:
    """Kernels, a call each, on resident blocks, of so many threads and so much shared memory; None where none fits.

    A task takes as long as a wave of its kernel does, and its block's start.
    """
    registers = min(max((one.registers for one in kernels), default=0) + RESIDENT_REGISTERS, MOST_REGISTERS)
    held = target.blocks_at_once(threads, registers, shared_bytes)
    if held < 1:
        return None
    calls = []
    for one in kernels:
        work = max(one.seconds - seconds(0.0, target), 0.0)
        rounds = waves(one.blocks, target.blocks_at_once(one.threads, one.registers, one.shared_bytes), target)
        busy = max(work * share(one.blocks, target), 1e-9 * one.weights / target.dram_per_ns)
        calls.append(ResidentCall(one.blocks, 1e-9 * BLOCK_NS + work / rounds, busy, one.code))
    blocks = held * target.multiprocessors
    return Resident(held, blocks, tuple(calls), 1e-9 * target.launch_ns, 1e-9 * target.handover_ns, 1e-9 * TURN_NS)
