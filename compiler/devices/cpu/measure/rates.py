"""How fast this machine's cores compute and read: measured once, kept as records, never guessed from a model name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import numpy as np

from compiler.devices.cpu.measure.timer import Timer
from compiler.devices.cpu.rates import Rates
from compiler.devices.cpu.target import CpuTarget
from compiler.ir.machine import Record
from compiler.knowledge.kinds import MACHINE
from compiler.knowledge.making import machine_record
from compiler.knowledge.records import Records
from compiler.measure.memory import PAGE, allocate
from compiler.measure.spread import Spread

SAMPLES = 7
SAMPLE_BYTES = 4 * 1024**2
"""A region is read over and over until so much was read."""
MOST_BYTES = 256 * 1024**2
"""Of memory taken to see how fast it is, on machines with a huge third-level cache."""

_NS = 1e-9


@dataclass(frozen=True)
class _Fact:
    """A field of Rates: a region of how many bytes is read by each lane, if any; by one lane or all."""

    bytes: int
    lanes: int
    about: str


DOT, DOT_FACT = "bf16_dot", _Fact(0, 1, "one dot product of bf16 pairs for a vector, one core at nothing else")


def measure_rates(library: bytes, target: CpuTarget) -> list[Record]:
    """One record for each field of `Rates`, and of a target with dot products of bf16 one of these.

    `workload` is the field, `seconds` those of one unit on one core, `threads` how many cores were measured together.

    `library` is TIMER_SOURCE, compiled for `target`. Takes about a fifth of a second, most of it for the system to map
    memory.
    """
    facts = _facts(target)
    memory = allocate(max(fact.bytes * fact.lanes for fact in facts.values()))
    with Timer(library) as timer:
        records = [_record(name, fact, _samples(timer, fact, memory, target), target) for name, fact in facts.items()]
        dots = [timer.probe_dot() for _ in range(SAMPLES)]
    return [*records, _record(DOT, DOT_FACT, dots, target)] if all(dots) else records


def rates_of(records: Sequence[Record], target: CpuTarget) -> tuple[Rates, list[Record]] | None:
    """Rates by records of this target and hardware, the last one of each field; with these records.

    None unless there is a record for every field.
    """
    found = {record.workload: record for record in Records.of(records).find(MACHINE, target) if record.seconds > 0}
    names = [field.name for field in fields(Rates) if field.name.endswith("_per_ns")]
    if not found.keys() >= set(names):
        return None
    rates: dict[str, Any] = {
        name: (found[name].threads if name.startswith("all_") else 1) * _NS / found[name].seconds for name in names
    }
    used = [found[name] for name in (*names, *({DOT} & found.keys()))]
    dots = found["fma_per_ns"].seconds / found[DOT].seconds if DOT in found else None
    return Rates(**rates, measured=True, dots_per_fma=dots), used


def _facts(target: CpuTarget) -> Mapping[str, _Fact]:
    """What is read for each rate: well within a level, and well beyond the one before it."""
    lanes = target.lanes
    l3 = max(min(8 * target.l2_bytes, target.l3_bytes // (2 * lanes)), 2 * target.l2_bytes)
    memory = max(min(2 * target.l3_bytes, MOST_BYTES), 2 * l3)
    return MappingProxyType(
        {
            "fma_per_ns": _Fact(0, 1, "one fp32 multiply-add of a vector, one core at nothing else"),
            "l1_per_ns": _Fact(_pages(3 * target.l1_bytes // 4), 1, "one byte read from L1"),
            "l2_per_ns": _Fact(_pages(target.l2_bytes // 2), 1, "one byte read from L2"),
            "l3_per_ns": _Fact(_pages(l3), 1, "one byte read from L3"),
            "memory_per_ns": _Fact(_pages(memory), 1, "one byte read from memory"),
            "all_l3_per_ns": _Fact(_pages(l3), lanes, "one byte read from L3 by each core, all at it"),
            "all_memory_per_ns": _Fact(
                _pages(memory // lanes), lanes, "one byte read from memory by each core, all at it"
            ),
        }
    )


def _pages(count: int) -> int:
    return max(count // PAGE, 1) * PAGE


def _samples(timer: Timer, fact: _Fact, memory: np.ndarray, target: CpuTarget) -> Sequence[float]:
    """Units per second, as often as wanted."""
    if not fact.bytes:
        return [timer.probe(fact.lanes) / (2 * target.vector_floats) for _ in range(SAMPLES)]
    repeats = max(SAMPLE_BYTES // fact.bytes, 1)
    return [timer.read_rate(memory.ctypes.data, fact.bytes, repeats, fact.lanes) for _ in range(SAMPLES)]


def _record(name: str, fact: _Fact, rates: Sequence[float], target: CpuTarget) -> Record:
    spread = Spread.of([1 / rate for rate in rates])
    about = fact.about + (f", each over {fact.bytes} bytes" if fact.bytes else "")
    return machine_record(name, about, target, spread, fact.lanes)
