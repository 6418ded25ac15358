"""What a kernel computes by itself, on the data that kernels are timed on, and how far two results are apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler.encodings.encoding import pruned
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.measure.memory import allocate, read_buffer, write_buffer
from compiler.measure.pattern import greatest_sizes, pattern, reads_indices

MOST_BYTES = 256 << 20
"""Of a workload's operands: of larger ones results are not looked at."""

Operands = Sequence[tuple[np.ndarray, int]]
"""Memories as bytes, inputs then outputs, each with the byte at which the kernel's pointer points."""
Compute = Callable[[Operands], Sequence[np.ndarray]]
"""Runs a kernel once and gives the memories of its outputs."""


def operand_bytes(workload: Workload) -> int:
    """Of all buffers, not packed."""
    return sum(one.span * one.dtype.bytes for one in (*workload.inputs, *workload.outputs))


def inputs_of(workload: Workload, seed: int) -> list[np.ndarray]:
    """Logical arrays, as operands are filled with while kernels are timed. Equal seeds give equal inputs.

    Constants that are known to be zero at two of each four places are so here.
    """
    random, zero = np.random.default_rng(seed), reads_indices(workload.kernel)
    sizes = greatest_sizes(workload.kernel)
    arrays = [
        np.full(one.type.dims, sizes[slot.name], one.type.dtype.numpy)
        if slot.name in sizes
        else np.resize(pattern(one.type.dtype, random, zero=zero and one.type.dtype.is_integer), one.type.dims)
        for slot, one in zip(workload.kernel.inputs, workload.inputs, strict=True)
    ]
    return [pruned(array, encodings) for array, encodings in zip(arrays, workload.encodings, strict=True)]


def computed(
    workload: Workload, packed: Mapping[int, Packing], inputs: Sequence[np.ndarray], compute: Compute
) -> list[np.ndarray]:
    """The logical outputs of one run on logical inputs, of which some are given `packed`."""
    buffers = (*workload.inputs, *workload.outputs)
    operands: list[tuple[np.ndarray, int]] = []
    for position, buffer in enumerate(buffers):
        if position in packed:
            given = packed[position].pack(inputs[position])
            operands.append((np.ascontiguousarray(given).reshape(-1).view(np.uint8), 0))
            continue
        memory = allocate(max(buffer.span * buffer.dtype.bytes, 1))
        if position < len(inputs):
            write_buffer(memory, buffer, inputs[position])
        operands.append((memory, buffer.offset * buffer.dtype.bytes))
    outputs = compute(operands)
    return [read_buffer(memory, buffer) for memory, buffer in zip(outputs, buffers[len(inputs) :], strict=True)]


def difference(computed: Sequence[np.ndarray], others: Sequence[np.ndarray], granted: float) -> str:
    """The first output that differs by more than is granted, and by how much, in words; empty where none does."""
    for number, (one, other) in enumerate(zip(computed, others, strict=True)):
        apart = distance(one, other)
        if not apart <= granted:
            return f"output {number} differs from that of plain loops by {apart:.2g} of its norm, granted {granted:g}"
    return ""


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Relative norm of the difference; infinite where either is not finite and they differ there."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart, norm = _norm(a - b), _norm(b)
    if math.isfinite(apart) and math.isfinite(norm):
        return apart / (norm or 1.0)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    return _norm(a[finite] - b[finite]) / (_norm(b[finite]) or 1.0)


def _norm(array: np.ndarray) -> float:
    """By numpy's own loops: BLAS would start threads beside what is being timed."""
    with np.errstate(invalid="ignore", over="ignore"):
        return math.sqrt(float(np.square(array).sum()))
