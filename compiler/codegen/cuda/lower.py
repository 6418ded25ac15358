"""One kernel as CUDA C++, by the algorithm its tile names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from compiler.codegen.cuda.cu_attention import lower_cuda_attention
from compiler.codegen.cuda.cu_contraction import lower_cuda_contraction
from compiler.codegen.cuda.cu_excitation import lower_cuda_excitation
from compiler.codegen.cuda.cu_gemv import lower_cuda_gemv
from compiler.codegen.cuda.cu_integer import lower_cuda_integer
from compiler.codegen.cuda.cu_loops import lower_cuda_loops
from compiler.codegen.cuda.cu_recurrent import lower_cuda_recurrent
from compiler.codegen.cuda.cu_routine import lower_cuda_routine
from compiler.codegen.cuda.cu_separable import lower_cuda_separable
from compiler.codegen.cuda.cu_sequential import lower_cuda_sequential
from compiler.codegen.cuda.cu_transpose import lower_cuda_transpose
from compiler.codegen.cuda.cu_window import lower_cuda_window
from compiler.codegen.cuda.lowered import CudaLowered
from compiler.codegen.lowered import with_c_names
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.targets.cuda import CudaTarget

CUDA_ALGORITHMS: Mapping[str, Callable[[str, Workload, Tile, CudaTarget], CudaLowered]] = {
    "attention": lower_cuda_attention,
    "attention_tf32": lower_cuda_attention,
    "attention_3xtf32": lower_cuda_attention,
    "wgmma": lower_cuda_contraction,
    "mma": lower_cuda_contraction,
    "mma_tf32": lower_cuda_contraction,
    "mma_3xtf32": lower_cuda_contraction,
    "ffma": lower_cuda_contraction,
    "separable": lower_cuda_separable,
    "separable_tf32": lower_cuda_separable,
    "separable_3xtf32": lower_cuda_separable,
    "separable_ffma": lower_cuda_separable,
    "excitation": lower_cuda_excitation,
    "integer": lower_cuda_integer,
    "window": lower_cuda_window,
    "gemv": lower_cuda_gemv,
    "transpose": lower_cuda_transpose,
    "loops": lower_cuda_loops,
    "recurrent": lower_cuda_recurrent,
    "sequential": lower_cuda_sequential,
    "routine": lower_cuda_routine,
}


def lower_cuda(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel as CUDA C++ called `name`. Raises KeyError for an algorithm that CUDA targets do not have."""
    workload = replace(workload, kernel=with_c_names(workload.kernel))
    return CUDA_ALGORITHMS[tile.algorithm](name, workload, tile, target)
