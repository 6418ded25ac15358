"""Storages placed in one arena: those that are never live at the same time share memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.ir.buffers import KernelGraph
from compiler.ir.plan import Place

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""


@dataclass
class _Tenant:
    """Storages that lie on one another by in-place aliasing, with the calls between which the memory is in use."""

    storages: list[int]
    bytes: int
    first: int
    last: int


def place_buffers(kernels: KernelGraph, order: Mapping[int, int] | None = None) -> tuple[Mapping[int, Place], int]:
    """A place for every storage and the arena's bytes.

    `order` maps calls to their position in time (default: as listed, one after another). Largest first, each at the lowest
    offset free over its lifetime (greedy by size; Pisarchyk and Lee, 2020, section 5.2).
    """
    when = order or {call: call for call in range(len(kernels.calls))}
    sizes = _sizes(kernels)
    fixed = _fixed(kernels, sizes)
    lives = _lifetimes(kernels, when)
    tenants = _tenants(kernels, {s: n for s, n in sizes.items() if s not in fixed and s in lives}, lives)
    placed: list[tuple[int, _Tenant]] = []
    for tenant in sorted(tenants, key=lambda one: (-one.bytes, one.first)):
        placed.append((_lowest(tenant, placed), tenant))
    arena = max((at + tenant.bytes for at, tenant in placed), default=0)
    places = dict(fixed)
    for at, tenant in placed:
        places |= {storage: Place("arena", at, sizes[storage]) for storage in tenant.storages}
    return places, -(-arena // ALIGNMENT) * ALIGNMENT


def _sizes(kernels: KernelGraph) -> dict[int, int]:
    """Bytes of each storage: up to the end of the last buffer in it."""
    sizes: dict[int, int] = {}
    for buffer in kernels.buffers.values():
        sizes[buffer.storage] = max(sizes.get(buffer.storage, 0), buffer.span * buffer.dtype.bytes)
    return sizes


def _fixed(kernels: KernelGraph, sizes: Mapping[int, int]) -> dict[int, Place]:
    """Places of inputs, outputs and constants: they are not in the arena."""
    places = {kernels.buffers[value].storage: Place("constant", 0, sizes[value]) for value in kernels.constants}
    places |= {
        value: Place("input", at, sizes[value]) for at, value in enumerate(kernels.inputs) if value not in places
    }
    places |= {value: Place("output", at, sizes[value]) for at, value in enumerate(kernels.outputs)}
    return places


def _lifetimes(kernels: KernelGraph, when: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    lives: dict[int, tuple[int, int]] = {}
    for position, call in enumerate(kernels.calls):
        for buffer in (*call.inputs, *call.outputs):
            storage, now = kernels.buffers[buffer].storage, when[position]
            first, last = lives.get(storage, (now, now))
            lives[storage] = (min(first, now), max(last, now))
    return lives


def _tenants(kernels: KernelGraph, sizes: Mapping[int, int], lives: Mapping[int, tuple[int, int]]) -> list[_Tenant]:
    """Storages joined where a call may write its output over an input that dies there."""
    tenant_of = {s: _Tenant([s], -(-size // ALIGNMENT) * ALIGNMENT, *lives[s]) for s, size in sizes.items()}
    for call in kernels.calls:
        taken: set[int] = set()
        for out, into in call.in_place:
            new, old = kernels.buffers[call.outputs[out]].storage, kernels.buffers[call.inputs[into]].storage
            if new not in sizes or old not in sizes or new in taken or old in taken or sizes[new] != sizes[old]:
                continue
            young, aged = tenant_of[new], tenant_of[old]
            if young is not aged and young.first == aged.last and lives[new][0] == lives[old][1]:
                aged.storages += young.storages
                aged.last = young.last
                for storage in young.storages:
                    tenant_of[storage] = aged
                taken |= {new, old}
    return list({id(tenant): tenant for tenant in tenant_of.values()}.values())


def _lowest(tenant: _Tenant, placed: list[tuple[int, _Tenant]]) -> int:
    at = 0
    neighbours = [
        (start, other) for start, other in placed if not (other.last < tenant.first or tenant.last < other.first)
    ]
    for start, other in sorted(neighbours, key=lambda entry: entry[0]):
        if at + tenant.bytes <= start:
            break
        at = max(at, start + other.bytes)
    return at
