"""The target that a name stands for, of whatever kind."""

from __future__ import annotations

from compiler.targets import cpu, cuda
from compiler.targets.cuda import Gpu
from compiler.targets.target import Target

PROFILES: tuple[Target, ...] = (*cpu.PROFILES, *cuda.PROFILES)
"""Those that can be compiled for on any machine."""


def resolve(name: str, gpu: Gpu | None = None) -> Target:
    """`cpu` is this machine, `cuda` is `gpu`, the GPU that is here. Raises TargetUnavailable."""
    return cuda.resolve(name, gpu) if name.partition(":")[0] == "cuda" else cpu.resolve(name)
