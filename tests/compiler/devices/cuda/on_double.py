"""Lowered kernels on the double of CUDA, each run on buffers of any layout and dtype, and judged by the definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from compiler.devices.cuda.codegen.entry import TileFunction
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.emit.side_by_side import side_by_side
from compiler.ir.buffers import Buffer
from compiler.ir.evaluate import evaluate
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.measure.memory import allocate, read_buffer, write_buffer
from tests.compiler.devices.cpu.library import SLACK, Case, array_of, assert_close, without_bool
from tests.cuda_double.double import MODES, Device, Mode, compile_kernels, compiler_there
from tests.parse import parse_kernel

needs_double = pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")
ADVERSARIAL = (MODES[2], MODES[6])
"""Threads in a random order and backwards, copies that land late and in between."""
ROUNDING = {DType.F16: 2e-3, DType.BF16: 1.6e-2}
"""What an output may lose by lying in memory in 16 bits, relative to its largest element."""


def workload_of(case: Case) -> Workload:
    """The case's kernel on its buffers, as far from alignment as they are, which `Case.workload` forgets."""
    count = len(case.kernel.inputs)
    buffers = [replace(buffer, id=0, storage=0, name="") for buffer in case.buffers]
    return replace(case.workload, inputs=tuple(buffers[:count]), outputs=tuple(buffers[count:]))


@dataclass(frozen=True)
class Subject:
    """A case and one way of lowering it.

    `in_place` pairs outputs and inputs that share memory, as in `Call.in_place`.
    """

    case: Case
    lowered: CudaLowered
    in_place: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.case}\n{self.lowered}\n{self.lowered.text}"


def run(device: Device, subject: Subject) -> tuple[np.ndarray, ...]:
    """The outputs.

    Fails where the kernel wrote outside of them, changed an input, or left a counter that is not zero.
    """
    case, lowered = subject.case, subject.lowered
    memories = [allocate(buffer.span * buffer.dtype.bytes + SLACK) for buffer in case.buffers]
    for memory, buffer, array in zip(memories, case.buffers, case.inputs, strict=False):
        write_buffer(memory, buffer, array)
    uploaded = [device.upload(memory) for memory in memories]
    for out, into in subject.in_place:
        uploaded[len(case.inputs) + out] = uploaded[into]
        memories[len(case.inputs) + out] = memories[into]
    shared = {into for _, into in subject.in_place}
    arguments = [
        np.uint64(at.address + buffer.offset * buffer.dtype.bytes)
        for at, buffer in zip(uploaded, case.buffers, strict=True)
    ]
    for position, packing in lowered.packings.items():
        packed = packing.pack(case.inputs[position])
        assert (packed.size, packed.dtype) == (packing.elements, packing.dtype.numpy), f"{packing}\n{subject}"
        arguments[position] = np.uint64(device.upload(packed).address)
    if lowered.scratch_bytes:
        arguments.append(np.uint64(device.allocate(lowered.scratch_bytes).address))
    counters = device.upload(np.zeros(max(lowered.counters, 1), np.uint32))
    if lowered.counters:
        arguments.append(np.uint64(counters.address))
    if lowered.grid:
        cluster = [lowered.cluster]
        device.launch(lowered.name, [lowered.grid], [lowered.block], arguments, lowered.shared_bytes, cluster)
    assert not device.download(counters, [max(lowered.counters, 1)], np.uint32).any(), f"counters stay\n{subject}"
    after = [device.download(at, memory.shape, memory.dtype) for at, memory in zip(uploaded, memories, strict=True)]
    for at, (memory, was, buffer) in enumerate(zip(after, memories, case.buffers, strict=True)):
        restored = memory.copy()
        if at >= len(case.inputs) or at in shared:
            octets = without_bool(buffer)
            write_buffer(restored, octets, read_buffer(was, octets))
        assert np.array_equal(restored, was), f"`{buffer}` was written where it must not be\n{subject}"
    results = list(zip(after, case.buffers, strict=True))[len(case.inputs) :]
    return tuple(read_buffer(memory, buffer) for memory, buffer in results)


def wanted(case: Case) -> tuple[np.ndarray, ...]:
    """What the kernel means, of inputs that were rounded as they lie in memory."""
    pairs = zip(case.inputs, case.buffers, strict=False)
    return evaluate(case.kernel, [_rounded(array, buffer) for array, buffer in pairs])


def _rounded(array: np.ndarray, buffer: Buffer) -> np.ndarray:
    return array.astype(buffer.dtype.numpy).astype(array.dtype) if buffer.element else array


def check(subjects: Sequence[Subject], flavour: str = "plain", modes: Sequence[Mode] = ADVERSARIAL) -> None:
    """Compiles all subjects into one module and compares each, in every mode, with what its kernel means."""
    source = PREAMBLE + "\n".join(subject.lowered.text for subject in subjects)
    module = compile_kernels(source, flavour)
    meant = [wanted(subject.case) for subject in subjects]
    for mode in modes:
        with Device(module, mode) as device:
            for subject, means in zip(subjects, meant, strict=True):
                results = zip(run(device, subject), means, strict=True)
                outputs = subject.case.buffers[len(subject.case.inputs) :]
                for (got, want), buffer in zip(results, outputs, strict=True):
                    if want.dtype.kind in "iub":
                        np.testing.assert_array_equal(got, want, err_msg=str(subject))
                    else:
                        tolerance = max(subject.case.tolerance, ROUNDING.get(buffer.dtype, 0.0))
                        assert_close(got, want, tolerance, str(subject))


CLUSTER = 4
"""Blocks of the clusters beside which `at_any_rank` puts a kernel."""


def at_any_rank(lowered: CudaLowered) -> CudaLowered:
    """A kernel without clusters of its own in a launch that has them, so that its blocks have every rank of one.

    Blocks of a cluster that meets come first, then one block, so that the kernel's begin in the midst of a cluster.
    Arguments are those of the kernel alone.
    """
    assert lowered.cluster == 1, "clusters begin where the GPU's do"

    def beside(name: str, body: str, grid: int, cluster: int = 1) -> CudaLowered:
        text = f"__device__ __forceinline__ void {name}_tile(int tile) {{\n    {body}\n    (void)tile;\n}}\n"
        return CudaLowered(name, text, grid, 64, cluster=cluster, tiles=(TileFunction(name, text, (), 64),))

    meeting = beside(f"{lowered.name}_cluster", "tw_cluster_arrive(); tw_cluster_wait();", CLUSTER, CLUSTER)
    made = side_by_side(f"{lowered.name}_beside", [meeting, beside(f"{lowered.name}_block", "", 1), lowered])
    return replace(made, packings=lowered.packings)


def case_of(
    text: str,
    constant: tuple[int, ...] = (),
    seed: int = 0,
    element: DType | None = None,
    tolerance: float = 2e-5,
) -> Case:
    """A kernel on dense buffers, with random elements; fp32 tensors lie in memory as `element`."""
    kernel = parse_kernel(text)
    slots = (*kernel.inputs, *kernel.outputs)
    random = np.random.default_rng(seed)
    inputs = tuple(array_of(slot.type, random) for slot in kernel.inputs)
    buffers = tuple(stored_as(Buffer.whole(at, slot.type), element) for at, slot in enumerate(slots))
    return Case(kernel, buffers, inputs, constant=constant, tolerance=tolerance)


def stored_as(buffer: Buffer, element: DType | None) -> Buffer:
    """A buffer whose elements lie in memory as `element`, if they are fp32."""
    return replace(buffer, element=element) if buffer.type.dtype is DType.F32 else buffer
