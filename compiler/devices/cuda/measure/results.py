"""Whether a candidate computes what plain loops compute, asked once before it is timed: a wrong one must not win."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from compiler.devices.cuda.measure.apart import Lost
from compiler.devices.cuda.measure.bench import Refused, Subject
from compiler.ir.buffers import Buffer
from compiler.ir.kernel import Routine
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.measure.memory import allocate, read_buffer, write_buffer
from compiler.measure.pattern import pattern, reads_indices

MOST_BYTES = 256 << 20
"""Of a workload's operands: larger ones are not brought to the device and back for every candidate."""
EXACT = frozenset({"loops", "window", "ffma", "mma_3xtf32", "separable_ffma", "separable_3xtf32", "attention_3xtf32"})
"""Algorithms that round no operand beyond fp32."""
GRANTED_EXACT, GRANTED, GRANTED_BF16 = 1e-3, 5e-2, 0.2
"""Relative norm of the difference of two right results, in fp32; where tf32 or fp16 is rounded to; bf16. A misplaced
fragment, a lost step of a sum or a missing barrier is of the order of 1."""


class Computes(Protocol):
    """What is asked of a bench: `bench.Bench.compute`."""

    def compute(self, subject: Subject, operands: Sequence[tuple[np.ndarray, int]]) -> Sequence[np.ndarray]: ...


@dataclass
class Results:
    """Results of plain loops by workload, beside which those of candidates are held. Equal seeds give equal inputs.

    reference  a workload's plain loops as the bench takes them; None where there are none
    """

    reference: Callable[[Workload], tuple[Subject, Mapping[int, Packing]] | None]
    seed: int = 0
    _expected: dict[str, Sequence[np.ndarray] | None] = field(default_factory=dict, init=False, repr=False)

    def fault(
        self, bench: Computes, workload: Workload, key: str, tile: Tile, subject: Subject, packed: Mapping[int, Packing]
    ) -> str:
        """What is wrong with a candidate's results; "" for right ones, and where nothing can be said.

        Nothing can be said of routines, whose results may be in any order among equals, of operands that are too large,
        and where loops cannot run. Raises Lost where the candidate takes the device away.
        """
        if isinstance(workload.kernel, Routine) or _nbytes(workload) > MOST_BYTES:
            return ""
        inputs = self._inputs(workload)
        if key not in self._expected:
            self._expected[key] = self._computed_by_loops(bench, workload, inputs)
        expected = self._expected[key]
        if expected is None:
            return ""
        try:
            computed = _computed(bench, workload, subject, packed, inputs)
        except Refused:
            return ""  # whoever places it is told as well
        granted = granted_of(workload, tile)
        for number, (one, other) in enumerate(zip(computed, expected, strict=True)):
            apart = distance(one, other)
            if not apart <= granted:
                return (
                    f"output {number} differs from that of plain loops by {apart:.2g} of its norm, granted {granted:g}"
                )
        return ""

    def _computed_by_loops(
        self, bench: Computes, workload: Workload, inputs: Sequence[np.ndarray]
    ) -> Sequence[np.ndarray] | None:
        found = self.reference(workload)
        if found is None:
            return None
        try:
            return _computed(bench, workload, *found, inputs)
        except (Refused, Lost):
            return None  # no fault of the candidate's

    def _inputs(self, workload: Workload) -> list[np.ndarray]:
        """Logical arrays, as operands are filled with while kernels are timed."""
        random, zero = np.random.default_rng(self.seed), reads_indices(workload.kernel)
        return [
            np.resize(pattern(one.type.dtype, random, zero=zero and one.type.dtype.is_integer), one.type.dims)
            for one in workload.inputs
        ]


def granted_of(workload: Workload, tile: Tile) -> float:
    """By how much right results may differ from those of plain loops."""
    dtypes = {buffer.dtype for buffer in (*workload.inputs, *workload.outputs)}
    if DType.BF16 in dtypes:
        return GRANTED_BF16
    return GRANTED_EXACT if tile.algorithm in EXACT and DType.F16 not in dtypes else GRANTED


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Relative norm of the difference; infinite where either is not finite and they differ there."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    norm = float(np.linalg.norm(b[finite]))
    return float(np.linalg.norm(a[finite] - b[finite])) / (norm or 1.0)


def _nbytes(workload: Workload) -> int:
    return sum(one.span * one.dtype.bytes for one in (*workload.inputs, *workload.outputs))


def _computed(
    bench: Computes,
    workload: Workload,
    subject: Subject,
    packed: Mapping[int, Packing],
    inputs: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """The logical outputs of one launch."""
    buffers = (*workload.inputs, *workload.outputs)
    operands: list[tuple[np.ndarray, int]] = []
    for position, buffer in enumerate(buffers):
        if position in packed:
            given = packed[position].pack(_as_kept(inputs[position], buffer))
            operands.append((np.ascontiguousarray(given).reshape(-1).view(np.uint8), 0))
            continue
        memory = allocate(max(buffer.span * buffer.dtype.bytes, 1))
        if position < len(inputs):
            write_buffer(memory, buffer, inputs[position])
        operands.append((memory, buffer.offset * buffer.dtype.bytes))
    outputs = bench.compute(subject, operands)
    return [read_buffer(memory, buffer) for memory, buffer in zip(outputs, buffers[len(inputs) :], strict=True)]


def _as_kept(array: np.ndarray, buffer: Buffer) -> np.ndarray:
    return array.astype(buffer.dtype.numpy).astype(array.dtype) if buffer.element else array
