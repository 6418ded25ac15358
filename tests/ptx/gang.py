"""Blocks that are resident at a time, whose threads are carried out together where they are at the same instruction.

Threads of all blocks are numbered through, and registers are arrays over them. Of those that can go on, the ones at the
lowest instruction do: threads that parted meet again where their ways join. Threads that spin go on when no other can,
and copies and products that are under way end when somebody waits for them, which is the latest moment that the manual
allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import numpy as np

from tests.ptx.barriers import BlockBarriers, ClusterBarriers, Mbarriers
from tests.ptx.clocks import WARP, Clocks, Words
from tests.ptx.copies import Groups
from tests.ptx.fault import Fault
from tests.ptx.memory import LOCAL, PARAMETERS, POISON, SHARED, GlobalMemory, LocalMemory, SharedMemory, aligned
from tests.ptx.parse import BYTES
from tests.ptx.values import UNSIGNED

RUN, WAIT, SPIN, ENDED = range(4)
"""States of a thread: it can go on, waits for others, looks again when no other thread can go on, has ended."""
FAR = np.iinfo(np.int64).max
PATIENCE = 200
"""Rounds of threads that spin in which nothing happens, before that is a deadlock."""
DEEPEST = 16
"""Calls of functions within each other."""

Lanes = np.ndarray | slice
"""Which threads: their numbers, or all."""
Step = Callable[["Gang", Lanes], None]
Control = Callable[["Gang", np.ndarray, int], None]


@dataclass(frozen=True)
class Code:
    """A kernel with all that it calls, ready to run: for each instruction a step, or what steers threads.

    `registers` are the types of all registers, `local_bytes` what a thread has of local memory, `grain` the least
    number of bytes that an access to shared memory has, `shared` where the variables in shared memory lie.
    """

    steps: tuple[Step | None, ...]
    controls: tuple[Control | None, ...]
    texts: tuple[str, ...]
    registers: tuple[str, ...]
    local_bytes: int
    grain: int
    shared: dict[str, int]
    static_bytes: int


@dataclass(frozen=True)
class Launch:
    """What a kernel is started with. `parameters` are the bytes of its arguments, `cluster` blocks of a cluster."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    parameters: np.ndarray
    shared_bytes: int
    cluster: int
    maps: dict[bytes, object] = field(default_factory=dict)
    """Tensor maps, by the first bytes of what stands for them among the parameters."""
    races: bool = True
    between: bool = False
    """Whether accesses to global memory are checked too, between blocks that are resident together."""


class Gang:
    """Clusters `first` to before `past` of a launch."""

    def __init__(self, code: Code, launch: Launch, memory: GlobalMemory, first: int, past: int) -> None:
        self.code, self.launch, self.memory = code, launch, memory
        self.block_threads = prod(launch.block)
        self.cluster_threads = self.block_threads * launch.cluster
        self.blocks = (past - first) * launch.cluster
        self.count = self.blocks * self.block_threads
        self.ids = np.arange(self.count)
        self.cluster = self.ids // self.cluster_threads
        self.block = self.ids // self.block_threads
        self.thread = self.ids % self.block_threads
        self.lane = self.thread % WARP
        self.warps = -(-self.block_threads // WARP)
        self.warp = self.block * self.warps + self.thread // WARP
        self.rank = self.block % launch.cluster
        self.number = self.block + first * launch.cluster
        clusters, each = (1, self.count) if launch.between else (past - first, self.cluster_threads)
        self.clocks = Clocks(clusters, each) if launch.races else None
        self.words: Words | None = None
        if launch.between and self.clocks is not None:
            self.words = Words(memory.top, self.clocks, self.block_threads)
        size = code.static_bytes + launch.shared_bytes
        self.shared = SharedMemory(self.blocks, launch.cluster, size, code.grain, self.clocks)
        self.local = LocalMemory(np.full((self.count, max(code.local_bytes, 1)), POISON, np.uint8))
        self.registers: list[np.ndarray] = [self._fresh(kind) for kind in code.registers]
        self.at, self.state = np.zeros(self.count, np.int64), np.full(self.count, RUN, np.int8)
        self.returns, self.depth = np.zeros((self.count, DEEPEST), np.int64), np.zeros(self.count, np.int64)
        self.block_barriers, self.cluster_barriers = BlockBarriers(self), ClusterBarriers(self)
        self.mbarriers, self.groups = Mbarriers(self), Groups(self)
        self.groups_of: dict[int, np.ndarray] = {}
        self.events = self.steps = 0

    def _fresh(self, kind: str) -> np.ndarray:
        """A register before anything was written to it."""
        if kind == "pred":
            return np.zeros(self.count, bool)
        width = UNSIGNED[BYTES[kind]]
        return np.full(self.count, np.iinfo(width).max - 0x5A, width)

    def of(self, lanes: Lanes) -> np.ndarray:
        """Numbers of threads."""
        return self.ids if isinstance(lanes, slice) else lanes

    def run(self) -> None:
        """Until all threads have ended. Raises Fault."""
        idle = 0
        while True:
            ready = np.flatnonzero(self.state == RUN)
            if ready.size:
                self._go(ready)
                continue
            spinning = self.state == SPIN
            if not spinning.any():
                if (self.state == ENDED).all():
                    self.groups.land_all()
                    return
                self._stuck()
            idle = 0 if self.events else idle + 1
            if idle > PATIENCE:
                self._stuck()
            self.events = 0
            self.state[spinning] = RUN

    def _go(self, ready: np.ndarray) -> None:
        """The threads at the lowest instruction go on until one that steers, or until others are to go with them."""
        places = self.at[ready]
        at = int(places.min())
        here = places == at
        ids = ready[here]
        others = places[~here]
        stop = int(others.min()) if others.size else FAR
        lanes: Lanes = slice(None) if ids.size == self.count else ids
        steps, code = self.code.steps, self.code
        try:
            while True:
                step = steps[at]
                self.steps += 1
                if step is None:
                    self.at[ids] = at
                    control = code.controls[at]
                    assert control is not None
                    control(self, ids, at)
                    return
                step(self, lanes)
                at += 1
                if at >= stop:
                    self.at[ids] = at
                    return
        except Fault as fault:
            if " at `" in str(fault):
                raise
            where = f"block {self.number[ids[0]]}, thread {self.thread[ids[0]]} and others"
            raise Fault(fault.kind, f"{str(fault).partition(': ')[2]} at `{code.texts[at]}`, {where}") from fault

    def _stuck(self) -> None:
        """Raises Fault: divergence where a warp waits for lanes of its own, else deadlock."""
        live = self.ids[self.state != ENDED]
        one = live[0]
        told = ", ".join(
            f"{np.count_nonzero(self.at[live] == at)} threads at `{self.code.texts[at]}`"
            for at in np.unique(self.at[live])[:4]
        )
        apart = any(
            np.unique(self.at[(self.warp == warp) & (self.state == WAIT)]).size > 1
            or (self.state[self.warp == warp] == ENDED).any()
            for warp in np.unique(self.warp[live])
        )
        raise Fault("divergence" if apart else "deadlock", f"{told}; the first in block {self.number[one]}")

    # What instructions ask for.

    def load(self, space: str, lanes: Lanes, addresses: np.ndarray, size: int) -> np.ndarray:
        """`size` bytes at each address, as rows. Raises Fault."""
        aligned(addresses, size)
        return self.fetch(space, self.of(lanes), addresses, size)

    def fetch(self, space: str, ids: np.ndarray, addresses: np.ndarray, size: int) -> np.ndarray:
        """The same at any address."""
        found: np.ndarray
        if space == "shared":
            places = self.shared.places(self.cluster[ids], addresses, size)
            self.shared.accesses.read(ids, self.shared.grains(places))
            found = self.shared.octets[places]
            return found
        if space in ("global", "const"):
            places = self.memory.places(addresses, size)
            if self.words is not None:
                self.words.read(ids, places)
            found = self.memory.octets[places]
            return found
        if space == "local":
            found = self.local.octets[ids[:, None], self.local.places(addresses, size)]
            return found
        if space == "param":
            found = self.launch.parameters[addresses[:, None] - PARAMETERS + np.arange(size)]
            return found
        found = np.empty((ids.size, size), np.uint8)
        for one, mine, base in self.windows(addresses):
            found[mine] = self.fetch(one, ids[mine], addresses[mine] - base, size)
        return found

    def look(self, lanes: Lanes, addresses: np.ndarray, size: int) -> np.ndarray:
        """A strong load of global memory, which races with no atomic operation. Raises Fault."""
        aligned(addresses, size)
        found: np.ndarray = self.memory.octets[self.memory.places(addresses, size)]
        return found

    def store(self, space: str, lanes: Lanes, addresses: np.ndarray, octets: np.ndarray) -> None:
        """Rows of bytes to each address. Raises Fault."""
        aligned(addresses, octets.shape[1])
        self.put(space, self.of(lanes), addresses, octets)

    def put(self, space: str, ids: np.ndarray, addresses: np.ndarray, octets: np.ndarray) -> None:
        """The same at any address."""
        size = octets.shape[1]
        self.events += 1
        if space == "shared":
            places = self.shared.places(self.cluster[ids], addresses, size)
            self.shared.accesses.write(ids, self.shared.grains(places))
            self.shared.octets[places] = octets
        elif space == "global":
            places = self.memory.places(addresses, size)
            if self.words is not None:
                self.words.write(ids, places)
            self.memory.octets[places] = octets
        elif space == "local":
            self.local.octets[ids[:, None], self.local.places(addresses, size)] = octets
        elif space == "generic":
            for one, mine, base in self.windows(addresses):
                self.put(one, ids[mine], addresses[mine] - base, octets[mine])
        else:
            raise Fault("out-of-bounds", f"nothing is stored in {space}")

    def windows(self, addresses: np.ndarray) -> list[tuple[str, np.ndarray, int]]:
        """State spaces of generic addresses: which of them lie there, and what is taken from these."""
        found = [
            ("shared", (addresses >= SHARED) & (addresses < LOCAL), SHARED),
            ("local", (addresses >= LOCAL) & (addresses < PARAMETERS), LOCAL),
            ("param", (addresses >= PARAMETERS) & (addresses < PARAMETERS + LOCAL), 0),
        ]
        found.append(("global", ~(found[0][1] | found[1][1] | found[2][1]), 0))
        return [(space, np.flatnonzero(mine), base) for space, mine, base in found if mine.any()]

    def gathered(self, ids: np.ndarray, at: int, size: int) -> list[np.ndarray]:
        """Threads wait until all of their group of `size` neighbours in the block are at this instruction.

        Groups that are whole, as rows of matrices; their threads can go on behind the instruction.
        """
        self.state[ids] = WAIT
        key = self.group_of(size)
        waiting = self.ids[(self.state == WAIT) & (self.at == at)]
        whole = np.bincount(key[waiting], minlength=key[-1] + 1) == np.bincount(key)
        members = waiting[whole[key[waiting]]]
        if not members.size:
            return []
        self.go_on(members, at)
        sizes = np.bincount(key)[key[members]]
        return [members[sizes == one].reshape(-1, one) for one in np.unique(sizes)]

    def group_of(self, size: int) -> np.ndarray:
        """The group of `size` neighbours in its block of each thread."""
        if size not in self.groups_of:
            self.groups_of[size] = self.block * -(-self.block_threads // size) + self.thread // size
        return self.groups_of[size]

    def go_on(self, ids: np.ndarray, at: int) -> None:
        """Threads that have waited at an instruction go on behind it."""
        self.state[ids], self.at[ids] = RUN, at + 1
        self.events += 1
