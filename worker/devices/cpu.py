"""The cores of this machine as the device of a worker: a `worker.devices.holder.Holder`."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from compiler.codegen.build import Toolchain
from compiler.contract import kinds
from compiler.contract.systems import systems_with
from compiler.devices.cpu import target as cpu
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.target import CpuTarget
from compiler.errors import MachineError, TargetUnavailable
from worker.devices import toolchain

PROBE = {"probe.c": "int tw_probe(void) { return 0; }\n"}


@dataclass(frozen=True)
class Held:
    """All cores of this machine."""

    @property
    def device(self) -> str:
        """There is one."""
        return kinds.CPU.device()

    @property
    def targets(self) -> list[str]:
        """The profiles whose features this machine has, and the families that have one of these."""
        here = [profile.name for profile in cpu.PROFILES if cpu.runs_here(profile)]
        return [*here, *(one.name for one in kinds.CPU.families if {*here} & {*one.profiles})]

    def compiles(self, compiler: str) -> bool:
        """Always: without a C compiler its jobs fail and say what to install."""
        return True

    def facts(self) -> dict[str, Any]:
        """Of the best profile; nothing but the number of cores on an architecture that none is for."""
        try:
            here = cpu.this_machine()
        except TargetUnavailable:
            return {"target": "", "fingerprint": "", "cores": os.cpu_count() or 1}
        return {
            "target": here.name,
            "fingerprint": here.hardware,
            "cores": here.lanes,
            "l1_bytes": here.l1_bytes,
            "l2_bytes": here.l2_bytes,
        }


def profiles() -> list[str]:
    """Their names, and those of families of them."""
    return [*(profile.name for profile in cpu.PROFILES), *(one.name for one in kinds.CPU.families)]


def entries() -> list[dict[str, Any]]:
    """What the catalogue says of each profile, and of each family of them."""
    families: list[dict[str, Any]] = [
        {
            "name": family.name,
            "description": f"all of {family.machine} in one artifact, with programs for several profiles",
            "machine": family.machine,
            "profiles": list(family.profiles),
            "precisions": list(kinds.CPU.precisions),
        }
        for family in kinds.CPU.families
    ]
    return families + [
        {
            "name": profile.name,
            "description": f"{profile.machine} with {', '.join(profile.features)}{_elsewhere(profile.name)}",
            "machine": profile.machine,
            "systems": [system.name for system in systems_with(profile.name)],
            "features": list(profile.features),
            "vector_floats": profile.vector_floats,
            "vector_registers": profile.vector_registers,
            "precisions": _precisions(profile),
        }
        for profile in cpu.PROFILES
    ]


def _elsewhere(profile: str) -> str:
    """Which systems there are artifacts for beside Linux, and whether this version ran any there."""
    titles = [f"{one.title} ({one.proof})" for one in systems_with(profile)[1:]]
    return f"; also for {' and '.join(titles)}" if titles else ""


def _precisions(profile: CpuTarget) -> list[str]:
    able = []
    for precision in kinds.CPU.precisions:
        try:
            profile.check_precision(precision)
        except TargetUnavailable:
            continue
        able.append(precision)
    return able


def held(index: int) -> Held:
    """This machine's cores: there is no other device of the kind."""
    return Held()


def compilable(compiler: str) -> list[str]:
    """The profiles that a C compiler makes a library for: each is tried. Empty where there is none for this machine.

    Of other architectures those with a cross compiler, and families of which it makes all. What is missing is logged.
    """
    here = platform.machine()
    machines = dict.fromkeys((here, *(profile.machine for profile in cpu.PROFILES)))
    compilers = {machine: toolchain.usable(compiler, "" if machine == here else machine) for machine in machines}
    if compilers[here] is None:
        return []
    tried = ((profile, compilers[profile.machine]) for profile in cpu.PROFILES)
    made = [profile.name for profile, found in tried if found is not None and _makes(found, profile)]
    return [*made, *(one.name for one in kinds.CPU.families if {*one.profiles} <= {*made})]


@lru_cache
def _makes(compiler: Toolchain, profile: CpuTarget) -> bool:
    if compiler.is_zig:  # it knows all processors; to try one builds a C library first, for up to a minute
        return True
    try:
        build_library(PROBE, profile, compiler, jobs=1)
    except MachineError:
        return False
    return True


def environment(device: str) -> dict[str, str]:
    """None: every job may use the cores."""
    return {}


def measured_as(target: str, hardware: Mapping[str, Any]) -> tuple[str, str] | None:
    """As `worker.devices.holder.Holder` says: whoever compiles for this machine on it finds what was measured on it."""
    try:
        resolved = cpu.resolve(target)
    except TargetUnavailable:
        return None
    return (resolved.name, resolved.hardware) if resolved.is_here else None
