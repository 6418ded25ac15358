"""Browsers as a kind of device: the backend of CPUs, for modules of WebAssembly."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.contract import CompileOptions
from compiler.devices.cpu.algorithms import legal_tiles
from compiler.devices.cpu.device import CpuBackend, backend_for
from compiler.devices.cpu.emit.lower import kernel_source
from compiler.devices.cpu.wasm.target import PROFILES, resolve
from compiler.devices.kind import DeviceKind


def wasm_backend(options: CompileOptions, environment: Mapping[str, str]) -> CpuBackend:
    """For a job's target. Raises as `backend_for` does."""
    return backend_for(resolve(options.target), options, environment)


KIND = DeviceKind(PROFILES, resolve, wasm_backend, legal_tiles, kernel_source)
