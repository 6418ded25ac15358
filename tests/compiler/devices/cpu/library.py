"""Many lowered kernels in one library, each run on buffers of any layout and judged by the definition."""

from __future__ import annotations

import ctypes
import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from compiler.codegen.build import find_toolchain
from compiler.codegen.calls import geometry
from compiler.devices.cpu.codegen.lowered import Lowered
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.emit.program import kernel_sources
from compiler.devices.cpu.emulation import emulator_for
from compiler.devices.cpu.emulation.emulator import Guest
from compiler.devices.cpu.target import CpuTarget, this_machine
from compiler.fuse import fuse
from compiler.ir.buffers import Buffer
from compiler.ir.evaluate import evaluate
from compiler.ir.graph import Graph
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.tile import Tile
from compiler.measure.memory import GARBAGE, allocate, operand, read_buffer, write_buffer

T = TypeVar("T")
LOOPS = Tile("loops")
SLACK = 256
"""Bytes after each operand that no kernel may touch."""


def draws(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Examples of a strategy, always the same ones: what is compiled together must be drawn before it is judged."""
    found: list[T] = []

    @settings(max_examples=count, phases=[Phase.generate], suppress_health_check=list(HealthCheck), derandomize=True)
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found


@dataclass(frozen=True)
class Case:
    """A kernel, its operands' buffers, its inputs, how it is tiled; `cuts` split its tiles over several calls."""

    kernel: Kernel
    buffers: tuple[Buffer, ...]
    inputs: tuple[np.ndarray, ...]
    tile: Tile = LOOPS
    constant: tuple[int, ...] = ()
    cuts: tuple[float, ...] = ()
    tolerance: float = 2e-5

    @property
    def workload(self) -> Workload:
        bound = tuple(map(geometry, self.buffers))
        count = len(self.kernel.inputs)
        return Workload(self.kernel, bound[:count], bound[count:], tuple(at in self.constant for at in range(count)))

    def __str__(self) -> str:
        return "\n".join([str(self.kernel), *map(str, self.buffers), f"{self.tile} constants {self.constant}"])


@dataclass
class Library:
    """Kernels of one instruction set in one shared object."""

    lowered: Sequence[Lowered]
    code: ctypes.CDLL | Guest = field(repr=False)

    @staticmethod
    def of(cases: Sequence[Case], target: CpuTarget, optimise: str = "") -> Library:
        lowered = [lower(f"k{number}_case", case.workload, case.tile, target) for number, case in enumerate(cases)]
        return Library(lowered, built(kernel_sources(lowered), target, optimise))

    def run(self, number: int, case: Case) -> tuple[np.ndarray, ...]:
        """The outputs; fails where the kernel wrote outside of them, or changed an input."""
        kernel = self.lowered[number]
        memories = [allocate(buffer.span * buffer.type.dtype.bytes + SLACK) for buffer in case.buffers]
        for memory, buffer, array in zip(memories, case.buffers, case.inputs, strict=False):
            write_buffer(memory, buffer, array)
        before = [memory.copy() for memory in memories]
        operands = [operand(memory, buffer) for memory, buffer in zip(memories, case.buffers, strict=True)]
        for slot, packing in kernel.packings.items():
            operands[slot] = packing.pack(case.inputs[slot])
        self.call(kernel, operands, case.cuts)
        for at, (memory, was, buffer) in enumerate(zip(memories, before, case.buffers, strict=True)):
            restored = memory.copy()
            if at >= len(case.inputs):
                octets = without_bool(buffer)
                write_buffer(restored, octets, read_buffer(was, octets))
            assert np.array_equal(restored, was), f"`{buffer}` was written where it must not be\n{case}\n{kernel.text}"
        outputs = list(zip(memories, case.buffers, strict=True))[len(case.inputs) :]
        return tuple(read_buffer(memory, buffer) for memory, buffer in outputs)

    def call(self, kernel: Lowered, operands: Sequence[np.ndarray], cuts: Sequence[float]) -> None:
        """Runs all tiles, each part with scratch full of garbage, as a lane would find it."""
        ends = [0, *sorted(int(cut * kernel.tiles) for cut in cuts), kernel.tiles]
        for begin, end in itertools.pairwise(ends):
            self.call_part(kernel, operands, begin, end)

    def call_part(self, kernel: Lowered, operands: Sequence[np.ndarray], begin: int, end: int) -> None:
        """Runs tiles [begin, end)."""
        pointers = (ctypes.c_void_p * len(operands))(*(array.ctypes.data for array in operands))
        scratch = allocate(kernel.scratch_bytes + SLACK)
        if isinstance(self.code, Guest):
            self.code.call(kernel.name, operands, scratch, begin, end)
        else:
            run = getattr(self.code, kernel.name)
            run(pointers, ctypes.c_void_p(scratch.ctypes.data), ctypes.c_long(begin), ctypes.c_long(end))
        assert (scratch[kernel.scratch_bytes :] == GARBAGE).all(), f"scratch was overrun\n{kernel.text}"


def case_of(graph: Graph, *inputs: np.ndarray) -> Case:
    """The one kernel that a graph becomes, in the layouts that it has where they are free, with its constants."""
    kernels = fuse(graph, free=frozenset((*graph.inputs, *graph.outputs))).kernels
    (call,) = kernels.calls
    assert isinstance(call.kernel, Kernel)
    arrays = {**kernels.constants, **dict(zip(graph.inputs, inputs, strict=True))}
    return Case(
        call.kernel,
        tuple(kernels.buffers[value] for value in (*call.inputs, *call.outputs)),
        tuple(arrays[value] for value in call.inputs),
        constant=tuple(at for at, value in enumerate(call.inputs) if value in kernels.constants),
    )


def without_bool(buffer: Buffer) -> Buffer:
    """The same bytes, in a dtype that takes any of them as they are."""
    dtype = DType.U8 if buffer.dtype is DType.BOOL else buffer.dtype
    return replace(buffer, type=TensorType(dtype, buffer.type.shape), element=None)


def built(sources: Mapping[str, str], target: CpuTarget, optimise: str = "") -> ctypes.CDLL | Guest:
    """Sources as a library for a target, loaded here or by an emulator of the target's architecture."""
    toolchain = find_toolchain(machine=target.machine)
    code = build_library(sources, target, toolchain, optimise=optimise)
    emulator = emulator_for(target, toolchain)
    return emulator.open(code) if emulator else loaded(code)


def loaded(code: bytes) -> ctypes.CDLL:
    """A library of its own, which needs a path of its own: the loader knows what it has loaded by path."""
    with tempfile.TemporaryDirectory(prefix="tw-kernels-") as folder:
        path = Path(folder) / "kernels.so"
        path.write_bytes(code)
        return ctypes.CDLL(str(path))


def check(cases: Sequence[Case], target: CpuTarget | None = None, optimise: str = "") -> None:
    """Compiles all cases into one library and compares each with what the kernel means."""
    library = Library.of(cases, target or this_machine(), optimise)
    for number, case in enumerate(cases):
        for got, want in zip(library.run(number, case), evaluate(case.kernel, case.inputs), strict=True):
            description = f"{case}\n{library.lowered[number].text}"
            if want.dtype.kind in "iub":
                np.testing.assert_array_equal(got, want, err_msg=description)
            else:
                assert_close(got, want, case.tolerance, description)


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: float, description: str) -> None:
    """Within `tolerance` of the largest element, or what rounding to half precision costs."""
    slack = max(tolerance, 2e-3 if want.dtype.itemsize == 2 else 0)
    wide = np.asarray(want, np.float64)
    largest = float(np.max(np.abs(wide), initial=1.0, where=np.isfinite(wide)))
    np.testing.assert_allclose(np.asarray(got, np.float64), wide, rtol=slack, atol=slack * largest, err_msg=description)


def array_of(type: TensorType, random: np.random.Generator) -> np.ndarray:
    """Elements that neither overflow nor vanish in sums and products of a few; all kinds of small integers."""
    if type.dtype.is_float:
        return random.uniform(-1, 1, type.dims).astype(type.dtype.numpy)
    if type.dtype is DType.BOOL:
        return random.integers(0, 2, type.dims).astype(np.bool_)
    low = -9 if type.dtype.is_signed else 0
    return random.integers(low, 10, type.dims).astype(type.dtype.numpy)


@st.composite
def buffers_for(draw: st.DrawFn, id: int, type: TensorType) -> Buffer:
    """A buffer in any layout, dense or with room between its rows, at an offset."""
    rank = type.rank
    layouts = [Layout.plain(rank)]
    if rank >= 2:
        layouts += [Layout.channels_last(rank), Layout(tuple(reversed([(axis, 0) for axis in range(rank)])))]
        block = draw(st.sampled_from([2, 4, 16]))
        layouts.append(Layout((*((axis, 0) for axis in range(rank)), (draw(st.integers(0, rank - 1)), block))))
    whole = Buffer.whole(id, type, draw(st.sampled_from(layouts)))
    if rank == 0 or draw(st.booleans()):
        return whole
    extents = [extent + draw(st.sampled_from([0, 0, 1, 3])) for extent in whole.layout.physical(type.dims)]
    strides = [1] * len(extents)
    for at in reversed(range(len(extents) - 1)):
        strides[at] = strides[at + 1] * max(extents[at + 1], 1)
    scale = draw(st.sampled_from([1, 1, 1, 2]))
    return replace(whole, strides=tuple(scale * stride for stride in strides), offset=draw(st.integers(0, 5)))


@st.composite
def bound(draw: st.DrawFn, kernel: Kernel) -> Case:
    """A kernel with random buffers and elements."""
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = tuple(draw(buffers_for(number, slot.type)) for number, slot in enumerate(slots))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    return Case(kernel, buffers, tuple(array_of(slot.type, random) for slot in kernel.inputs))
