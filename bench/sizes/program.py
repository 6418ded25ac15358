"""Kernels of a model one after another on one core, each under the tile that the cost model likes best."""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from compiler.codegen.build import find_toolchain
from compiler.codegen.calls import function_name, workload_of
from compiler.contract import CompileOptions
from compiler.devices.cpu.codegen.lowered import Lowered
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.emit.program import kernel_sources
from compiler.devices.cpu.target import CpuTarget
from compiler.devices.kinds import propose
from compiler.frontend.load import load
from compiler.fuse import fuse
from compiler.ir.buffers import KernelGraph
from compiler.measure.memory import allocate, operand, write_buffer
from compiler.ops import OPERATORS
from compiler.rewrite import rewrite


class Program:
    """A model bound by options, ready to run; `sizes` are what its open dimensions are."""

    def __init__(self, model: bytes, options: CompileOptions, target: CpuTarget) -> None:
        graph = rewrite(load(model, options.bindings[-1], OPERATORS).graph).graph
        self.kernels: KernelGraph = fuse(graph).kernels
        lowered: dict[str, Lowered] = {}
        names = []
        for number, call in enumerate(self.kernels.calls):
            workload = workload_of(self.kernels, call)
            names.append(function_name(workload, number))
            lowered[names[-1]] = lower(names[-1], workload, propose(workload, target, 1)[0].tile, target)
        self._code = _loaded(build_library(kernel_sources([*lowered.values()]), target, find_toolchain()))
        self._memory = {storage: allocate(count) for storage, count in self.kernels.storage_bytes.items()}
        self._keep: list[np.ndarray] = []
        self._calls = [self._call(number, lowered[name]) for number, name in enumerate(names)]

    def _call(self, number: int, kernel: Lowered) -> tuple[ctypes._NamedFuncPointer, tuple[object, ...]]:
        call, found = self.kernels.calls[number], []
        for slot, id in enumerate((*call.inputs, *call.outputs)):
            buffer = self.kernels.buffers[id]
            if slot in kernel.packings:
                found.append(kernel.packings[slot].pack(self.kernels.constants[id]))
            else:
                found.append(operand(self._memory[buffer.storage], buffer))
        scratch = allocate(kernel.scratch_bytes + 64)
        self._keep += [*found, scratch]
        pointers = (ctypes.c_void_p * len(found))(*(array.ctypes.data for array in found))
        places = (ctypes.c_void_p(scratch.ctypes.data), ctypes.c_long(0), ctypes.c_long(kernel.tiles))
        return getattr(self._code, kernel.name), (pointers, *places)

    def fill(self, size: int) -> None:
        """Random inputs, zero from a size on along axes that are open; every scalar is that size."""
        random = np.random.default_rng(1)
        for id, array in self.kernels.constants.items():
            self._write(id, array)
        for id in self.kernels.inputs:
            type = self.kernels.buffers[id].type
            if not type.rank:
                self._write(id, np.array(size, type.dtype.numpy))
                continue
            array = random.normal(size=type.dims).astype(type.dtype.numpy)
            for axis, extent in enumerate(type.dims):
                if extent == self._capacity:
                    np.moveaxis(array, axis, 0)[size:] = 0
            self._write(id, array)

    @property
    def _capacity(self) -> int:
        """The extent of an open axis; none of the models has another axis of it."""
        return max((self.kernels.buffers[id].type.dims[-2] for id in self.kernels.inputs if self._rank(id)), default=0)

    def _rank(self, id: int) -> int:
        return self.kernels.buffers[id].type.rank

    def _write(self, id: int, array: np.ndarray) -> None:
        buffer = self.kernels.buffers[id]
        write_buffer(self._memory[buffer.storage], buffer, array)

    def once(self) -> float:
        """Seconds of one inference."""
        begin = time.perf_counter()
        for function, arguments in self._calls:
            function(*arguments)
        return time.perf_counter() - begin


def options_of(dims: Mapping[str, object]) -> CompileOptions:
    """Options that bind a model's dimensions."""
    return CompileOptions.from_json({"dims": dict(dims)})


def _loaded(code: bytes) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="tw-sizes-") as folder:
        path = Path(folder) / "kernels.so"
        path.write_bytes(code)
        return ctypes.CDLL(str(path))
