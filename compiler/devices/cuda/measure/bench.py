"""Built kernels on a GPU, each as a graph of launches that is timed by events.

It runs in a process of its own (`apart`), which a kernel that faults or hangs may take with it.

One sample is one graph of a kernel's launches in a chain, as kernels follow each other in a model's graph: what it
costs to start a kernel that depends on another is part of it. A graph is launched twice, and the second launch timed:
while the first runs, the second is already waiting, and activations lie in L2 where a producer leaves them. Where
constants are to be found in memory, the launches of a graph take them from different places, which together exceed L2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from compiler.devices.cuda.measure.driver import Device, DriverError, Graph, Launch, Memory, bus_id
from compiler.devices.cuda.measure.nvml import Clock, Sensors, sensors
from compiler.ir.packing import Steered
from compiler.ir.tensor import DType
from compiler.measure.pattern import PATTERN, pattern

ALIGNMENT = 256
"""Bytes; what the driver's own allocations and a model's storages keep to."""
MOST_LAUNCHES = 2048
"""In one graph, and so copies of rotating operands. What is smaller than a two-thousandth of the memory to be filled
stays in L2 all the same."""
FEW_LAUNCHES = 8
"""In the graph that tells how long a launch takes."""
FORKS = 32
"""With their joins, in a graph that shows what they cost."""
ALTERNATIONS, ALTERNATED = 64, 15
"""Launches of a graph of kernels with different shared memory, and how often it is timed."""
DTYPES = frozenset(dtype.value for dtype in DType)


@dataclass(frozen=True)
class Operand:
    """Memory that one argument points to.

    rotates  each launch takes a copy of its own, as far as there are copies
    zero     its integers may be indices: all are 0
    steered  holds nothing but what its packing gives as a specimen
    """

    dtype: DType
    elements: int
    rotates: bool = False
    written: bool = False
    zero: bool = False
    steered: Steered | None = None

    @property
    def bytes(self) -> int:
        """Bytes of device memory, a multiple of the alignment."""
        return -(-self.dtype.bytes * self.elements // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Subject:
    """A kernel to be timed. Arguments: operands, then scratch and counters (32-bit, zero) where there are any.

    cold_bytes  what the copies of rotating operands fill together; 0: there is one
    sample_s    how long the launches of one graph shall last
    """

    image: bytes
    name: str
    grid: int
    block: int
    operands: tuple[Operand, ...]
    shared_bytes: int = 0
    scratch_bytes: int = 0
    counters: int = 0
    cluster: int = 1
    cold_bytes: int = 0
    sample_s: float = 200e-6

    @property
    def copies(self) -> int:
        """Of its rotating operands."""
        rotating = sum(operand.bytes for operand in self.operands if operand.rotates)
        return min(max(1, math.ceil(self.cold_bytes / rotating)), MOST_LAUNCHES) if rotating else 1


Slab = str | Steered
"""What is in memory that subjects share: elements of a type, zeros, anything; specimens of a packing."""


class Slabs:
    """Memory that all subjects share, by what is in it: random elements of a type, zeros, specimens, or anything.

    It grows, and is kept; specimens are kept until others are asked for.
    """

    def __init__(self, device: Device, seed: int) -> None:
        self._device, self._seed = device, seed
        self._slabs: dict[Slab, Memory] = {}

    def reserve(self, sizes: Mapping[Slab, int]) -> None:
        """Make every slab so large; addresses given out before count no more."""
        for specimen in [one for one in self._slabs if isinstance(one, Steered) and one not in sizes]:
            self._slabs.pop(specimen).close()
        for key, size in sizes.items():
            if key in self._slabs and self._slabs[key].size >= size:
                continue
            if key in self._slabs:
                self._slabs.pop(key).close()
            self._slabs[key] = self._device.allocate(max(size, ALIGNMENT))
            if isinstance(key, Steered):
                self._write(self._slabs[key], key.specimen())
            elif key in DTYPES:
                self._fill(self._slabs[key], DType(key))
            else:
                self._slabs[key].clear()

    def address(self, key: Slab) -> int:
        """The device address of a slab's first byte, until the next `reserve`."""
        return self._slabs[key].address

    def clear(self, key: str) -> None:
        """Zeros again."""
        self._slabs[key].clear()

    def close(self) -> None:
        """Gives all device memory back."""
        while self._slabs:
            self._slabs.popitem()[1].close()

    def _fill(self, memory: Memory, dtype: DType) -> None:
        elements = min(PATTERN, memory.size // dtype.bytes)
        drawn = pattern(dtype, np.random.default_rng(self._seed), zero=False)[:elements]
        memory.write(np.ascontiguousarray(drawn).view(np.uint8))
        memory.repeat(drawn.nbytes)

    @staticmethod
    def _write(memory: Memory, specimen: np.ndarray) -> None:
        """Copies of an operand's whole content, each aligned."""
        octets = np.ascontiguousarray(specimen).view(np.uint8).reshape(-1)
        aligned = np.zeros(-(-octets.size // ALIGNMENT) * ALIGNMENT, np.uint8)
        aligned[: octets.size] = octets
        memory.write(aligned)
        memory.repeat(aligned.size)


OUTPUTS, SCRATCH, ZEROS, COUNTERS = "outputs", "scratch", "zeros", "counters"


def slab_of(operand: Operand) -> Slab:
    """Which slab an operand lies in."""
    if operand.written:
        return OUTPUTS
    if operand.steered is not None:
        return operand.steered
    return ZEROS if operand.zero and operand.dtype.is_integer else operand.dtype.value


def places(subject: Subject) -> tuple[list[list[tuple[Slab, int]]], dict[Slab, int]]:
    """For each copy where every argument lies, as (slab, offset), and how large the slabs have to be."""
    used: dict[Slab, int] = {}
    first: list[tuple[Slab, int]] = []
    strides: list[int] = []
    sizes: list[tuple[Slab, int, bool]] = [
        (slab_of(operand), operand.bytes, operand.rotates) for operand in subject.operands
    ]
    sizes += [(SCRATCH, -(-subject.scratch_bytes // ALIGNMENT) * ALIGNMENT, False)] * (subject.scratch_bytes > 0)
    sizes += [(COUNTERS, 4 * subject.counters, False)] * (subject.counters > 0)
    for slab, size, rotates in sizes:
        first.append((slab, used.get(slab, 0)))
        strides.append(size if rotates else 0)
        used[slab] = used.get(slab, 0) + size * (subject.copies if rotates else 1)
    copies = [
        [(slab, offset + copy * stride) for (slab, offset), stride in zip(first, strides, strict=True)]
        for copy in range(subject.copies)
    ]
    return copies, used


class Refused(Exception):
    """A subject that this device does not take: its code cannot be loaded, or it asks for more than there is."""


@dataclass
class _Placed:
    """A subject ready to be sampled."""

    graph: Graph
    launches: int


class Bench:
    """One GPU and the subjects on it: `with Bench(index, seed) as bench:`."""

    def __init__(self, index: int, seed: int) -> None:
        self._index, self._seed = index, seed

    def __enter__(self) -> Bench:
        with ExitStack() as opening:
            self._device = opening.enter_context(Device(self._index))
            self._slabs = Slabs(self._device, self._seed)
            opening.callback(self._slabs.close)
            self._stream = opening.enter_context(self._device.stream())
            self._begin, self._end = (opening.enter_context(self._device.event()) for _ in range(2))
            self._sensors: Sensors | None = opening.enter_context(sensors(bus_id(self._index) or self._index))
            self._placed: dict[int, _Placed] = {}
            self._loaded = opening.enter_context(ExitStack())
            self._early = self._device.capability >= (9, 0)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *reason: object) -> None:
        self._open.close()

    def reserve(self, subjects: Sequence[Subject]) -> None:
        """Forget all subjects, and have memory for these. Raises Refused where it does not suffice."""
        self._placed.clear()
        self._loaded.close()
        needed: dict[Slab, int] = {}
        for subject in subjects:
            for slab, size in places(subject)[1].items():
                needed[slab] = max(needed.get(slab, 0), size)
        try:
            self._slabs.reserve(needed)
        except DriverError as error:
            if error.loses_context:
                raise
            raise Refused(str(error)) from error

    def place(self, at: int, subject: Subject) -> None:
        """Load a subject, run it, and make the graph that is timed.

        Raises Refused, and DriverError where the context is lost.
        """
        try:
            module = self._loaded.enter_context(self._device.module(subject.image))
            function = module.function(subject.name, subject.shared_bytes)
            copies = [tuple(self._slabs.address(slab) + offset for slab, offset in copy) for copy in places(subject)[0]]
            if subject.counters:
                self._slabs.clear(COUNTERS)
            self._device.synchronize()  # the default stream filled the slabs
            with self._graph(subject, function, copies, FEW_LAUNCHES) as few:
                self._timed(few)
                once = self._timed(few) / FEW_LAUNCHES
            launches = min(max(math.ceil(subject.sample_s / max(once, 1e-9)), len(copies)), MOST_LAUNCHES)
            graph = self._loaded.enter_context(self._graph(subject, function, copies, launches))
        except DriverError as error:
            if error.loses_context:
                raise
            raise Refused(str(error)) from error
        self._placed[at] = _Placed(graph, launches)

    def compute(self, subject: Subject, operands: Sequence[tuple[np.ndarray, int]]) -> list[np.ndarray]:
        """What one launch leaves in the operands that are written; places and samples nothing.

        Operands are memories as bytes and where in them the kernel's pointer points; scratch holds anything. Raises
        Refused, and DriverError where the context is lost.
        """
        try:
            with ExitStack() as held:
                module = held.enter_context(self._device.module(subject.image))
                function = module.function(subject.name, subject.shared_bytes)
                memories = [held.enter_context(self._device.upload(array)) for array, _ in operands]
                pointers = [memory.address + begin for memory, (_, begin) in zip(memories, operands, strict=True)]
                if subject.scratch_bytes:
                    pointers.append(held.enter_context(self._device.allocate(subject.scratch_bytes)).address)
                if subject.counters:
                    counters = held.enter_context(self._device.upload(np.zeros(subject.counters, np.uint32)))
                    pointers.append(counters.address)
                self._device.synchronize()
                shape = subject.shared_bytes, subject.cluster
                self._stream.launch(Launch(function, subject.grid, subject.block, tuple(pointers), *shape))
                self._stream.synchronize()
                return [
                    memory.read(np.empty_like(array))
                    for memory, (array, _), operand in zip(memories, operands, subject.operands, strict=True)
                    if operand.written
                ]
        except DriverError as error:
            if error.loses_context:
                raise
            raise Refused(str(error)) from error

    def alternate(self, image: bytes, name: str, shared_bytes: Sequence[int], split: int | None) -> list[float]:
        """Seconds of a launch where one kernel is launched with so much shared memory in turn, one after another.

        It takes a pointer to a float, has one block of a warp and runs with `split` of L1 and shared memory; None: the
        driver chooses. Raises Refused, and DriverError where the context is lost.
        """
        try:
            with ExitStack() as held:
                module = held.enter_context(self._device.module(image))
                memory = held.enter_context(self._device.upload(np.zeros(1, np.float32)))
                function = module.function(name, max(shared_bytes), split)
                turns = [shared_bytes[turn % len(shared_bytes)] for turn in range(ALTERNATIONS)]
                launches = [Launch(function, 1, 32, (memory.address,), size) for size in turns]
                self._device.synchronize()
                graph = held.enter_context(self._device.chain(launches, early=self._early))
                self._timed(graph)
                return [self._timed(graph) / ALTERNATIONS for _ in range(ALTERNATED)]
        except DriverError as error:
            if error.loses_context:
                raise
            raise Refused(str(error)) from error

    def forks(self, image: bytes, name: str, width: int) -> list[float]:
        """Seconds of a fork into `width` launches with their join, where many of these follow each other.

        With a `width` of 1 these are two launches of a chain. The kernel takes a pointer to a float and has one block
        of a warp. Raises Refused, and DriverError where the context is lost.
        """
        after: list[Sequence[int]] = [()]
        for _ in range(FORKS):
            begins = len(after)
            after += [(begins - 1,)] * width
            after.append(range(begins, begins + width))
        try:
            with ExitStack() as held:
                function = held.enter_context(self._device.module(image)).function(name, 0)
                memory = held.enter_context(self._device.upload(np.zeros(len(after), np.float32)))
                launches = [Launch(function, 1, 32, (memory.address + 4 * at,), 0) for at in range(len(after))]
                self._device.synchronize()
                graph = held.enter_context(self._device.graph(launches, after, early=self._early))
                self._timed(graph)
                return [self._timed(graph) / FORKS for _ in range(ALTERNATED)]
        except DriverError as error:
            if error.loses_context:
                raise
            raise Refused(str(error)) from error

    def sample(self, at: int) -> float:
        """Seconds of one launch of a subject that was placed. Raises DriverError."""
        placed = self._placed[at]
        self._stream.run(placed.graph)
        return self._timed(placed.graph) / placed.launches

    def clock(self) -> Clock | None:
        """How fast the device runs now; None where nobody says."""
        return None if self._sensors is None else self._sensors.clock()

    def _graph(self, subject: Subject, function: int, copies: Sequence[tuple[int, ...]], launches: int) -> Graph:
        return self._device.chain(list(self._launches(subject, function, copies, launches)), early=self._early)

    @staticmethod
    def _launches(
        subject: Subject, function: int, copies: Sequence[tuple[int, ...]], launches: int
    ) -> Iterator[Launch]:
        shape = subject.shared_bytes, subject.cluster
        for turn in range(launches):
            yield Launch(function, subject.grid, subject.block, copies[turn % len(copies)], *shape)

    def _timed(self, graph: Graph) -> float:
        self._begin.record(self._stream)
        self._stream.run(graph)
        self._end.record(self._stream)
        self._end.synchronize()
        return self._end.since(self._begin)
