"""State spaces and the generic addresses of what lies in them.

Source: "PTX ISA", "State Spaces" and "Generic Addressing". Where the windows of shared and local memory and of
parameters lie among generic addresses, the manual leaves open; here are numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.ptx.clocks import Accesses, Clocks
from tests.ptx.fault import Fault

SHARED, LOCAL, PARAMETERS, GLOBAL = 0x1_0000_0000, 0x2_0000_0000, 0x3_0000_0000, 0x7000_0000_0000
WINDOW_BITS = 24
"""Of the address of a block's shared memory; above them stands the block's rank in its cluster, and one."""
WINDOW = 1 << WINDOW_BITS
POISON = 0xFF
"""Every byte that nobody has written: NaN as any float."""
ALIGNMENT = 256
"""Of what is allocated; as many bytes behind it belong to nobody."""


class GlobalMemory:
    """Device memory, of which only what is allocated may be touched."""

    def __init__(self, size: int) -> None:
        self.octets = np.zeros(size, np.uint8)
        self.mine = np.zeros(size, bool)
        self.top = ALIGNMENT

    def allocate(self, size: int) -> int:
        """The address of fresh memory full of POISON. Raises Fault where there is no more."""
        at = -(-self.top // ALIGNMENT) * ALIGNMENT
        if at + size + ALIGNMENT > self.octets.size:
            raise Fault("memory", f"no {size} bytes are left of {self.octets.size}")
        self.octets[at : at + size], self.mine[at : at + size] = POISON, True
        self.top = at + size + ALIGNMENT
        return GLOBAL + at

    def release_to(self, top: int) -> None:
        """Everything that was allocated since `top` is free again."""
        self.mine[top : self.top] = False
        self.top = top

    def put(self, address: int, octets: np.ndarray) -> None:
        at = address - GLOBAL
        self.octets[at : at + octets.size] = octets

    def get(self, address: int, size: int) -> np.ndarray:
        at = address - GLOBAL
        return self.octets[at : at + size].copy()

    def places(self, addresses: np.ndarray, size: int) -> np.ndarray:
        """Positions of the `size` bytes at each address. Raises Fault: out-of-bounds."""
        at = addresses - GLOBAL
        inside = (at >= 0) & (at + size <= self.octets.size)
        if inside.all():
            places: np.ndarray = at[:, None] + np.arange(size)
            owned = self.mine[places].all(axis=1)
            if owned.all():
                return places
            inside = owned
        raise Fault("out-of-bounds", f"{size} bytes at {int(addresses[~inside][0]):#x} of global memory")


class SharedMemory:
    """Of all resident blocks: `size` bytes each. Addresses have the rank of a block in its cluster (WINDOW_BITS)."""

    def __init__(self, blocks: int, ranks: int, size: int, grain: int, clocks: Clocks | None) -> None:
        self.size, self.ranks, self.grain = -(-size // 16) * 16, ranks, grain
        self.octets = np.full(blocks * self.size, POISON, np.uint8)
        self.accesses = Accesses(blocks * self.size // grain, clocks)

    def places(self, clusters: np.ndarray, addresses: np.ndarray, size: int) -> np.ndarray:
        """Positions of the `size` bytes at each address, seen from each cluster. Raises Fault: out-of-bounds."""
        rank, offset = (addresses >> WINDOW_BITS) - 1, addresses & (WINDOW - 1)
        wrong = (rank < 0) | (rank >= self.ranks) | (offset + size > self.size)
        if wrong.any():
            raise Fault("out-of-bounds", f"{size} bytes at {int(addresses[wrong][0]):#x} of {self.size} shared ones")
        found: np.ndarray = ((clusters * self.ranks + rank) * self.size + offset)[:, None] + np.arange(size)
        return found

    def grains(self, places: np.ndarray) -> np.ndarray:
        """Of the accesses to rows of neighbouring bytes."""
        return places[:, :: self.grain] // self.grain if self.grain > 1 else places


@dataclass
class LocalMemory:
    """Of each thread: its variables, and parameters of the calls that it makes."""

    octets: np.ndarray

    def places(self, addresses: np.ndarray, size: int) -> np.ndarray:
        """Raises Fault: out-of-bounds."""
        if ((addresses < 0) | (addresses + size > self.octets.shape[1])).any():
            raise Fault("out-of-bounds", f"{size} bytes of local memory")
        found: np.ndarray = addresses[:, None] + np.arange(size)
        return found


def aligned(addresses: np.ndarray, size: int) -> None:
    """Raises Fault: misaligned, where an address is no multiple of `size`."""
    wrong = addresses % size != 0
    if wrong.any():
        raise Fault("misaligned", f"{int(addresses[wrong][0]):#x} is no multiple of {size}")
