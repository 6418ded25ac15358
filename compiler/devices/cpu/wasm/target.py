"""What a module of WebAssembly may use."""

from __future__ import annotations

from dataclasses import replace

from compiler.codegen.build import WASM, WASM_ATOMICS
from compiler.devices.cpu.rates import Rates
from compiler.devices.cpu.target import RELAXED, CpuTarget
from compiler.errors import TargetUnavailable

SIMD128 = CpuTarget(
    "wasm:simd128",
    WASM,
    ("-msimd128",),
    ("simd128",),
    vector_floats=4,
    vector_registers=16,
    rates=Rates.modest(4),
)
"""Registers are those of the x86 machines that most pages are read on: a browser's compiler gives each vector one."""
RELAXED_SIMD = replace(
    SIMD128,
    name="wasm:relaxed-simd",
    flags=(*SIMD128.flags, "-mrelaxed-simd"),
    features=(*SIMD128.features, RELAXED),
)
"""A product and a sum are rounded once where the machine can, else twice: results differ by that among machines."""

PROFILES: tuple[CpuTarget, ...] = (SIMD128, RELAXED_SIMD)


def resolve(name: str) -> CpuTarget:
    """The target of this name. Raises TargetUnavailable."""
    for profile in PROFILES:
        if name == profile.name:
            return profile
    known = ", ".join(profile.name for profile in PROFILES)
    raise TargetUnavailable(f"target {name!r} is unknown", fix=f"use {known}")


def sharing(target: CpuTarget) -> CpuTarget:
    """The target with memory that several threads share."""
    return replace(target, flags=(*target.flags, *WASM_ATOMICS), features=(*target.features, "threads"))
