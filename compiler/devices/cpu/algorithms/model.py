"""What a tile should cost: arithmetic against the vector units, bytes against the caches they come from, at the target's `rates`."""

from __future__ import annotations

from compiler.devices.cpu.target import CpuTarget

CALL_NS = 150.0
"""What a kernel costs beside its work."""


def read_rate(footprint: int, target: CpuTarget) -> float:
    """Bytes per nanosecond at which one core reads, over and over, what takes `footprint` bytes in all: those of the level that holds it."""
    rates = target.rates
    levels = (
        (target.l1_bytes, rates.l1_per_ns),
        (target.l2_bytes, rates.l2_per_ns),
        (target.l3_bytes, rates.l3_per_ns),
    )
    return next((rate for size, rate in levels if footprint <= size), rates.memory_per_ns)
