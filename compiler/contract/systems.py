"""The operating systems that artifacts for CPUs are made for: the values of the option `system`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.contract.kinds import ARM, CPU, X86
from compiler.errors import OptionsError


@dataclass(frozen=True)
class System:
    """One of them.

    name      the value of the option
    title     in sentences
    library   the file of an artifact that holds its program
    proof     how its artifacts are tried before they are given out, in a few words
    profiles  the targets that there are programs for; empty: every one that is for CPUs
    """

    name: str
    title: str
    library: str
    proof: str
    profiles: tuple[str, ...] = ()


LINUX = System("linux", "Linux", "model.so", "run")
WINDOWS = System(
    "windows",
    "Windows",
    "model.dll",
    "run under Wine by compile --local alone",
    tuple(one for one in X86.profiles if not one.endswith("-amx")),
)
MACOS = System(
    "macos",
    "macOS",
    "model.dylib",
    "built and not run",
    (*ARM.profiles, *(f"{X86.name}-{one}" for one in ("v4-vnni", "v4", "v3", "v2"))),
)
SYSTEMS = (LINUX, WINDOWS, MACOS)
"""Linux first, which each worker has."""


def system_of(name: str) -> System:
    """The one of a name. Raises LookupError for an unknown one."""
    for system in SYSTEMS:
        if system.name == name:
            return system
    raise LookupError(f"{name!r} is no system that artifacts are made for")


def systems_with(target: str) -> list[System]:
    """Those that there are programs for a target of CPUs for, Linux first."""
    return [one for one in SYSTEMS if not one.profiles or target in one.profiles]


def demand_system(name: str, target: str, devices: Sequence[str]) -> None:
    """Raises OptionsError for options that name a system for which no artifact is made so."""
    if name == LINUX.name:
        return
    if name not in (known := [one.name for one in SYSTEMS]):
        raise OptionsError(f"system {name!r:.80} is unknown", fix=f"use one of {', '.join(known)}")
    system = system_of(name)
    if devices:
        raise OptionsError(
            f"options system {name} and devices exclude each other: plans for several devices run on Linux",
            fix="leave one of the two out",
        )
    if target not in system.profiles:
        alone = ", which names no profile" if target in (CPU.name, ARM.name, X86.name) else ""
        raise OptionsError(
            f"no artifact for {system.title} is made for target {target}{alone}",
            fix=f"use one of {', '.join(system.profiles)}, or leave system out",
        )
