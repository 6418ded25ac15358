"""The algorithms of CUDA targets, each listing its legal tiles for one workload on one target.

window       sums and extremes over a window, channel by channel: the window slides in registers
attention    both products and the softmax between them, the scores in registers
contraction  products and convolutions by tensor cores or multiply-adds, block tile by block tile
separable    a window channel by channel and the product over its channels, the window's results in shared memory
excitation   the mean of each channel and two small products of it (squeeze and excitation), by blocks that meet once
wgmma        large ones of 16-bit operands by warpgroups, with bulk copies of packed constants, on sm_90a
integer      products of bytes with zero points, exactly in int32
gemv         a few rows times a constant matrix, which is read once
transpose    maps that read along one axis and write along another, through shared memory
recurrent    recurrent layers: hidden units dealt out to a cluster of blocks, which exchange the state
sequential   step after step, teams of threads for points that never meet: always legal
routine      the hand-written form of what is no loop nest
loops        teams of threads for each point: always legal
"""

from collections.abc import Callable

from compiler.ir.machine import Workload
from compiler.targets.cuda import CudaTarget
from compiler.tile.algorithms.cuda.attention import cuda_attention_tiles
from compiler.tile.algorithms.cuda.contraction import cuda_contraction_tiles
from compiler.tile.algorithms.cuda.excitation import cuda_excitation_tiles
from compiler.tile.algorithms.cuda.gemv import cuda_gemv_tiles
from compiler.tile.algorithms.cuda.integer import cuda_integer_tiles
from compiler.tile.algorithms.cuda.loops import cuda_loop_tiles
from compiler.tile.algorithms.cuda.recurrent import cuda_recurrent_tiles
from compiler.tile.algorithms.cuda.separable import cuda_separable_tiles
from compiler.tile.algorithms.cuda.transpose import cuda_transpose_tiles
from compiler.tile.algorithms.cuda.wgmma import cuda_wgmma_tiles
from compiler.tile.algorithms.cuda.window import cuda_window_tiles
from compiler.tile.model import Proposal

CudaAlgorithm = Callable[[Workload, CudaTarget, str], list[Proposal]]
"""The legal tiles of one workload on one target, in a job's precision."""

CUDA_ALGORITHMS: tuple[CudaAlgorithm, ...] = (
    cuda_attention_tiles,
    cuda_contraction_tiles,
    cuda_separable_tiles,
    cuda_excitation_tiles,
    cuda_wgmma_tiles,
    cuda_integer_tiles,
    cuda_window_tiles,
    cuda_gemv_tiles,
    cuda_transpose_tiles,
    cuda_recurrent_tiles,
)
"""All are asked; `cuda_loop_tiles` only for a kernel that none of them takes."""

__all__ = ["CUDA_ALGORITHMS", "cuda_loop_tiles"]
