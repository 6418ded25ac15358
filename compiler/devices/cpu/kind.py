"""CPUs: cores of a machine, C, the machine's C compiler."""

from __future__ import annotations

from compiler.devices.cpu.algorithms import legal_tiles
from compiler.devices.cpu.device import cpu_backend
from compiler.devices.cpu.emit.lower import kernel_source
from compiler.devices.cpu.target import PROFILES, resolve
from compiler.devices.kind import DeviceKind

KIND = DeviceKind(PROFILES, resolve, cpu_backend, legal_tiles, kernel_source)
