"""The algorithms of CUDA targets, each listing its legal tiles for one workload on one target.

loops        teams of threads for each point: always legal
"""

from collections.abc import Callable

from compiler.ir.machine import Workload
from compiler.targets.cuda import CudaTarget
from compiler.tile.algorithms.cuda.loops import cuda_loop_tiles
from compiler.tile.model import Proposal

CudaAlgorithm = Callable[[Workload, CudaTarget, str], list[Proposal]]
"""The legal tiles of one workload on one target, in a job's precision."""

CUDA_ALGORITHMS: tuple[CudaAlgorithm, ...] = ()
"""All are asked; `cuda_loop_tiles` only for a kernel that none of them takes."""

__all__ = ["CUDA_ALGORITHMS", "cuda_loop_tiles"]
