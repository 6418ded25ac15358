"""Teams of threads for each point of any kernel, step after step where its axes have an order.

tiles       the one tile and what it should take
lowering    maps, reductions, several blocks at a point
sequential  the same with steps: scans, scatters, recurrent layers in general
team        the threads that compute a point together
reduction   how they combine
vectors     what they take by 16 bytes
"""

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.loops.lowering import lower_cuda_loops
from compiler.devices.cuda.algorithms.loops.sequential import lower_cuda_sequential
from compiler.devices.cuda.algorithms.loops.tiles import cuda_loop_tiles
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.target import CudaTarget
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile


def lower(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """By the form that the tile names."""
    form = lower_cuda_sequential if tile.algorithm == "sequential" else lower_cuda_loops
    return form(name, workload, tile, target)


LOOPS = CudaAlgorithm(
    (
        "loops",
        "sequential",
    ),
    cuda_loop_tiles,
    lower,
    in_fp32=frozenset({"loops"}),
)
