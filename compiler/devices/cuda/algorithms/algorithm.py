"""What an algorithm of CUDA targets is: the tiles that it proposes and how it lowers a kernel under one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.target import CudaTarget
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

Tiles = Callable[[Workload, CudaTarget, str], list[Proposal]]
"""The legal tiles of one workload on one target, in a job's precision. Empty for a kernel that the algorithm does not
take."""
Lower = Callable[[str, Workload, Tile, CudaTarget], CudaLowered]
"""A kernel as CUDA C++ of a name, under a tile that the algorithm proposed."""


@dataclass(frozen=True)
class CudaAlgorithm:
    """One way to carry out a kernel.

    names    what its tiles call it (`Tile.algorithm`): one for each unit that multiplies
    in_fp32  of these, those under which no operand is rounded beyond fp32
    """

    names: tuple[str, ...]
    tiles: Tiles
    lower: Lower
    in_fp32: frozenset[str] = frozenset()
