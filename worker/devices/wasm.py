"""Browsers as a kind of device: a `worker.devices.holder.Holder`.

No worker holds one. Builders compile for them where a compiler for WebAssembly is installed (the extra `wasm`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.codegen.build import WASM
from compiler.contract import kinds
from compiler.devices.cpu.wasm.target import PROFILES
from compiler.errors import TargetUnavailable
from worker.devices import toolchain
from worker.devices.holder import Held


def profiles() -> list[str]:
    """Their names."""
    return [profile.name for profile in PROFILES]


def entries() -> list[dict[str, Any]]:
    """What the catalogue says of each profile."""
    return [
        {
            "name": profile.name,
            "description": f"browsers and Node.js: {profile.machine} with {', '.join(profile.features)}",
            "machine": profile.machine,
            "features": list(profile.features),
            "vector_floats": profile.vector_floats,
            "vector_registers": profile.vector_registers,
            "precisions": list(kinds.WASM.precisions),
        }
        for profile in PROFILES
    ]


def held(index: int) -> Held:
    """Always raises TargetUnavailable: no worker is a browser."""
    raise TargetUnavailable("no worker holds a browser", fix="ask for build, or for cpu and wasm:simd128")


def compilable(compiler: str) -> list[str]:
    """All profiles, or none where there is no C compiler, or none for WebAssembly; what is missing is logged."""
    return profiles() if toolchain.usable(compiler) and toolchain.usable(compiler, WASM) else []


def environment(device: str) -> dict[str, str]:
    """None."""
    return {}


def measured_as(target: str, hardware: Mapping[str, Any]) -> tuple[str, str] | None:
    """None: nothing is measured."""
    return None
