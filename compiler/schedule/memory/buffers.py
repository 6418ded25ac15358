"""Storages placed in one arena: those that are never live at the same time share memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.accesses import written_over
from compiler.ir.plans.plan import Place, storage_users

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""


MOST_MOVED = 1.1
"""Times the arena as it is, within which a mover may move storages."""


@dataclass
class Tenant:
    """Storages that lie on one another by in-place aliasing, with the calls that use them."""

    storages: list[int]
    bytes: int
    users: set[int]


@dataclass(frozen=True)
class Lease:
    """Bytes of the arena for as long as the calls `users` (bits) may run.

    `ended` are the calls that have ended when any of these begins.
    """

    at: int
    bytes: int
    users: int
    ended: int

    @staticmethod
    def of(tenant: Tenant, ended: Sequence[int]) -> Lease:
        """One that lies nowhere in particular yet."""
        users = sum(1 << call for call in tenant.users)
        return Lease(0, tenant.bytes, users, reduce(and_, (ended[call] for call in tenant.users)))

    def excludes(self, other: Lease) -> bool:
        """Whether both may be held at one time."""
        return bool(self.users & ~other.ended and other.users & ~self.ended)

    def lowest(self, held: Iterable[Lease]) -> Lease:
        """At the lowest bytes that are free of all that are held meanwhile."""
        at = 0
        for other in sorted((one for one in held if self.excludes(one)), key=lambda one: one.at):
            if at + self.bytes <= other.at:
                break
            at = max(at, other.at + other.bytes)
        return replace(self, at=at)


Mover = Callable[[Sequence[Tenant], Sequence[Lease], int], list[Lease]]
"""Moves leases, of tenants in the same order, within so many bytes; those that exclude each other stay apart."""


@dataclass(frozen=True)
class Arena:
    """Where every storage lies.

    `fixed` are the places of those outside of the arena; `sizes` are bytes, by storage; leases are in the order of
    tenants.
    """

    tenants: Sequence[Tenant]
    leases: Sequence[Lease]
    fixed: Mapping[int, Place]
    sizes: Mapping[int, int]

    @property
    def bytes(self) -> int:
        """Bytes of the arena, a multiple of ALIGNMENT."""
        return -(-self._end // ALIGNMENT) * ALIGNMENT

    @property
    def places(self) -> Mapping[int, Place]:
        """The place of every storage: in the arena, or fixed."""
        return {**self.fixed} | {
            storage: Place("arena", lease.at, self.sizes[storage])
            for tenant, lease in zip(self.tenants, self.leases, strict=True)
            for storage in tenant.storages
        }

    def moved(self, mover: Mover) -> Arena:
        """With storages elsewhere in an arena at most MOST_MOVED times as large."""
        return replace(self, leases=mover(self.tenants, self.leases, int(MOST_MOVED * self._end)))

    @property
    def _end(self) -> int:
        return max((lease.at + lease.bytes for lease in self.leases), default=0)


def laid_out(
    kernels: KernelGraph, ended: Sequence[int] | None = None, long_ended: Sequence[int] | None = None
) -> Arena:
    """A place for every storage.

    `ended` says for each call, as bits, which calls have ended when it begins (default: all those listed before it);
    `long_ended`, which so long ago that no call waits for them any more (default: the same). Two storages may share
    memory where all users of one have ended long before the users of the other begin, or where a call writes one over
    the other, the other users of which have ended. Largest first, each at the lowest offset that is free (greedy by
    size; Pisarchyk and Lee, 2020, section 5.2).
    """
    ended = ended if ended is not None else [(1 << call) - 1 for call in range(len(kernels.calls))]
    long_ended = long_ended if long_ended is not None else ended
    sizes = kernels.storage_bytes
    fixed = _fixed(kernels, sizes)
    users = storage_users(kernels)
    tenants = _tenants(kernels, {s: n for s, n in sizes.items() if s not in fixed and s in users}, users, ended)
    tenants.sort(key=lambda one: (-one.bytes, min(one.users)))
    leases: list[Lease] = []
    for tenant in tenants:
        leases.append(Lease.of(tenant, long_ended).lowest(leases))
    return Arena(tenants, leases, fixed, sizes)


def place_buffers(
    kernels: KernelGraph, ended: Sequence[int] | None = None, long_ended: Sequence[int] | None = None
) -> tuple[Mapping[int, Place], int]:
    """The places of `laid_out`, and the arena's bytes."""
    arena = laid_out(kernels, ended, long_ended)
    return arena.places, arena.bytes


def _fixed(kernels: KernelGraph, sizes: Mapping[int, int]) -> dict[int, Place]:
    """Places of inputs, outputs and constants: they are not in the arena."""
    places = {kernels.buffers[value].storage: Place("constant", 0, sizes[value]) for value in kernels.constants}
    places |= {
        value: Place("input", at, sizes[value]) for at, value in enumerate(kernels.inputs) if value not in places
    }
    places |= {value: Place("output", at, sizes[value]) for at, value in enumerate(kernels.outputs)}
    return places


def _tenants(
    kernels: KernelGraph, sizes: Mapping[int, int], users: Mapping[int, Sequence[int]], ended: Sequence[int]
) -> list[Tenant]:
    """Storages joined where a call may write its output over an input that nothing else uses at that time or later."""
    tenant_of = {s: Tenant([s], -(-size // ALIGNMENT) * ALIGNMENT, {*users[s]}) for s, size in sizes.items()}
    for position in range(len(kernels.calls)):
        taken: set[int] = set()
        for new, old in written_over(kernels, position):
            if new not in sizes or old not in sizes or new in taken or old in taken or sizes[new] != sizes[old]:
                continue
            young, aged = tenant_of[new], tenant_of[old]
            first = young.users == {*users[new]} and min(young.users) == position
            if young is not aged and first and _follows(young.users, aged.users - {position}, ended):
                aged.storages += young.storages
                aged.users |= young.users
                for storage in young.storages:
                    tenant_of[storage] = aged
                taken |= {new, old}
    return list({id(tenant): tenant for tenant in tenant_of.values()}.values())


def _follows(users: Iterable[int], earlier: Iterable[int], ended: Sequence[int]) -> bool:
    """Whether all of some calls have ended when any of others begins."""
    bits = sum(1 << call for call in earlier)
    return all(ended[user] & bits == bits for user in users)
