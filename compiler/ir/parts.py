"""Parts: a kernel graph divided among devices that share a memory, with several inferences (frames) in flight.

Each part is a program of its own. It runs for one frame after another, on its device, whenever what it waits for has
ended. What one part hands to another lies in an edge: so many slots of memory, of which frame f uses slot f mod slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from compiler.errors import VerifyError
from compiler.ir.accesses import Accesses
from compiler.ir.buffers import KernelGraph
from compiler.ir.plan import Order, Task, Wait
from compiler.ir.races import Step, verify_memory, verify_reads
from compiler.ir.tile import Tile

SLOTS = 2
"""Of an edge: one is written while the other one is read."""


@dataclass(frozen=True)
class After:
    """Holds a part back, for frame f, until another one has finished frame f - `frames`."""

    part: int
    frames: int

    def __str__(self) -> str:
        return f"part {self.part}" + (f" {self.frames} frames before" if self.frames else "")


@dataclass(frozen=True)
class Part:
    """The calls at these positions, in this order, on a device (a position in the devices of all parts)."""

    device: int
    calls: tuple[int, ...]
    after: tuple[After, ...] = ()

    def __str__(self) -> str:
        after = f" after {', '.join(map(str, self.after))}" if self.after else ""
        return f"device {self.device}: calls {', '.join(map(str, self.calls))}{after}"


@dataclass(frozen=True)
class Edge:
    """A storage that several parts touch: `bytes` of it, once for each of `slots` frames."""

    storage: int
    bytes: int
    slots: int = SLOTS


@dataclass(frozen=True)
class Operand:
    """What a part reads or writes that is not its own alone.

    `space` is `input` or `output` (a position in the model's), or `edge` (a position in the edges of all parts).
    """

    space: str
    at: int


@dataclass(frozen=True)
class Portion:
    """One part as a program: its kernel graph, whose inputs and outputs are these operands, in order."""

    kernels: KernelGraph
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]


@dataclass(frozen=True)
class Parts:
    """Parts in an order in which each comes after those that it reads from, and what lies between them.

    devices      their names
    edges        storages between parts that are neither inputs nor outputs of the model: those are the caller's, who
                 has others for each frame
    predicted_s  of one frame, from its beginning to its end
    period_s     predicted, from one frame's end to the next one's, with as many in flight as may be
    """

    devices: tuple[str, ...]
    parts: tuple[Part, ...]
    edges: tuple[Edge, ...]
    scheduler: str
    predicted_s: float = 0.0
    period_s: float = 0.0

    @property
    def frames(self) -> int:
        """In flight at most: as many as all slots can hold, and one for the caller to prepare."""
        return SLOTS * len(self.parts) + 1

    def verify(self, kernels: KernelGraph) -> None:
        """Raises VerifyError unless every call runs once, after what it reads, also with many frames in flight.

        What happens before what follows from `after` alone, and from each part's frames following each other: nothing
        is assumed of which device is faster. An edge's slot must not be written for one frame before all that touch it
        for an earlier one have ended.
        """
        self._verify_calls(kernels)
        self._verify_edges(kernels)
        steps = [*self._unrolled(kernels)]
        verify_reads(steps, kernels)
        verify_memory(steps, kernels, self._arena(kernels))

    def _verify_calls(self, kernels: KernelGraph) -> None:
        runs: dict[int, int] = {}
        for number, part in enumerate(self.parts):
            if not 0 <= part.device < len(self.devices):
                raise VerifyError(f"part {number} is on device {part.device} of {len(self.devices)}")
            for call in part.calls:
                if runs.setdefault(call, number) != number:
                    raise VerifyError(f"call {call} `{kernels.calls[call]}` is in parts {runs[call]} and {number}")
            for after in part.after:
                if not 0 <= after.part < len(self.parts) or (after.frames == 0 and after.part >= number):
                    raise VerifyError(f"part {number} waits for {after}, which may never come")
        if missing := sorted({*range(len(kernels.calls))} - runs.keys()):
            raise VerifyError(f"call {missing[0]} `{kernels.calls[missing[0]]}` is in no part")

    @property
    def _unrolled_frames(self) -> int:
        """So many that each slot is used again after it was, and every wait for an earlier frame is met."""
        slots = [edge.slots for edge in self.edges]
        return max([*slots, *(after.frames for part in self.parts for after in part.after), 1]) + 2

    def _unrolled(self, kernels: KernelGraph) -> Iterator[Step]:
        """Every call of several frames as a step, a lane for each part; storages are named apart for each frame."""
        tasks: list[tuple[int, Task]] = []
        for frame in range(self._unrolled_frames):
            for number, part in enumerate(self.parts):
                waits = tuple(
                    Wait(after.part, (frame - after.frames + 1) * len(self.parts[after.part].calls))
                    for after in part.after
                    if frame >= after.frames
                )
                for at, call in enumerate(part.calls):
                    tasks.append((frame, Task(call, number, 0, 1, () if at else waits)))
        order = Order([task for _, task in tasks], len(self.parts))
        accesses = Accesses(kernels)
        for (frame, task), number, begins in zip(tasks, order.numbers, order.begins, strict=True):
            touched = accesses.of(task.call, Tile(""), 0, 1)
            named = tuple(replace(one, storage=self._name(one.storage, frame)) for one in touched)
            yield Step(task.call, task.lane, number, begins, named)

    def _name(self, storage: int, frame: int) -> int:
        return storage * self._unrolled_frames + frame

    def _arena(self, kernels: KernelGraph) -> Mapping[int, tuple[int, int]]:
        """The bytes of every frame's storage of every edge. Raises VerifyError for one that is too small."""
        sizes: dict[int, int] = {}
        for buffer in kernels.buffers.values():
            sizes[buffer.storage] = max(sizes.get(buffer.storage, 0), buffer.span * buffer.dtype.bytes)
        found: dict[int, tuple[int, int]] = {}
        begin = 0
        for edge in self.edges:
            if edge.bytes < sizes.get(edge.storage, 0):
                raise VerifyError(
                    f"the edge of storage s{edge.storage} has {edge.bytes} bytes of {sizes[edge.storage]}"
                )
            for frame in range(self._unrolled_frames):
                at = begin + frame % edge.slots * edge.bytes
                found[self._name(edge.storage, frame)] = (at, at + edge.bytes)
            begin += edge.slots * edge.bytes
        return found

    def _verify_edges(self, kernels: KernelGraph) -> None:
        """Raises VerifyError for a storage that several parts touch and that is neither an edge nor the caller's."""
        own = {kernels.buffers[id].storage for id in (*kernels.inputs, *kernels.outputs, *kernels.constants)}
        own |= {edge.storage for edge in self.edges}
        first: dict[int, int] = {}
        for number, part in enumerate(self.parts):
            for call in part.calls:
                for id in (*kernels.calls[call].inputs, *kernels.calls[call].outputs):
                    storage = kernels.buffers[id].storage
                    if storage not in own and first.setdefault(storage, number) != number:
                        raise VerifyError(
                            f"storage s{storage} goes from part {first[storage]} to part {number}, and has no edge"
                        )

    def __str__(self) -> str:
        head = f"{self.scheduler}: {', '.join(self.devices)}; one frame {1e6 * self.predicted_s:.1f} us"
        lines = [f"{head}, one each {1e6 * self.period_s:.1f} us"]
        lines += [f"  part {number}: {part}" for number, part in enumerate(self.parts)]
        lines += [f"  edge s{edge.storage}: {edge.slots} slots of {edge.bytes} bytes" for edge in self.edges]
        return "\n".join(lines)
