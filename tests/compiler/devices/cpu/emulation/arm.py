"""ARM targets in tests: built by a cross compiler and run by qemu-user, or skipped with what is missing."""

from __future__ import annotations

import pytest

from compiler.codegen.build import find_toolchain
from compiler.devices.cpu.emulation.emulator import Emulator, find_emulator
from compiler.devices.cpu.target import CpuTarget, resolve
from compiler.errors import ToolchainMissing

NEON, DOT, MIXED, BF16 = "cpu:aarch64", "cpu:aarch64-dotprod", "cpu:aarch64-i8mm", "cpu:aarch64-bf16"


def arm(name: str) -> CpuTarget:
    """A target that can be built and run here. Skips the test where it cannot."""
    target = resolve(name)
    if not target.is_here:
        emulator(target)
    return target


def emulator(target: CpuTarget) -> Emulator:
    """What runs it. Skips the test where there is none."""
    try:
        toolchain = find_toolchain(machine=target.machine)
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    found = find_emulator(target, toolchain)
    if found is None:
        pytest.skip(f"no qemu-{target.machine} on the PATH. Fix: apt-get install qemu-user")
    return found
