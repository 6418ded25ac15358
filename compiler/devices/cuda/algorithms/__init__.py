"""The algorithms of CUDA targets, one module each: which kernels it takes, its legal tiles with costs, its lowering.

attention    both products and the softmax between them, the scores in registers
contraction  products and convolutions by tensor cores or multiply-adds, block tile by block tile; by warpgroups on
             sm_90a
separable    a window channel by channel and the product over its channels, the window's results in shared memory
excitation   the mean of each channel and two small products of it (squeeze and excitation), by blocks that meet once
integer      products of bytes with zero points, exactly in int32
window       sums and extremes over a window, channel by channel: the window slides in registers
gemv         a few rows times a constant matrix, which is read once
transpose    maps that read along one axis and write along another, through shared memory
recurrent    recurrent layers: hidden units dealt out to a cluster of blocks, which exchange the state
loops        teams of threads for each point, step after step where there is an order: any loop nest
routine      what is no loop nest, written by hand

algorithm    what an algorithm is
model        what all of them cost beside their work
"""

from collections.abc import Mapping

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.attention import ATTENTION
from compiler.devices.cuda.algorithms.contraction import CONTRACTION, WGMMA
from compiler.devices.cuda.algorithms.excitation import EXCITATION
from compiler.devices.cuda.algorithms.gemv import GEMV
from compiler.devices.cuda.algorithms.integer import INTEGER
from compiler.devices.cuda.algorithms.loops import LOOPS
from compiler.devices.cuda.algorithms.recurrent import RECURRENT
from compiler.devices.cuda.algorithms.routine import ROUTINE
from compiler.devices.cuda.algorithms.separable import SEPARABLE
from compiler.devices.cuda.algorithms.transpose import TRANSPOSE
from compiler.devices.cuda.algorithms.window import WINDOW
from compiler.devices.cuda.target import CudaTarget
from compiler.ir.machine import Workload
from compiler.tuning.proposal import Proposal

ALGORITHMS: tuple[CudaAlgorithm, ...] = (
    ATTENTION,
    CONTRACTION,
    SEPARABLE,
    EXCITATION,
    WGMMA,
    INTEGER,
    WINDOW,
    GEMV,
    TRANSPOSE,
    RECURRENT,
)
"""All are asked; of several tiles that cost the same the first proposed is taken."""
ALWAYS: tuple[CudaAlgorithm, ...] = (LOOPS, ROUTINE)
"""Those that take whatever no other does."""
BY_NAME: Mapping[str, CudaAlgorithm] = {name: one for one in (*ALGORITHMS, *ALWAYS) for name in one.names}
"""By what tiles call them."""


def legal_tiles(workload: Workload, target: CudaTarget, lanes: int, precision: str) -> list[Proposal]:
    """What every algorithm proposes; loops and routines take what nothing else does. Launches have no `lanes`."""
    proposed = [option for one in ALGORITHMS for option in one.tiles(workload, target, precision)]
    return proposed or [option for one in ALWAYS for option in one.tiles(workload, target, precision)]
