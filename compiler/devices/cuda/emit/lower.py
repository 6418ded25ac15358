"""One kernel as CUDA C++, by the algorithm its tile names."""

from __future__ import annotations

from compiler.devices.cuda.algorithms import lowered
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.target import CudaTarget
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile


def lower_cuda(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel as CUDA C++ called `name`. Raises KeyError for an algorithm that CUDA targets do not have."""
    return lowered(name, workload, tile, target)
