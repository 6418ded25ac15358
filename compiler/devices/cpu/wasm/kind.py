"""Browsers as a kind of device: the backend of CPUs, for modules of WebAssembly."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.contract import CompileOptions
from compiler.devices.cpu.algorithms import legal_tiles
from compiler.devices.cpu.device import CpuBackend, backend_for
from compiler.devices.cpu.emit.lower import kernel_source
from compiler.devices.cpu.wasm.target import PROFILES, resolve, sharing
from compiler.devices.kind import DeviceKind
from compiler.errors import ToolchainMissing


def wasm_backend(options: CompileOptions, environment: Mapping[str, str]) -> CpuBackend:
    """For a job's target, with memory that lanes share where there are several. Raises as `backend_for` does."""
    target = resolve(options.target)
    if (options.threads or 1) == 1:
        return backend_for(target, options, environment)
    backend = backend_for(sharing(target), options, environment)
    if not backend.toolchain.is_zig:
        raise ToolchainMissing(
            f"the C library of {backend.toolchain.path} was not compiled for memory that threads share",
            fix="pip install ziglang, which makes one that is, or leave threads out",
        )
    return backend


KIND = DeviceKind(PROFILES, resolve, wasm_backend, legal_tiles, kernel_source)
