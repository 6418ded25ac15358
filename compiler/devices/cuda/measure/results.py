"""Whether a candidate computes what plain loops compute, asked once before it is timed: a wrong one must not win."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from compiler.devices.cuda.algorithms import BY_NAME
from compiler.devices.cuda.measure.apart import Lost
from compiler.devices.cuda.measure.bench import Refused, Subject
from compiler.ir.kernel import Routine
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.measure.results import MOST_BYTES, computed, difference, inputs_of, operand_bytes

GRANTED_EXACT, GRANTED, GRANTED_BF16 = 1e-3, 5e-2, 0.2
"""Relative norm of the difference of two right results, in fp32; where tf32 or fp16 is rounded to; bf16. A misplaced
fragment, a lost step of a sum or a missing barrier is of the order of 1."""


class Computes(Protocol):
    """What is asked of a bench: `bench.Bench.compute`."""

    def compute(self, subject: Subject, operands: Sequence[tuple[np.ndarray, int]]) -> Sequence[np.ndarray]:
        """What one launch leaves in the operands that are written: each as bytes, with the offset of the pointer."""
        ...


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
        if isinstance(workload.kernel, Routine) or operand_bytes(workload) > MOST_BYTES:
            return ""
        inputs = inputs_of(workload, self.seed)
        if key not in self._expected:
            self._expected[key] = self._computed_by_loops(bench, workload, inputs)
        expected = self._expected[key]
        if expected is None:
            return ""
        try:
            found = computed(workload, packed, inputs, lambda operands: bench.compute(subject, operands))
        except Refused:
            return ""  # whoever places it gets the refusal as well
        return difference(found, expected, granted_of(workload, tile))

    def _computed_by_loops(
        self, bench: Computes, workload: Workload, inputs: Sequence[np.ndarray]
    ) -> Sequence[np.ndarray] | None:
        found = self.reference(workload)
        if found is None:
            return None
        try:
            subject, packed = found
            return computed(workload, packed, inputs, lambda operands: bench.compute(subject, operands))
        except (Refused, Lost):
            return None  # no fault of the candidate's


def granted_of(workload: Workload, tile: Tile) -> float:
    """By how much right results may differ from those of plain loops."""
    dtypes = {buffer.dtype for buffer in (*workload.inputs, *workload.outputs)}
    if DType.BF16 in dtypes:
        return GRANTED_BF16
    in_fp32 = tile.algorithm in BY_NAME[tile.algorithm].in_fp32
    return GRANTED_EXACT if in_fp32 and DType.F16 not in dtypes else GRANTED
