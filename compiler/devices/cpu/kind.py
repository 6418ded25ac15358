"""CPUs: cores of a machine, C, the machine's C compiler."""

from __future__ import annotations

from compiler.devices.cpu.algorithms import legal_tiles
from compiler.devices.cpu.device import cpu_backend
from compiler.devices.cpu.emit.lower import INCLUDES, lower
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve
from compiler.devices.kind import DeviceKind
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile


def _source(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> str:
    return f"{INCLUDES}\n{lower(name, workload, tile, target).text}"


KIND = DeviceKind(PROFILES, resolve, cpu_backend, legal_tiles, _source)
