"""Whether candidates compute the same, asked before one of them may win.

The fastest of a kernel is run once on logical inputs, as is another one. Where both agree both are right; where they do
not, plain loops say which is wrong. So a kernel costs two runs, and not a compilation more. One without a rival is left
to the proof of the whole artifact.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.devices.cpu.algorithms import BY_NAME
from compiler.devices.cpu.measure.timer import Region, Sample, Timer
from compiler.ir.kernel import Routine
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing, Steered
from compiler.ir.tile import Tile
from compiler.measure.memory import allocate
from compiler.measure.results import MOST_BYTES, Operands, computed, difference, inputs_of, operand_bytes

GRANTED: Mapping[str, float] = {"bf16": 5e-2}
"""Relative norm of the difference of two right results, by the precision that an algorithm is asked for in..."""
GRANTED_SHORT = 8e-3
"""... where results are rounded to bf16 in memory, two units in the last place..."""
GRANTED_ELSE = 1e-3
"""... of all others. A lost step of a sum, a wrong edge or a misplaced panel is of the order of 1."""
MOST_KEPT_BYTES = 128 << 20
"""Of results of kernels that are kept, for tiles of the same that are looked at later."""


@dataclass(frozen=True)
class Kernel:
    """A built kernel: its code, into how many tile tasks it is cut, its scratch, and which inputs are packed."""

    tile: Tile
    timer: Timer
    address: int
    tiles: int
    scratch_bytes: int
    packings: Mapping[int, Packing]

    @property
    def is_steered(self) -> bool:
        """Whether its weights say where others lie."""
        return any(isinstance(packing, Steered) for packing in self.packings.values())

    def run(self, operands: Operands, inputs: int) -> Sequence[np.ndarray]:
        """The memories of the outputs after one run on one lane."""
        table = np.array([[memory.ctypes.data + begin for memory, begin in operands]], np.uintp)
        scratch, nothing = allocate(self.scratch_bytes), (Region * 0)()
        sample = Sample(
            kernel=self.address,
            tables=table.ctypes.data,
            pointers=len(operands),
            copies=1,
            scratch=scratch.ctypes.data,
            tiles=self.tiles,
            lanes=1,
            repeats=1,
            cold=ctypes.cast(nothing, ctypes.POINTER(Region)),
            warm=ctypes.cast(nothing, ctypes.POINTER(Region)),
        )
        self.timer.time(sample)
        return [memory for memory, _ in operands[inputs:]]


@dataclass
class Results:
    """What is known of results, by workload key. `loops` builds plain loops of a workload; None where it cannot."""

    loops: Callable[[Workload], Kernel | None]
    seed: int = 0
    _right: dict[str, Sequence[np.ndarray]] = field(default_factory=dict, init=False, repr=False)

    def fault(self, workload: Workload, key: str, kernel: Kernel, others: Sequence[Kernel]) -> str:
        """What is wrong with a kernel's results; empty for right ones, and where nothing can be said.

        `others` are of the same workload; one of another algorithm is the better witness. Nothing can be said without
        any, of routines, whose results may be in any order among equals, of operands that are too large, of kernels
        whose weights steer them (`Steered`: random ones would not), and where there are no plain loops.
        """
        others = [other for other in others if not other.is_steered]
        is_alone = not others and key not in self._right
        if (
            is_alone
            or kernel.is_steered
            or isinstance(workload.kernel, Routine)
            or operand_bytes(workload) > MOST_BYTES
        ):
            return ""
        inputs = inputs_of(workload, self.seed)

        def results(one: Kernel) -> list[np.ndarray]:
            return computed(workload, one.packings, inputs, lambda operands: one.run(operands, len(inputs)))

        found = results(kernel)
        right = self._right.get(key)
        if right is None:
            for other in sorted(others, key=lambda other: other.tile.algorithm == kernel.tile.algorithm)[:1]:
                if not difference(
                    found, results(other), max(granted(kernel.tile, workload), granted(other.tile, workload))
                ):
                    self._keep(key, found)
                    return ""
            plain = self.loops(workload)
            if plain is None:
                return ""
            right = results(plain)
            self._keep(key, right)
        return difference(found, right, granted(kernel.tile, workload))

    def _keep(self, key: str, right: Sequence[np.ndarray]) -> None:
        self._right[key] = right
        while (
            len(self._right) > 1 and sum(one.nbytes for kept in self._right.values() for one in kept) > MOST_KEPT_BYTES
        ):
            del self._right[next(iter(self._right))]


def granted(tile: Tile, workload: Workload) -> float:
    """By how much right results may differ."""
    short = any(buffer.element for buffer in workload.outputs)
    return max(GRANTED.get(BY_NAME[tile.algorithm].precision, GRANTED_ELSE), GRANTED_SHORT if short else 0.0)
