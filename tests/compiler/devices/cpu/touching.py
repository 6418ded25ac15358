"""Which bytes parts of compiled kernels write, and which they depend on, beside what is said of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from compiler.devices.cpu.emit.regions import KernelRegions
from compiler.devices.cpu.target import CpuTarget
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.plans.touched import Segment, Touched
from compiler.measure.memory import allocate, operand, write_buffer
from tests.compiler.devices.cpu.library import SLACK, Case, Library

POISONS = (0xFF, 0x5A)
"""What results are filled with: a byte that was written differs from one of them."""


def graph_of(case: Case) -> KernelGraph:
    """The case as its only call, each operand in a storage of its own."""
    buffers = {at: replace(buffer, id=at, storage=at) for at, buffer in enumerate(case.buffers)}
    inputs = tuple(range(len(case.inputs)))
    call = Call(case.kernel, inputs, tuple(range(len(inputs), len(buffers))))
    constants = {at: case.inputs[at] for at in case.constant}
    return KernelGraph(buffers, (call,), tuple(at for at in inputs if at not in constants), call.outputs, constants)


def touched(case: Case, target: CpuTarget, first: int, last: int) -> Touched:
    return KernelRegions(graph_of(case), target).touched(0, case.tile, first, last)


def prove(cases: Sequence[Case], target: CpuTarget) -> None:
    """Fails where a part of a case writes, or depends on, a byte that it is not said to."""
    library = Library.of(cases, target, "-O1")
    for number, case in enumerate(cases):
        subject, regions = Subject(library, number, case), KernelRegions(graph_of(case), target)
        tiles = subject.kernel.tiles
        for parts in splits(tiles, np.random.default_rng(number)):
            reported = [regions.touched(0, case.tile, *part) for part in parts]
            for part, one in zip(parts, reported, strict=True):
                subject.judge(*part, one)
            for at, marks in enumerate(subject.written(0, tiles)):
                covered = np.any([within(one.writes[at], len(marks)) for one in reported], axis=0)
                assert not np.any(marks & ~covered), f"{parts} are said to write less than all of output {at}\n{case}"


def splits(tiles: int, random: np.random.Generator) -> Iterator[list[tuple[int, int]]]:
    """All tile tasks in halves, around a single one, and in odd ranges of which some may be empty."""
    one = int(random.integers(0, max(tiles, 1)))
    odd = sorted(int(cut) for cut in random.integers(0, tiles + 1, 3))
    for cuts in ([-(-tiles // 2)], [one, min(one + 1, tiles)], odd):
        yield [*itertools.pairwise([0, *cuts, tiles])]


def within(segment: Segment, count: int) -> np.ndarray:
    """For each of so many bytes whether it lies in a segment."""
    places = np.arange(count)
    return (segment.begin <= places) & (places < segment.end)


class Subject:
    """One compiled case, of which parts are run."""

    def __init__(self, library: Library, number: int, case: Case) -> None:
        self.library, self.kernel, self.case = library, library.lowered[number], case
        self.inputs = [_storage(buffer) for buffer in case.buffers[: len(case.inputs)]]
        for memory, buffer, array in zip(self.inputs, case.buffers, case.inputs, strict=False):
            write_buffer(memory, buffer, array)

    def judge(self, first: int, last: int, reported: Touched) -> None:
        """Fails where tile tasks [first, last) touch more than is reported of them."""
        what = f"tile tasks {first} .. {last - 1} of {self.kernel.tiles}: {reported}\n{self.case}\n{self.kernel.text}"
        for at, (marks, segment) in enumerate(zip(self.written(first, last), reported.writes, strict=True)):
            assert not np.any(marks & ~within(segment, len(marks))), f"output {at} is written elsewhere by {what}"
        want = self.results(self.inputs, first, last, POISONS[0])
        got = self.results(self.poisoned(reported.reads), first, last, POISONS[0])
        for at, (one, other) in enumerate(zip(got, want, strict=True)):
            assert np.array_equal(one, other), f"output {at} depends on what is elsewhere in {what}"

    def results(self, inputs: Sequence[np.ndarray], first: int, last: int, poison: int) -> list[np.ndarray]:
        """The storages of the outputs, full of poison but for what tile tasks [first, last) write."""
        outputs = [_storage(buffer) for buffer in self.case.buffers[len(inputs) :]]
        for memory in outputs:
            memory[:] = poison
        operands = [operand(*bound) for bound in zip((*inputs, *outputs), self.case.buffers, strict=True)]
        for slot, packing in self.kernel.packings.items():
            operands[slot] = packing.pack(self.case.inputs[slot])
        self.library.call_part(self.kernel, operands, first, last)
        return outputs

    def written(self, first: int, last: int) -> list[np.ndarray]:
        """For each byte of the outputs whether tile tasks [first, last) write it."""
        one, other = (self.results(self.inputs, first, last, poison) for poison in POISONS)
        return [(a != POISONS[0]) | (b != POISONS[1]) for a, b in zip(one, other, strict=True)]

    def poisoned(self, reads: Sequence[Segment]) -> list[np.ndarray]:
        """The inputs with all else than these segments changed: to NaN in floats, to another number in integers.

        Constants stay.
        """
        return [
            memory if at in self.case.constant else _poisoned(memory, self.case.buffers[at], segment)
            for at, (memory, segment) in enumerate(zip(self.inputs, reads, strict=True))
        ]


def _storage(buffer: Buffer) -> np.ndarray:
    return allocate(buffer.span * buffer.dtype.bytes + SLACK)


def _poisoned(memory: np.ndarray, buffer: Buffer, kept: Segment) -> np.ndarray:
    changed = allocate(len(memory))
    if not buffer.dtype.is_float:
        changed[:] = memory
        changed[:: buffer.dtype.bytes] ^= 1
    changed[kept.begin : kept.end] = memory[kept.begin : kept.end]
    return changed
