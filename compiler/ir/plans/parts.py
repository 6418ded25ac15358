"""Parts: a kernel graph divided among devices of one host, with several inferences (frames) in flight.

Each part is a program of its own. It runs for one frame after another, on its device, whenever what it waits for has
ended. What one part hands to another lies in an edge: so many slots of memory, of which frame f uses slot f mod slots.
Edges lie in the host's memory. A device with a memory of its own brings what a part reads there when the part begins,
and gives back what others read when it ends, each storage whole and once: the inputs and outputs of its program.
An output that is an input of the next frame lies in slots too, of which a part fills one by a copy when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.accesses import Access, Accesses
from compiler.ir.plans.plan import Order, Task, Wait
from compiler.ir.plans.races import Step, verify_memory, verify_reads
from compiler.ir.tile import Tile

SLOTS = 2
"""Of an edge between parts that do every frame: one is written while the other one is read."""
AHEAD_S = 1e-2
"""For how long replicas have work while the caller's thread waits for a core: some slices of the system's scheduler."""
MOST_FRAMES = 32
"""In flight for that: each has copies of the model's inputs."""


@dataclass(frozen=True)
class Turns:
    """Of every so many frames that follow each other, those that a part does: a replica of a stage does not do all."""

    every: int = 1
    own: tuple[int, ...] = (0,)

    @property
    def share(self) -> float:
        """Of all frames."""
        return len(self.own) / self.every

    def has(self, frame: int) -> bool:
        """Whether it is the turn of this part."""
        return frame % self.every in self.own

    def before(self, frame: int) -> int:
        """How many frames the part does before this one."""
        rounds, left = divmod(frame, self.every)
        return rounds * len(self.own) + sum(turn < left for turn in self.own)

    def meets(self, other: Turns, frames: int) -> bool:
        """Whether this part does a frame for which the other one has done that so many frames before."""
        return any(self.has(one) and other.has(one - frames) for one in range(lcm(self.every, other.every)))

    def __str__(self) -> str:
        return f"frames {', '.join(map(str, self.own))} of {self.every}"


@dataclass(frozen=True)
class After:
    """Holds a part back, for frame f, until another one has finished frame f - `frames`, if it does that one."""

    part: int
    frames: int

    def __str__(self) -> str:
        return f"part {self.part}" + (f" {self.frames} frames before" if self.frames else "")


@dataclass(frozen=True)
class Part:
    """The calls at these positions, in this order, on a device (a position in the devices of all parts).

    Replicas of a stage are parts with the same calls, of which each frame has its turn in one.
    """

    device: int
    calls: tuple[int, ...]
    after: tuple[After, ...] = ()
    turns: Turns = Turns()

    def __str__(self) -> str:
        after = f" after {', '.join(map(str, self.after))}" if self.after else ""
        turns = f", {self.turns}" if self.turns.every > 1 else ""
        return f"device {self.device}: calls {', '.join(map(str, self.calls))}{turns}{after}"


@dataclass(frozen=True)
class Edge:
    """A storage that several parts touch: `bytes` of it, once for each of `slots` frames."""

    storage: int
    bytes: int
    slots: int = SLOTS


@dataclass(frozen=True)
class State:
    """An output of the model that is an input of it in the next frame, by their positions.

    The last part that writes the output, in the order of parts, keeps it: when it ends it copies the output into a
    slot. Frame f finds the state in slot f mod `slots`, and frame 0 finds zeros.
    """

    output: int
    input: int
    slots: int = SLOTS


@dataclass(frozen=True)
class Operand:
    """What a part reads or writes that is not its own alone.

    `space` is `input` or `output` (a position in the model's), or `edge` (a position in the edges of all parts), or
    `state` (in the states of all parts).
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
    apart        the devices whose memory is not the host's
    states       what one frame hands to the next
    carried_s    predicted, the least from one frame's end to the next one's that states permit; 0 without any
    """

    devices: tuple[str, ...]
    parts: tuple[Part, ...]
    edges: tuple[Edge, ...]
    scheduler: str
    predicted_s: float = 0.0
    period_s: float = 0.0
    apart: tuple[int, ...] = ()
    states: tuple[State, ...] = ()
    carried_s: float = 0.0

    @property
    def frames(self) -> int:
        """In flight at most: two rounds of turns for each stage, and one frame for the caller to prepare.

        Replicas of the whole model, which wait for nothing but frames, have up to MOST_FRAMES if these take no longer
        than AHEAD_S by what is predicted. Stages wait for each other's slots, and more frames do not help them.
        """
        every = {part.calls: part.turns.every for part in self.parts}
        least = SLOTS * sum(every.values()) + 1
        if len(every) > 1 or not self.period_s:
            return least
        return max(least, int(min(MOST_FRAMES, AHEAD_S / self.period_s)))

    @property
    def unpredicted(self) -> Parts:
        """Without what was predicted of it: what is left says what is run."""
        return replace(self, predicted_s=0.0, period_s=0.0, carried_s=0.0)

    def is_like(self, other: Parts) -> bool:
        """Whether the same is run, whatever was predicted of it and whoever found it."""
        return replace(self.unpredicted, scheduler=other.scheduler) == other.unpredicted

    @property
    def round(self) -> int:
        """After so many frames the turns of all parts begin anew."""
        return lcm(*(part.turns.every for part in self.parts))

    def verify(self, kernels: KernelGraph) -> None:
        """Raises VerifyError unless every call runs once, after what it reads, also with many frames in flight.

        What happens before what follows from `after` alone, and from each part's frames following each other: nothing
        is assumed of which device is faster. A slot, of an edge or of a state, must not be written for one frame before
        all that touch it for an earlier one have ended. Who reads a state begins after the copy of the frame before.
        """
        self._verify_calls(kernels)
        self._verify_edges(kernels)
        self._verify_copies(kernels)
        self._verify_pairs(kernels)
        steps = [*self._unrolled(kernels)]
        verify_reads(steps, kernels)
        self._verify_states(steps, kernels)
        verify_memory(steps, kernels, self._arena(kernels))

    def _verify_calls(self, kernels: KernelGraph) -> None:
        runs: dict[int, int] = {}
        for number, part in enumerate(self.parts):
            if not 0 <= part.device < len(self.devices):
                raise VerifyError(f"part {number} is on device {part.device} of {len(self.devices)}")
            for call in part.calls:
                if self.parts[runs.setdefault(call, number)].calls != part.calls:
                    raise VerifyError(f"call {call} `{kernels.calls[call]}` is in parts {runs[call]} and {number}")
            for after in part.after:
                if not 0 <= after.part < len(self.parts) or (after.frames == 0 and after.part >= number):
                    raise VerifyError(f"part {number} waits for {after}, which may never come")
        if missing := sorted({*range(len(kernels.calls))} - runs.keys()):
            raise VerifyError(f"call {missing[0]} `{kernels.calls[missing[0]]}` is in no part")
        self._verify_turns()

    def _verify_turns(self) -> None:
        """Raises VerifyError unless each frame is done by one of the parts that have the same calls."""
        stages: dict[tuple[int, ...], list[int]] = {}
        for number, part in enumerate(self.parts):
            stages.setdefault(part.calls, []).append(number)
        for numbers in stages.values():
            turns = [self.parts[number].turns for number in numbers]
            said = f"parts {', '.join(map(str, numbers))} have the same calls"
            if len({one.every for one in turns}) > 1:
                raise VerifyError(f"{said}, and turns of rounds of unequal length")
            for frame in range(turns[0].every):
                if (done := sum(one.own.count(frame) for one in turns)) != 1:
                    raise VerifyError(f"{said}, and frame {frame} of {turns[0].every} has its turn {done} times")

    @property
    def _unrolled_frames(self) -> int:
        """So many that each turn's slots are used again after they were, and its waits for earlier frames are met."""
        slots = [*(edge.slots for edge in self.edges), *(state.slots for state in self.states)]
        return max([*slots, *(after.frames for part in self.parts for after in part.after), 1]) + self.round + 1

    def kept_by(self, kernels: KernelGraph) -> list[list[State]]:
        """Of each part the states that it keeps; of replicas each keeps them, in its turn."""
        keepers = [keepers_of(kernels, [part.calls for part in self.parts], state.output) for state in self.states]
        return [
            [state for state, own in zip(self.states, keepers, strict=True) if number in own]
            for number in range(len(self.parts))
        ]

    def _unrolled(self, kernels: KernelGraph) -> Iterator[Step]:
        """Every call of several frames as a step, a lane for each part; storages are named apart for each frame.

        Behind the calls of a part are the copies of the states that it keeps.
        """
        tasks: list[tuple[int, Task, State | None]] = []
        kept = self.kept_by(kernels)
        for frame in range(self._unrolled_frames):
            for number, part in enumerate(self.parts):
                if not part.turns.has(frame):
                    continue
                awaited = [(after.part, self.parts[after.part], frame - after.frames) for after in part.after]
                waits = tuple(
                    Wait(other, one.turns.before(earlier + 1) * (len(one.calls) + len(kept[other])))
                    for other, one, earlier in awaited
                    if earlier >= 0 and one.turns.has(earlier)
                )
                for at, call in enumerate(part.calls):
                    tasks.append((frame, Task(call, number, 0, 1, () if at else waits), None))
                tasks += [(frame, Task(part.calls[-1], number, 0, 1), state) for state in kept[number]]
        order = Order([task for _, task, _ in tasks], len(self.parts))
        accesses = Accesses(kernels, every=bool(self.states))
        sizes = kernels.storage_bytes
        for (frame, task, state), number, begins in zip(tasks, order.numbers, order.begins, strict=True):
            if state is not None:
                yield Step(None, task.lane, number, begins, self._copy(kernels, state, frame))
                continue
            touched = accesses.of(task.call, Tile(""), 0, 1)
            if self.parts[task.lane].device in self.apart:  # copies are of whole storages
                touched = tuple(replace(one, begin=0, end=sizes[one.storage]) for one in touched)
            named = tuple(replace(one, storage=self._name(one.storage, frame)) for one in touched)
            yield Step(task.call, task.lane, number, begins, named)

    def _copy(self, kernels: KernelGraph, state: State, frame: int) -> tuple[Access, Access]:
        """What keeping a state of a frame reads, and writes for the next one."""
        made, read = kernels.buffers[kernels.outputs[state.output]], kernels.buffers[kernels.inputs[state.input]]
        return (
            Access(made.id, self._name(made.storage, frame), 0, made.span * made.dtype.bytes, writes=False),
            Access(read.id, self._name(read.storage, frame + 1), 0, read.span * read.dtype.bytes, writes=True),
        )

    def _name(self, storage: int, frame: int) -> int:
        """Frames are those unrolled, and the one behind them that is handed states."""
        return storage * (self._unrolled_frames + 1) + frame

    def _arena(self, kernels: KernelGraph) -> Mapping[int, tuple[int, int]]:
        """The bytes of every frame's storage of every edge. Raises VerifyError for one that is too small."""
        sizes = kernels.storage_bytes
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
        for state in self.states:
            storage = kernels.buffers[kernels.inputs[state.input]].storage
            for frame in range(self._unrolled_frames + 1):
                at = begin + frame % state.slots * sizes[storage]
                found[self._name(storage, frame)] = (at, at + sizes[storage])
            begin += state.slots * sizes[storage]
        return found

    def _verify_pairs(self, kernels: KernelGraph) -> None:
        """Raises VerifyError for a state that is no output that calls make, or no input like it."""
        for state in self.states:
            made, read = kernels.buffers[kernels.outputs[state.output]], kernels.buffers[kernels.inputs[state.input]]
            if made.type != read.type:
                raise VerifyError(f"output {state.output} is {made.type}, and input {state.input} is {read.type}")
            if not keepers_of(kernels, [part.calls for part in self.parts], state.output):
                raise VerifyError(f"no part makes output {state.output}, which is a state")
        if len({state.input for state in self.states}) < len(self.states):
            raise VerifyError("one input is two states")

    def _verify_states(self, steps: Sequence[Step], kernels: KernelGraph) -> None:
        """Raises VerifyError unless who reads a state of a frame begins after its copy."""
        copies = {step.accesses[1].storage: step for step in steps if step.call is None}
        for step in steps:
            for one in step.accesses:
                copy = copies.get(one.storage, step)
                if copy is not step and not step.follows(copy):
                    raise VerifyError(
                        f"{step.named(kernels)} reads a state, but nothing makes part {step.lane} wait for part "
                        f"{copy.lane}, which keeps it in the frame before"
                    )

    def _verify_edges(self, kernels: KernelGraph) -> None:
        """Raises VerifyError for a storage that several parts touch and that is neither an edge nor the caller's."""
        own = {kernels.buffers[id].storage for id in (*kernels.inputs, *kernels.outputs, *kernels.constants)}
        own |= {edge.storage for edge in self.edges}
        first: dict[int, int] = {}
        for number, part in enumerate(self.parts):
            for call in part.calls:
                for id in (*kernels.calls[call].inputs, *kernels.calls[call].outputs):
                    storage = kernels.buffers[id].storage
                    if storage not in own and self.parts[first.setdefault(storage, number)].calls != part.calls:
                        raise VerifyError(
                            f"storage s{storage} goes from part {first[storage]} to part {number}, and has no edge"
                        )

    def _verify_copies(self, kernels: KernelGraph) -> None:
        """Raises VerifyError where a device gives back a storage of which another part writes some too."""
        writer: dict[int, int] = {}
        for number, part in enumerate(self.parts):
            for call in part.calls:
                for storage in {kernels.buffers[id].storage for id in kernels.calls[call].outputs}:
                    other = self.parts[writer.setdefault(storage, number)]
                    if other.calls != part.calls and {other.device, part.device} & {*self.apart}:
                        raise VerifyError(
                            f"parts {writer[storage]} and {number} both write storage s{storage}, and a device with "
                            "a memory of its own gives it back whole"
                        )

    def __str__(self) -> str:
        head = f"{self.scheduler}: {', '.join(self.devices)}; one frame {1e6 * self.predicted_s:.1f} us"
        lines = [f"{head}, one each {1e6 * self.period_s:.1f} us"]
        lines += [f"  part {number}: {part}" for number, part in enumerate(self.parts)]
        lines += [f"  edge s{edge.storage}: {edge.slots} slots of {edge.bytes} bytes" for edge in self.edges]
        lines += [f"  device {device} has a memory of its own" for device in self.apart]
        lines += [
            f"  output {state.output} is input {state.input} of the next frame: {state.slots} slots"
            for state in self.states
        ]
        return "\n".join(lines)


def keepers_of(kernels: KernelGraph, parts: Sequence[Sequence[int]], output: int) -> list[int]:
    """The part, of those with these calls, that is the last to write an output, by position; with all its replicas."""
    storage = kernels.buffers[kernels.outputs[output]].storage
    makers = [
        number
        for number, calls in enumerate(parts)
        if any(kernels.buffers[id].storage == storage for call in calls for id in kernels.calls[call].outputs)
    ]
    return [number for number in makers if parts[number] == parts[makers[-1]]]


def verify_copies(kernels: KernelGraph, part: Part, portion: Portion) -> None:
    """Raises VerifyError unless a part's program copies what it has to: each storage once, and no other.

    Brought are storages that its calls read and that they do not make; given back, those that they make and that other
    calls read, or the caller.
    """
    own = {*part.calls}
    touched: dict[bool, dict[bool, set[int]]] = {
        mine: {makes: set() for makes in (False, True)} for mine in (False, True)
    }
    for at, call in enumerate(kernels.calls):
        for makes, ids in ((False, call.inputs), (True, call.outputs)):
            touched[at in own][makes] |= {kernels.buffers[id].storage for id in ids}
    constants = {kernels.buffers[id].storage for id in kernels.constants}
    made, others = touched[True][True], touched[False]
    wanted = others[False] | {kernels.buffers[id].storage for id in kernels.outputs}
    inside = portion.kernels
    for way, needed, ids in (
        ("brought to", touched[True][False] - made - constants, inside.inputs),
        ("given back by", made & wanted, inside.outputs),
    ):
        copied = [inside.buffers[id].storage for id in ids]
        for storage in sorted(needed | {*copied}):
            if (count := copied.count(storage)) != (storage in needed):
                how = f"{count} times" if count > 1 else "in vain" if count else "not at all"
                raise VerifyError(f"storage s{storage} is {way} the part of calls {min(own)} to {max(own)} {how}")
