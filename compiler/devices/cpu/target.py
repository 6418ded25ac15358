"""CPU targets: instruction-set profiles, and what this machine is."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import dataclass, field, replace
from pathlib import Path

from compiler.contract.systems import LINUX
from compiler.devices.cpu.rates import Rates
from compiler.errors import TargetUnavailable
from compiler.ir.target import Ceilings
from compiler.pack.loader.profiles import cpu_features, grants_tiles

CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

BYTE_DOT, BF16_DOT, VBMI = "avx512_vnni", "avx512_bf16", "avx512vbmi"
"""Dot products of four bytes (VPDPBUSD) and of two bf16 (VDPBF16PS) for each lane of a 512-bit vector."""
NEAR_BYTES, FAR_BYTES = 16, 64
"""Windows out of which instructions pick elements: parts of a vector, and vectors of AVX-512."""
TILES = ("amx_tile", "amx_int8", "amx_bf16")
"""Registers of 16 x 64 bytes, and their products of bytes and of bf16."""
ARM_BYTE_DOT, ARM_MIXED_DOT, ARM_BF16_DOT = "asimddp", "i8mm", "bf16"
"""The same for a 128-bit vector of an ARM CPU: signed bytes (SDOT), unsigned with signed ones (USDOT), bf16 (BFDOT)."""
RELAXED = "relaxed-simd"
"""Of WebAssembly: products and sums that are one step where the machine has it."""


@dataclass(frozen=True)
class CpuTarget:
    """One kind of CPU.

    `vector_floats` is the width of a vector register in fp32, `vector_registers` how many there are.

    `flags` go to the C compiler; `features` are names of /proc/cpuinfo that a machine needs to run the code, checked
    when an artifact is opened. Caches are bytes per core, but `l3_bytes`, which its cores share; a cross-compiled
    profile states modest ones. `rates` are those of an unknown machine until this one is calibrated.
    """

    name: str
    machine: str
    flags: tuple[str, ...]
    features: tuple[str, ...]
    vector_floats: int
    vector_registers: int
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024
    l3_bytes: int = 8 * 1024**2
    hardware: str = ""
    """Fingerprint of the machine that measures; empty when cross-compiling."""
    lanes: int = 1
    rates: Rates = field(default_factory=Rates)
    system: str = LINUX.name
    """The operating system that runs its code. Another one than Linux is no machine that measures."""

    @property
    def is_here(self) -> bool:
        """Whether code for this target can be measured on this machine."""
        return bool(self.hardware)

    def ceilings(self, lanes: int) -> Ceilings:
        """Of so many cores: each has its own L1 and L2, all share the L3 and memory."""
        rates = self.rates
        shared = (rates.all_l3_per_ns, rates.all_memory_per_ns) if lanes > 1 else (rates.l3_per_ns, rates.memory_per_ns)
        per_ns = {"L1": lanes * rates.l1_per_ns, "L2": lanes * rates.l2_per_ns, "L3": shared[0], "memory": shared[1]}
        flop_per_ns = 2 * self.vector_floats * lanes * rates.fma_per_ns
        return Ceilings(1e9 * flop_per_ns, {level: 1e9 * rate for level, rate in per_ns.items()}, rates.measured)

    @property
    def multiplies_bytes(self) -> bool:
        """Whether one instruction adds four products of bytes to each 32-bit lane of a whole vector."""
        return bool({BYTE_DOT, "avx_vnni", ARM_BYTE_DOT} & {*self.features})

    def takes_signed(self, signed: bool) -> bool:
        """Whether the first bytes of such a product are held as signed ones, where they are signed, or are not."""
        return ARM_BYTE_DOT in self.features and (signed or ARM_MIXED_DOT not in self.features)

    @property
    def multiplies_by_lane(self) -> bool:
        """Whether products take one operand from a single lane of a vector."""
        return self.machine == "aarch64"

    @property
    def broadcasts(self) -> int:
        """Registers for elements that are multiplied with whole vectors.

        One where an instruction reads them from memory; else one is loaded while another is multiplied with.
        """
        return 2 if self.multiplies_by_lane else 1

    @property
    def parts_of_halves(self) -> int:
        """Registers that a vector of pairs of 16-bit integers is taken apart into to be multiplied (SMLAL)."""
        return 2 if self.multiplies_by_lane else 1

    @property
    def halves_per_fma(self) -> float:
        """Vectors of two products of 16-bit integers each, added to 32 bits, for each vector of fp32 products.

        SMLAL adds one of them at a time, and has one unit where FMLA has two.
        """
        return 0.25 if self.multiplies_by_lane else 0.5

    @property
    def multiplies_bf16(self) -> bool:
        """Whether one instruction adds two products of bf16 to each fp32 lane of a whole vector."""
        return bool({BF16_DOT, ARM_BF16_DOT} & {*self.features})

    def picks_from(self, window_bytes: int, element_bytes: int) -> bool:
        """Whether one instruction picks for each lane of a vector some elements of a window.

        Of 16 bytes any vector does (VPSHUFB, TBL); of 64 that of AVX-512 does, 16-bit elements (VPERMW), and bytes
        where it has AVX-512VBMI (VPERMB).
        """
        if window_bytes == NEAR_BYTES:
            return self.vector_floats >= 8 or self.machine == "aarch64"
        return self.vector_floats == 16 and (element_bytes == 2 or VBMI in self.features)

    @property
    def float_windows(self) -> tuple[int, ...]:
        """Of how many neighbouring floats a few instructions pick one for each lane of a vector.

        VPERMPS picks from a vector, VPERMI2PS of AVX-512 from two, and TBL from 64 bytes.
        """
        return {16: (16, 32), 8: (8, 16)}.get(self.vector_floats, (16,))

    @property
    def has_tiles(self) -> bool:
        """Whether one instruction multiplies tiles of 16 rows of 64 bytes, bytes and bf16 (Intel AMX)."""
        return {*TILES} <= {*self.features}

    def check_precision(self, precision: str) -> None:
        """Raises TargetUnavailable where the target has no arithmetic of this precision."""
        if precision == "bf16" and not self.multiplies_bf16:
            needed = ARM_BF16_DOT if self.machine == "aarch64" else BF16_DOT
            like = [profile for profile in PROFILES if profile.machine == self.machine]
            able = ", ".join(profile.name for profile in like if profile.multiplies_bf16)
            raise TargetUnavailable(
                f"target {self.name} lacks the CPU feature {needed} that precision bf16 needs",
                fix=f"use precision fp32, or one of the targets {able}",
            )


_V4 = CpuTarget(
    "cpu:x86-64-v4",
    "x86_64",
    ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma"),
    vector_floats=16,
    vector_registers=32,
    rates=Rates.modest(16),
)
_V3 = CpuTarget(
    "cpu:x86-64-v3",
    "x86_64",
    ("-march=x86-64-v3",),
    ("avx2", "fma", "bmi2"),
    vector_floats=8,
    vector_registers=16,
    rates=Rates.modest(8),
)


def _with(profile: CpuTarget, suffix: str, *features: str) -> CpuTarget:
    """A profile of its own for machines that have these features too; the C compiler's flags are named after them."""
    flags = tuple(f"-m{feature.replace('_', '-' if feature in TILES else '')}" for feature in features)
    return replace(
        profile,
        name=f"{profile.name}-{suffix}",
        flags=(*profile.flags, *flags),
        features=(*profile.features, *features),
    )


_IN_ORDER = "-fno-schedule-insns"
"""GCC else moves loads of broadcast elements up before it gives out registers, and then runs out of them: sums of a
register tile went to the stack in every turn. Cores that take instructions out of order need no such help."""


def _arm(name: str, extensions: str, *features: str) -> CpuTarget:
    """A profile of NEON, 32 registers of 128 bits, with these features of /proc/cpuinfo besides."""
    march = f"-march=armv8.2-a+{extensions}" if extensions else "-march=armv8-a"
    return CpuTarget(
        f"cpu:{name}",
        "aarch64",
        (march, _IN_ORDER),
        ("asimd", *features),
        vector_floats=4,
        vector_registers=32,
        rates=Rates.modest(4),
    )


_V8_2 = ("atomics", ARM_BYTE_DOT)
"""What code for ARMv8.2 with dot products may use beyond NEON: its counters of tasks are atomic instructions."""
_ARM = (
    _arm("aarch64-bf16", "dotprod+i8mm+bf16", *_V8_2, ARM_MIXED_DOT, ARM_BF16_DOT),
    _arm("aarch64-i8mm", "dotprod+i8mm", *_V8_2, ARM_MIXED_DOT),
    _arm("aarch64-dotprod", "dotprod", *_V8_2),
    _arm("aarch64", ""),
)


def _core(name: str, like: int, l1: int, l2: int, l3: int, rates: Rates) -> CpuTarget:
    """A core by its name, with the instructions of one of _ARM; caches in KiB."""
    return replace(
        _ARM[like],
        name=f"cpu:{name}",
        flags=(*_ARM[like].flags, f"-mtune={name}"),
        l1_bytes=l1 * 1024,
        l2_bytes=l2 * 1024,
        l3_bytes=l3 * 1024,
        rates=rates,
    )


_ARM_CORES = (
    _core("neoverse-v1", 0, 64, 1024, 32768, Rates.of_cycles(2.6, fma=4, l1=48, l2=32, l3=12, memory=8)),
    _core("neoverse-n1", 2, 64, 1024, 32768, Rates.of_cycles(2.5, fma=2, l1=32, l2=19, l3=8, memory=6)),
    _core("cortex-a76", 2, 64, 512, 2048, Rates.of_cycles(2.4, fma=2, l1=32, l2=19, l3=8, memory=4)),
    _core("cortex-a72", 3, 32, 1024, 1024, Rates.of_cycles(1.8, fma=1, l1=16, l2=8, l3=8, memory=2)),
    _core("cortex-a53", 3, 32, 512, 512, Rates.of_cycles(1.4, fma=1, l1=8, l2=4, l3=4, memory=2)),
)
"""Where their figures are from: docs/arm.md."""

PROFILES: tuple[CpuTarget, ...] = (
    _with(_V4, "amx", BYTE_DOT, BF16_DOT, VBMI, *TILES),
    _with(_V4, "bf16", BYTE_DOT, BF16_DOT, VBMI),
    _with(_V4, "vnni", BYTE_DOT),
    _V4,
    _with(_V3, "vnni", "avx_vnni"),
    _V3,
    CpuTarget(
        "cpu:x86-64-v2",
        "x86_64",
        ("-march=x86-64-v2",),
        ("sse4_2", "popcnt"),
        vector_floats=4,
        vector_registers=16,
        rates=Rates.modest(4),
    ),
    *_ARM,
    *_ARM_CORES,
)
"""Best first: this machine is the first profile whose features it has. Cores by name come last: a machine is taken for
one only where its name is asked for."""


def resolve(name: str) -> CpuTarget:
    """The target a name stands for: `cpu` is this machine. Raises TargetUnavailable for an unknown profile."""
    here = this_machine()
    if name in ("cpu", here.name):
        return here
    for profile in PROFILES:
        if profile.name == name:
            if runs_here(profile):
                return replace(
                    profile,
                    l1_bytes=here.l1_bytes,
                    l2_bytes=here.l2_bytes,
                    l3_bytes=here.l3_bytes,
                    hardware=here.hardware,
                    lanes=here.lanes,
                )
            return profile
    known = ", ".join(profile.name for profile in PROFILES)
    raise TargetUnavailable(f"target {name!r} is unknown", fix=f"use cpu, or one of {known}")


def resolve_for(name: str, system: str) -> CpuTarget:
    """The target of a profile on an operating system; on Linux as `resolve` says. Raises TargetUnavailable."""
    found = resolve(name)
    if system == LINUX.name:
        return found
    return replace(next(profile for profile in PROFILES if profile.name == found.name), system=system)


def runs_here(profile: CpuTarget) -> bool:
    """Whether this machine has the features of a profile."""
    has = profile.machine == platform.machine() and set(profile.features) <= _features()
    return has and (not profile.has_tiles or grants_tiles())


def this_machine() -> CpuTarget:
    """This machine: the best profile it has, its caches, its cores.

    Raises TargetUnavailable on an unknown architecture.
    """
    for profile in PROFILES:
        if runs_here(profile):
            l1 = _cache_bytes(1, profile.l1_bytes)
            l2 = _cache_bytes(2, profile.l2_bytes)
            l3 = _cache_bytes(3, profile.l3_bytes)
            lanes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            facts = (platform.machine(), _model(), *sorted(_features()), l1, l2)
            print_of = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
            hardware = f"{profile.name}/{print_of}"
            return replace(profile, l1_bytes=l1, l2_bytes=l2, l3_bytes=l3, lanes=lanes, hardware=hardware)
    raise TargetUnavailable(
        f"no CPU profile fits this {platform.machine()} machine",
        fix="compile for a named profile, such as cpu:x86-64-v3",
    )


def _features() -> frozenset[str]:
    return cpu_features(CPUINFO)


def _model() -> str:
    wanted = ("vendor_id", "cpu family", "model", "model name", "stepping", "CPU part")
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return platform.processor()
    return " ".join(
        dict.fromkeys(line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() in wanted)
    )


def _cache_bytes(level: int, otherwise: int) -> int:
    """Size of this core's data or unified cache at a level, as the kernel states it."""
    for entry in sorted(CACHES.glob("index*")):
        try:
            if int((entry / "level").read_text()) == level and (entry / "type").read_text().strip() != "Instruction":
                text = (entry / "size").read_text().strip()
                return int(text[:-1]) * {"K": 1024, "M": 1024**2}[text[-1]]
        except (OSError, ValueError, KeyError):
            continue
    return otherwise
