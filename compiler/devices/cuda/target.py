"""CUDA targets: what one kind of GPU has of everything.

Nothing here opens a driver: which GPU is there comes in as an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from compiler.errors import TargetUnavailable
from compiler.ir.plans.transfers import Transfers
from compiler.ir.target import Ceilings

WARP = 32
REGISTERS = 65536
"""Of one multiprocessor, 32 bits each."""
MOST_REGISTERS = 255
"""Of one thread."""
RESERVED_SHARED = 1024
"""Bytes of shared memory that each block takes beside its own."""
CROSS_NS = 1000.0
"""A stream's next launch follows in the same queue of the device, on sm_90 by a programmatic edge; one that waits for
another stream has neither.

Of a captured decode step 69 hops of the main chain between queues, each a fork, took 70 us on a B300
(github.com/sgl-project/sglang, pull request 32770). A programmatic edge removes 0.96 us of the gap between two empty
kernels of a graph (github.com/pegainfer-project/pegainfer, issue 569).
"""
FAN_IN_NS = 250.0
"""An estimate without a source: a semaphore that was released long ago is looked at, one trip to the second-level
cache."""

HANDOVER_NS = 1000.0
"""Between resident blocks, by what the machine code has (sm_90a): the last stores and MEMBAR.ALL.GPU until they are
acknowledged, the count by REDG, a look at it by LDG.STRONG.GPU that came too early for it and one that did not: four
trips of 250 ns to the second-level cache. An estimate until a GPU was asked (`measure.costs`)."""
CODE_NS = 60.0
"""For a KiB of code that a multiprocessor does not hold: eight lines of 128 bytes, a trip of 250 ns for each four of
which the next ones are asked for meanwhile. An estimate without a source until a GPU was asked (`measure.costs`)."""
CODE_CACHE = 128 * 1024
"""Bytes of code that a multiprocessor keeps, beyond which it is fetched anew.

The cache of instructions behind those of its four partitions, of a V100 (Jia et al., "Dissecting the NVIDIA Volta GPU
architecture via microbenchmarking", arXiv 1804.06826, 2018). NVIDIA publishes no size for the GPUs served here.
"""

TRANSFERS = Transfers(run_s=15e-6, copy_s=8e-6, in_byte_s=1.4e-10, out_byte_s=1.4e-10)
"""Of a GPU on PCIe 4.0 with 16 lanes, by common experience, asked of no device yet: launching a graph and waiting for
its stream, a small copy by the driver, and the core's copy to page-locked memory (10 GB/s) before that over the link
(25 GB/s)."""


@dataclass(frozen=True)
class CudaTarget:
    """One kind of GPU, by the architecture that its code is compiled for. Numbers are those of one well-known product.

    A target that is named after a product is for that one alone: its plan is made for as many multiprocessors. Its code
    runs on every GPU of the architecture, and none is measured as such a target.

    architecture      what NVRTC is asked for; `sm_90a` where kernels use what only that architecture has
    multiprocessors   how many there are; the next four are limits of one
    shared_bytes      shared memory of a multiprocessor; `block_shared_bytes` the most that one block may ask for
    dram_per_ns, l2_per_ns   bytes per nanosecond, of the whole device
    clock_ghz         cycles per nanosecond under load
    fma_per_clock     fp32 multiply-adds of a multiprocessor in a cycle; `mma_per_clock` those of fp16 on tensor cores
                      by mma.sync (half of them in tf32, twice as many in int8), `wgmma_per_clock` by wgmma, 0 where
                      there is none
    launch_ns         from the end of one kernel of a graph to the start of the next that depends on it: 1.3 us on an
                      H100 (Spector et al., "Look ma, no bubbles! Designing a low-latency megakernel for Llama-1B",
                      2025)
    cross_ns          what that takes longer where the next has to wait for another stream: CROSS_NS
    fan_in_ns         the same for each further launch of other streams that it waits for: FAN_IN_NS. These three are
                      estimates until a GPU was asked (`measure.launches`)
    handover_ns       from the end of a task of a resident block to the start of one of another that waits for it
    code_ns           for a KiB of code that is not where the multiprocessors look first
    one_split         whether all kernels of a plan ask for one split of L1 and shared memory, since changing it from
                      launch to launch was measured to take longer (`measure.splits`)
    prefetch          whether kernels ask for the weights that they read later before they wait for their predecessor,
                      and early_constants whether they load what follows a product, such as a bias, before they gather
                      its sums: where that was measured to take less (`measure.switches`)
    clusters          whether kernels may work in clusters where the architecture has them
    """

    name: str
    architecture: str
    product: str
    multiprocessors: int
    threads: int
    blocks: int
    shared_bytes: int
    block_shared_bytes: int
    l2_bytes: int
    memory_bytes: int
    dram_per_ns: float
    l2_per_ns: float
    clock_ghz: float
    fma_per_clock: int
    mma_per_clock: int
    wgmma_per_clock: int = 0
    launch_ns: float = 1300.0
    cross_ns: float = CROSS_NS
    fan_in_ns: float = FAN_IN_NS
    handover_ns: float = HANDOVER_NS
    code_ns: float = CODE_NS
    one_split: bool = False
    prefetch: bool = False
    early_constants: bool = False
    clusters: bool = True
    transfers: Transfers = TRANSFERS
    hardware: str = ""
    """Fingerprint of the GPU that measures; empty when cross-compiling."""
    lanes: int = 1

    @property
    def is_here(self) -> bool:
        """Whether code for this target can be measured on this machine."""
        return bool(self.hardware)

    def ceilings(self, lanes: int) -> Ceilings:
        """Of the whole GPU, however many streams a plan has, by the figures of the product; without tensor cores."""
        flop_per_ns = 2 * self.multiprocessors * self.fma_per_clock * self.clock_ghz
        return Ceilings(1e9 * flop_per_ns, {"L2": 1e9 * self.l2_per_ns, "memory": 1e9 * self.dram_per_ns})

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor compute capability."""
        number = int(self.architecture.removeprefix("sm_").rstrip("a"))
        return number // 10, number % 10

    @property
    def has_clusters(self) -> bool:
        """Whether kernels may work in clusters of blocks, which share their shared memory."""
        return self.clusters and self.capability >= (9, 0)

    @property
    def of_resident_blocks(self) -> CudaTarget:
        """The target for kernels of resident blocks: they are in no cluster.

        Nor do they have wgmma, whose operands come at barriers that are set up once in the life of shared memory.
        """
        return replace(self, clusters=False, wgmma_per_clock=0)

    def split_of(self, launches: Iterable[tuple[int, int]]) -> int | None:
        """Percent of a multiprocessor's shared memory that launches, each (blocks, bytes of one), fill at most.

        None where each kernel is left the split that the driver gives it.
        """
        if not self.one_split:
            return None
        each = [
            min(-(-blocks // self.multiprocessors), self.shared_bytes // (size + RESERVED_SHARED))
            * (size + RESERVED_SHARED)
            for blocks, size in launches
            if blocks
        ]
        return min(-(-100 * max(each, default=0) // self.shared_bytes), 100)

    def blocks_at_once(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Occupancy: how many blocks of `threads` threads a multiprocessor holds.

        Registers are of one thread, given out by 256 to a warp.
        """
        warps = -(-threads // WARP)
        by_registers = REGISTERS // (-(-registers * WARP // 256) * 256 * warps) if registers else self.blocks
        by_shared = self.shared_bytes // (shared_bytes + RESERVED_SHARED)
        return min(self.blocks, self.threads // (warps * WARP), by_registers, by_shared)


KIB, MIB, GIB = 1024, 1024**2, 1024**3

PROFILES: tuple[CudaTarget, ...] = (
    CudaTarget(
        *("cuda:sm_80", "sm_80", "A100 40 GB", 108, 2048, 32, 164 * KIB, 163 * KIB, 40 * MIB, 40 * GIB),
        *(1555.0, 4500.0, 1.41, 64, 1024),
    ),
    CudaTarget(
        *("cuda:sm_86", "sm_86", "A10", 72, 1536, 16, 100 * KIB, 99 * KIB, 6 * MIB, 24 * GIB),
        *(600.0, 2000.0, 1.69, 128, 512),
    ),
    # NVIDIA, "Ampere GA102 GPU architecture", 2.1 (2021), appendix A: boost clock, bytes, multiply-adds with sums in
    # fp32; what its second-level cache gives is not published: as much for each multiprocessor as on an A10
    CudaTarget(
        *("cuda:rtx3090", "sm_86", "GeForce RTX 3090", 82, 1536, 16, 100 * KIB, 99 * KIB, 6 * MIB, 24 * GIB),
        *(936.0, 2300.0, 1.695, 128, 256),
    ),
    CudaTarget(
        *("cuda:sm_89", "sm_89", "L4", 58, 1536, 24, 100 * KIB, 99 * KIB, 48 * MIB, 24 * GIB),
        *(300.0, 2500.0, 1.6, 128, 512),
    ),
    CudaTarget(
        *("cuda:sm_90", "sm_90a", "H200", 132, 2048, 32, 228 * KIB, 227 * KIB, 50 * MIB, 141 * GIB),
        *(4800.0, 5500.0, 1.83, 128, 1280, 2048),
    ),
    CudaTarget(
        *("cuda:sm_100", "sm_100", "B200", 148, 2048, 32, 228 * KIB, 227 * KIB, 126 * MIB, 180 * GIB),
        *(8000.0, 10000.0, 1.85, 128, 1024),
    ),
    CudaTarget(
        *("cuda:sm_120", "sm_120", "RTX PRO 6000", 188, 1536, 24, 100 * KIB, 99 * KIB, 128 * MIB, 96 * GIB),
        *(1792.0, 6000.0, 2.4, 128, 512),
    ),
)


@dataclass(frozen=True)
class Gpu:
    """What a driver says of a GPU. `fingerprint` tells kinds apart whose measurements must not be mixed."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    l2_bytes: int
    memory_bytes: int
    clock_ghz: float
    fingerprint: str


def resolve(name: str, here: Gpu | None = None) -> CudaTarget:
    """The target a name stands for; `cuda` is the GPU that is here. Raises TargetUnavailable."""
    known: Mapping[str, CudaTarget] = {profile.name: profile for profile in PROFILES}
    if name == "cuda":
        if here is None:
            raise TargetUnavailable(
                "target cuda means the GPU of the machine that compiles, and there is none",
                fix=f"name the architecture: one of {', '.join(known)}",
            )
        return _here(known, here)
    if name not in known:
        raise TargetUnavailable(f"target {name!r} is unknown", fix=f"use cuda, or one of {', '.join(known)}")
    if here is not None and serving(here.capability) == known[name]:
        return _here(known, here)
    return known[name]


def serving(capability: tuple[int, int]) -> CudaTarget | None:
    """The profile whose machine code a GPU runs: of its major capability the one with the next lower minor, or its own.

    Code that is for one architecture alone (`sm_90a`) serves that one. As artifacts choose, whose machine code serves
    the GPUs of a major capability from its minor one on ("CUDA C++ Programming Guide", "Binary Compatibility").
    """
    major, minor = capability
    able = [
        one
        for one in PROFILES
        if one.name.removeprefix("cuda:") in one.architecture
        and (
            one.capability == capability
            or (one.capability[0] == major and one.capability[1] < minor and not one.architecture.endswith("a"))
        )
    ]
    return max(able, key=lambda one: one.capability, default=None)


def _here(known: Mapping[str, CudaTarget], here: Gpu) -> CudaTarget:
    """The profile of a GPU's architecture, with what its driver says."""
    major, minor = here.capability
    profile = serving(here.capability)
    if profile is None:
        raise TargetUnavailable(
            f"{here.name} has compute capability {major}.{minor}, which no target is for",
            fix=f"use a GPU of one of {', '.join(known)}",
        )
    return replace(
        profile,
        product=here.name,
        multiprocessors=here.multiprocessors,
        l2_bytes=here.l2_bytes,
        memory_bytes=here.memory_bytes,
        clock_ghz=here.clock_ghz,
        hardware=here.fingerprint,
    )
