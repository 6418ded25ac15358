"""What a tile should cost, at the target's `rates`.

Arithmetic is counted against the vector units, bytes against the caches they come from.
"""

from __future__ import annotations

from compiler.devices.cpu.target import CpuTarget

CALL_NS = 150.0
"""What a kernel costs beside its work."""
IN_FLIGHT = 8
"""Accumulators that keep two multiply-add units of latency 4 busy."""
STREAMING = 1.5
"""How much longer bytes of the second-level cache take in the midst of arithmetic than by themselves."""
EXP_NS = 3.0
"""One vector of scores of attention through the maps, the largest value and the exponential."""
STEP_COST = 2.0
"""What a row that is kept takes, beside a row of a dense panel: its place, and an element for fewer columns."""
PICK_COST, WINDOW_COST = 1.5, 1.5
"""What a step of picks takes beside it for each vector of a panel, and for each vector of its window besides.

Windows begin anywhere, so that most of their loads cross lines.
"""
PICK_BYTES = 1.25
"""What is read of it beside what is read of a dense row."""

WIDEN_COST = 2.0
"""What a vector of 24-bit numbers takes beside a row's multiply-adds: a shuffle, a conversion, and a load by itself."""
INT24_ERROR = 3e-7
"""Error of a product with 24-bit numbers, relative to its largest value.

It is what rounding to about 2^-21 of a usual element comes to.
"""


def widen_cost(target: CpuTarget) -> float:
    """What widening a vector of 24-bit numbers takes, in multiply-adds; nothing where caches are slower than it is."""
    return WIDEN_COST if target.vector_floats < 16 else 0.0


def pick_cost(window: int, panel: int, target: CpuTarget) -> float:
    """What a step of picks takes beside a row of a dense panel."""
    return PICK_COST + WINDOW_COST * -(-window // target.vector_floats) * target.vector_floats / panel


def read_rate(footprint: int, target: CpuTarget) -> float:
    """Bytes per nanosecond at which one core reads `footprint` bytes again and again.

    It is the rate of the cache level that holds them, or of memory.
    """
    rates = target.rates
    levels = (
        (target.l1_bytes, rates.l1_per_ns),
        (target.l2_bytes, rates.l2_per_ns),
        (target.l3_bytes, rates.l3_per_ns),
    )
    return next((rate for size, rate in levels if footprint <= size), rates.memory_per_ns)


def arrival_rate(octets: int, target: CpuTarget) -> float:
    """Bytes per nanosecond of so many bytes of constants that a kernel reads once in each run of a model.

    Beyond the second-level cache they come from where the model's constants stay from one run to the next.
    """
    rate = read_rate(octets, target)
    return min(rate, target.rates.weights_per_ns) if octets > target.l2_bytes else rate
