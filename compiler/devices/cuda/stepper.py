"""Single calls of a plan run on a GPU, so that bisection sees what each of them makes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import numpy as np

from compiler.devices.cuda.candidates import Candidate, Candidates
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.devices.cuda.measure.driver import Device, Launch, Memory
from compiler.ir.buffers import Buffer, KernelGraph
from compiler.ir.plans.plan import Plan, Task
from compiler.ir.program import Program
from compiler.ir.region import Region
from compiler.pack.bare import lay_out
from compiler.pack.loader import Model
from compiler.pack.pack import WEIGHTS
from compiler.schedule.memory.buffers import place_buffers

Emit = Callable[[KernelGraph, Plan], Program]
"""Makes the program of a plan."""
ALIGNMENT = 256
"""Bytes; the alignment of device memory, which a copy of host memory keeps relative to it."""


@dataclass(frozen=True)
class _Extent:
    """Host memory, as its first and one past its last byte, and its copy on the device."""

    begin: int
    end: int
    copy: Memory

    def address(self, host: int) -> int:
        """Where the byte at a host address lies on the device."""
        return self.copy.address + self.begin % ALIGNMENT + host - self.begin


class CudaStepper:
    """Runs single calls of a plan on this machine's GPU: `measure.bisect.Stepper`, while it is entered."""

    def __init__(self, kernels: KernelGraph, plan: Plan, candidates: Candidates, emit: Emit) -> None:
        self._kernels, self._plan, self._candidates, self._emit = kernels, plan, candidates, emit
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._device = self._open.enter_context(Device())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def run(self, position: int, operands: Sequence[np.ndarray]) -> None:
        """Runs a call on flat operands, packing what its kernel wants packed.

        Operands that share a storage share its copy.
        """
        call = self._kernels.calls[position]
        if isinstance(call.kernel, Region):
            self._decide(position, operands)
            return
        candidate = self._candidates.compiled(cuda_workload_of(self._kernels, call), self._plan.tiles[position][0])
        if not candidate.lowered.grid:
            return
        with ExitStack() as given:
            extents = [self._uploaded(begin, end, given) for begin, end in _extents(operands)]
            pointers = [
                self._pointer(position, at, candidate, array, extents, given) for at, array in enumerate(operands)
            ]
            self._launch(candidate, pointers, given)
            for array in operands[len(call.inputs) :]:
                if array.nbytes:
                    extent = _holder(extents, array)
                    extent.copy.read(array, extent.address(array.ctypes.data) - extent.copy.address)

    def _decide(self, position: int, operands: Sequence[np.ndarray]) -> None:
        """A region, between whose launches the host decides: as a program of its own."""
        kernels, plan = _alone(self._kernels, self._plan, position)
        inputs = dict(zip(self._kernels.calls[position].inputs, operands, strict=False))
        given = [inputs[id][: kernels.buffers[id].span].reshape(kernels.buffers[id].type.dims) for id in kernels.inputs]
        program = self._emit(kernels, plan)
        with TemporaryDirectory(prefix="tilewright-region-") as name:
            weights = Path(name) / WEIGHTS
            weights.write_bytes(program.weights)
            lay_out(program, plan, self._candidates.target.name, weights, Path(name) / "alone")
            with Model(Path(name) / "alone", verify=False) as model:
                results = model.run_flat(given)
        for array, result in zip(operands[len(self._kernels.calls[position].inputs) :], results, strict=True):
            array[: result.size] = result.reshape(-1)

    def _launch(self, candidate: Candidate, pointers: list[int], given: ExitStack) -> None:
        lowered = candidate.lowered
        if lowered.scratch_bytes:
            pointers.append(given.enter_context(self._device.allocate(lowered.scratch_bytes)).address)
        if lowered.counters:
            zeros = np.zeros(lowered.counters, np.uint32)
            pointers.append(given.enter_context(self._device.upload(zeros)).address)
        module = given.enter_context(self._device.module(candidate.image))
        function = module.function(lowered.name, lowered.shared_bytes)
        stream = given.enter_context(self._device.stream())
        self._device.synchronize()
        stream.launch(
            Launch(function, lowered.grid, lowered.block, tuple(pointers), lowered.shared_bytes, lowered.cluster)
        )
        stream.synchronize()

    def _uploaded(self, begin: int, end: int, given: ExitStack) -> _Extent:
        skip = begin % ALIGNMENT
        copy = given.enter_context(self._device.allocate(skip + end - begin))
        copy.write(_bytes(begin, end), skip)
        return _Extent(begin, end, copy)

    def _pointer(
        self,
        position: int,
        at: int,
        candidate: Candidate,
        array: np.ndarray,
        extents: Sequence[_Extent],
        given: ExitStack,
    ) -> int:
        packing = candidate.lowered.packings.get(at)
        if packing is None:
            return _holder(extents, array).address(array.ctypes.data) if array.nbytes else 0
        constant = self._kernels.constants[self._kernels.calls[position].inputs[at]]
        return given.enter_context(self._device.upload(packing.pack(constant))).address


def _alone(kernels: KernelGraph, plan: Plan, position: int) -> tuple[KernelGraph, Plan]:
    """One call as a kernel graph, each of its operands in a storage of its own, and its plan."""
    call, tile = kernels.calls[position], plan.tiles[position]
    ids = dict.fromkeys((*call.inputs, *call.outputs))
    buffers = {id: Buffer.whole(id, kernels.buffers[id].type, name=f"v{id}") for id in ids}
    constants = {id: kernels.constants[id] for id in ids if id in kernels.constants}
    inputs = tuple(id for id in dict.fromkeys(call.inputs) if id not in constants)
    alone = KernelGraph(buffers, (call,), inputs, call.outputs, constants)
    places, arena = place_buffers(alone)
    return alone, Plan(1, (Task(0, 0, 0, tile[1]),), (tile,), places, arena, plan.scheduler)


def _extents(arrays: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """First and one past last byte of each stretch of host memory that arrays cover, overlapping ones joined."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted((array.ctypes.data, array.ctypes.data + array.nbytes) for array in arrays if array.nbytes):
        if joined and begin < joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def _holder(extents: Sequence[_Extent], array: np.ndarray) -> _Extent:
    return next(one for one in extents if one.begin <= array.ctypes.data < one.end)


def _bytes(begin: int, end: int) -> np.ndarray:
    """Host memory at addresses, which arrays that the caller holds keep alive."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * (end - begin)).from_address(begin))
