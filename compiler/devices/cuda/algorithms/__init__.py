"""The algorithms of CUDA targets, one module each: which kernels it takes, its legal tiles with costs, its lowering.

attention      both products and the softmax between them, the scores in registers
contraction    products and convolutions by tensor cores or multiply-adds, block tile by block tile; by warpgroups on
               sm_90a
image          convolutions of few channels, from an image in shared memory
separable      a window channel by channel and the product over its channels, the window's results in shared memory
excitation     the mean of each channel and two small products of it (squeeze and excitation), by blocks that meet once
sparse         products by weights that are zero at two of each four places, by sparse tensor cores, of bytes too;
               by warpgroups on sm_90a
vector_sparse  products by weights whose zeros lie at the same places of k for neighbouring columns, of bytes too
quantised      products of many rows by codes of few bits, which become floats on their way to shared memory
integer        products of bytes with zero points, exactly in int32; by warpgroups on sm_90a (`integer_wgmma`)
window         sums and extremes over a window, channel by channel: the window slides in registers
gemv           a few rows times a constant matrix, which is read once; of few bits as codes
transpose      maps that read along one axis and write along another, through shared memory
recurrent      recurrent layers: hidden units dealt out to a cluster of blocks, which exchange the state
loops          teams of threads for each point, step after step where there is an order: any loop nest
routine        what is no loop nest, written by hand
region         loops and branches that are decided while running, around kernels of all the others

algorithm      what an algorithm is
"""

from collections.abc import Mapping
from dataclasses import replace

from compiler.codegen.functions import with_c_names
from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.attention import ATTENTION
from compiler.devices.cuda.algorithms.contraction import CONTRACTION, WGMMA
from compiler.devices.cuda.algorithms.excitation import EXCITATION
from compiler.devices.cuda.algorithms.gemv import GEMV
from compiler.devices.cuda.algorithms.image import IMAGE
from compiler.devices.cuda.algorithms.integer import INTEGER
from compiler.devices.cuda.algorithms.integer_wgmma import INTEGER_WGMMA
from compiler.devices.cuda.algorithms.loops import LOOPS
from compiler.devices.cuda.algorithms.normalised import NORMALISED
from compiler.devices.cuda.algorithms.quantised import QUANTISED
from compiler.devices.cuda.algorithms.recurrent import RECURRENT
from compiler.devices.cuda.algorithms.region import region_algorithm
from compiler.devices.cuda.algorithms.routine import ROUTINE
from compiler.devices.cuda.algorithms.separable import SEPARABLE
from compiler.devices.cuda.algorithms.sparse import SPARSE, SPARSE_WGMMA
from compiler.devices.cuda.algorithms.transpose import TRANSPOSE
from compiler.devices.cuda.algorithms.vector_sparse import VECTOR_SPARSE
from compiler.devices.cuda.algorithms.window import WINDOW
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.target import CudaTarget
from compiler.encodings.quantised import READ_BY, WORTH_BYTES
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal, without_dense

ALGORITHMS: tuple[CudaAlgorithm, ...] = (
    ATTENTION,
    CONTRACTION,
    IMAGE,
    SEPARABLE,
    EXCITATION,
    NORMALISED,
    WGMMA,
    SPARSE,
    SPARSE_WGMMA,
    VECTOR_SPARSE,
    QUANTISED,
    INTEGER,
    INTEGER_WGMMA,
    WINDOW,
    GEMV,
    TRANSPOSE,
    RECURRENT,
)
"""All are asked; of several tiles that cost the same the first proposed is taken."""


READ_CODES = (READ_BY, *QUANTISED.names)
"""Algorithms that read a constant as codes of few bits."""


def legal_tiles(workload: Workload, target: CudaTarget, lanes: int, precision: str) -> list[Proposal]:
    """What every algorithm proposes; loops, routines and regions take what is left. Launches have no `lanes`.

    Where codes of few bits can be read, what makes them dense is left out unless the model of costs says that it is
    faster by more than WORTH_BYTES.
    """
    proposed = [option for one in ALGORITHMS for option in one.tiles(workload, target, precision)]
    proposed = without_dense(proposed, READ_CODES, WORTH_BYTES)
    return proposed or [option for one in ALWAYS for option in one.tiles(workload, target, precision)]


def lowered(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel as CUDA C++, with names that clash with nothing there, by the algorithm that its tile names.

    Raises KeyError for an algorithm that there is not.
    """
    workload = replace(workload, kernel=with_c_names(workload.kernel))
    return BY_NAME[tile.algorithm].lower(name, workload, tile, target)


ALWAYS: tuple[CudaAlgorithm, ...] = (LOOPS, ROUTINE, region_algorithm(legal_tiles, lowered))
"""Those that take whatever no other does."""
BY_NAME: Mapping[str, CudaAlgorithm] = {name: one for one in (*ALGORITHMS, *ALWAYS) for name in one.names}
"""By what tiles call them."""
