"""CPU targets: instruction-set profiles, and what this machine is."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path

from compiler.errors import TargetUnavailable

CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class CpuTarget:
    """One kind of CPU. `vector_floats` is the width of a vector register in fp32, `vector_registers` how many there are.

    `flags` go to the C compiler; `features` are names of /proc/cpuinfo that a machine needs to run the code, checked when an
    artifact is opened. Caches are bytes per core; a cross-compiled profile states modest ones.
    """

    name: str
    machine: str
    flags: tuple[str, ...]
    features: tuple[str, ...]
    vector_floats: int
    vector_registers: int
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024
    hardware: str = ""
    """Fingerprint of the machine that measures; empty when cross-compiling."""
    lanes: int = 1

    @property
    def is_here(self) -> bool:
        """Whether code for this target can be measured on this machine."""
        return bool(self.hardware)


PROFILES: tuple[CpuTarget, ...] = (
    CpuTarget(
        "cpu:x86-64-v4",
        "x86_64",
        ("-march=x86-64-v4", "-mprefer-vector-width=512"),
        ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma"),
        vector_floats=16,
        vector_registers=32,
    ),
    CpuTarget(
        "cpu:x86-64-v3", "x86_64", ("-march=x86-64-v3",), ("avx2", "fma", "bmi2"), vector_floats=8, vector_registers=16
    ),
    CpuTarget(
        "cpu:x86-64-v2", "x86_64", ("-march=x86-64-v2",), ("sse4_2", "popcnt"), vector_floats=4, vector_registers=16
    ),
    CpuTarget("cpu:aarch64", "aarch64", ("-march=armv8-a",), ("asimd",), vector_floats=4, vector_registers=32),
)
"""Best first: this machine is the first profile whose features it has."""


def resolve(name: str) -> CpuTarget:
    """The target a name stands for: `cpu` is this machine. Raises TargetUnavailable for an unknown profile."""
    here = this_machine()
    if name in ("cpu", here.name):
        return here
    for profile in PROFILES:
        if profile.name == name:
            if runs_here(profile):
                return replace(
                    profile, l1_bytes=here.l1_bytes, l2_bytes=here.l2_bytes, hardware=here.hardware, lanes=here.lanes
                )
            return profile
    known = ", ".join(profile.name for profile in PROFILES)
    raise TargetUnavailable(f"target {name!r} is unknown", fix=f"use cpu, or one of {known}")


def runs_here(profile: CpuTarget) -> bool:
    """Whether this machine has the features of a profile."""
    return profile.machine == platform.machine() and set(profile.features) <= _features()


def this_machine() -> CpuTarget:
    """This machine: the best profile it has, its caches, its cores. Raises TargetUnavailable on an unknown architecture."""
    for profile in PROFILES:
        if runs_here(profile):
            l1 = _cache_bytes(1, profile.l1_bytes)
            l2 = _cache_bytes(2, profile.l2_bytes)
            lanes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            facts = (platform.machine(), _model(), *sorted(_features()), l1, l2)
            print_of = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
            return replace(profile, l1_bytes=l1, l2_bytes=l2, lanes=lanes, hardware=f"{profile.name}/{print_of}")
    raise TargetUnavailable(
        f"no CPU profile fits this {platform.machine()} machine",
        fix="compile for a named profile, such as cpu:x86-64-v3",
    )


def _features() -> frozenset[str]:
    try:
        text = CPUINFO.read_text()
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


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
