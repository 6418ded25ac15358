"""Single calls of a plan run on a GPU, so that bisection sees what each of them makes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from compiler.devices.cuda.candidates import Candidate, Candidates
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.devices.cuda.measure.driver import Device, Launch, Memory
from compiler.ir.buffers import KernelGraph
from compiler.ir.plan import Plan

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

    def __init__(self, kernels: KernelGraph, plan: Plan, candidates: Candidates) -> None:
        self._kernels, self._plan, self._candidates = kernels, plan, candidates
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
