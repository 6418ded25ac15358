"""One kernel as CUDA C++, by the algorithm its tile names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

from compiler.codegen.cuda.cu_loops import lower_cuda_loops
from compiler.codegen.cuda.lowered import CudaLowered
from compiler.codegen.lowered import with_c_names
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.targets.cuda import CudaTarget

CUDA_ALGORITHMS: Mapping[str, Callable[[str, Workload, Tile, CudaTarget], CudaLowered]] = {
    "loops": lambda name, workload, tile, target: lower_cuda_loops(
        name, workload, tile.extent("block", "team") or None
    ),
}


def lower_cuda(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel as CUDA C++ called `name`. Raises KeyError for an algorithm that CUDA targets do not have."""
    workload = replace(workload, kernel=with_c_names(workload.kernel))
    return CUDA_ALGORITHMS[tile.algorithm](name, workload, tile, target)


@lru_cache(maxsize=4096)
def count_blocks(workload: Workload, tile: Tile, target: CudaTarget) -> int:
    """How many tile tasks a kernel has under a tile: the blocks of its grid."""
    return lower_cuda("kernel", workload, tile, target).grid
