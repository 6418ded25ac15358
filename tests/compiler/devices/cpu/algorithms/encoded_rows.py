"""Products of few rows by a matrix that may be kept in an encoding, for tests of the algorithms that read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np

from compiler.devices.cpu.target import CpuTarget
from compiler.encodings.encoding import DENSE, Encoding
from compiler.ir.machine import Workload
from compiler.tuning.proposal import Proposal
from tests.compiler.devices.cpu.library import Case, Library
from tests.compiler.devices.cpu.wide import in_float64

E = TypeVar("E", bound=Encoding)
MATRIX = 1
"""The position of the matrix among a product's inputs."""


def encoded(workload: Workload, encoding: Encoding) -> Workload:
    """A workload whose matrix may be kept so."""
    each = ((DENSE, encoding) if position == MATRIX else (DENSE,) for position in range(len(workload.inputs)))
    return replace(workload, encodings=tuple(each))


@dataclass(frozen=True)
class EncodedCase(Case, Generic[E]):
    """A case whose workload tells of an encoding of its matrix."""

    encoding: E = field(kw_only=True)

    @property
    def workload(self) -> Workload:
        return encoded(super().workload, self.encoding)


def in_encoding(
    case: Case,
    encoding: E,
    matrix: np.ndarray,
    tiles: Callable[[Workload, CpuTarget, int], list[Proposal]],
    target: CpuTarget,
    lanes: int = 1,
) -> EncodedCase[E] | None:
    """The case with this matrix under the first tile that is offered; None where there is none."""
    inputs = tuple(matrix if position == MATRIX else array for position, array in enumerate(case.inputs))
    found = EncodedCase(case.kernel, case.buffers, inputs, constant=(MATRIX,), cuts=case.cuts, encoding=encoding)
    options = tiles(found.workload, target, lanes)
    return replace(found, tile=options[0].tile) if options else None


def agrees(drawn: Sequence[Case], target: CpuTarget, error: float = 4e-6) -> None:
    """Within an error, relative to the largest value, of the product in float64: by default fp32 rounding."""
    library = Library.of(drawn, target, optimise="-O1")
    for number, case in enumerate(drawn):
        wide = in_float64(case.kernel, case.inputs)
        for got, want in zip(library.run(number, case), wide, strict=True):
            scale = float(np.max(np.abs(want), initial=1e-3))
            worst = float(np.max(np.abs(got - want), initial=0.0))
            assert worst <= error * scale, f"{case}\n{library.lowered[number].text}"
