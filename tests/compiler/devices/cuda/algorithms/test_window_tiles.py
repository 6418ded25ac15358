"""Who takes the windows and the products of one row of mobile networks on a GPU, and how they fill it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod

import pytest

from bench.zoo import build
from compiler.contract import CompileOptions
from compiler.devices.cuda.algorithms import ALGORITHMS
from compiler.devices.cuda.algorithms.window.tiles import cuda_window_tiles
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import PROFILES
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.fuse.storage import with_storage
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.rewrite import rewrite
from compiler.tuning.proposal import Proposal

H200 = next(target for target in PROFILES if target.architecture == "sm_90a")


@lru_cache(maxsize=2)
def workloads(name: str) -> Mapping[Workload, int]:
    """The workloads of a network in fp16, and how often each occurs."""
    graph = load(build(name).SerializeToString(), CompileOptions(), OPERATORS).graph
    kernels = with_storage(fuse(rewrite(graph).graph).kernels, DType.F16)
    found: dict[Workload, int] = {}
    for call in kernels.calls:
        workload = cuda_workload_of(kernels, call)
        found[workload] = found.get(workload, 0) + 1
    return found


@lru_cache(maxsize=512)
def best(workload: Workload) -> Proposal | None:
    proposals = [option for algorithm in ALGORITHMS for option in algorithm.tiles(workload, H200, "fp16")]
    return min(proposals, key=lambda option: option.seconds, default=None)


def expected(workload: Workload) -> str:
    """Which algorithm should take a kernel, by its operators and shapes alone; "" where that is for others to say."""
    kernel = workload.kernel
    if not isinstance(kernel, Kernel) or not any(block.reduction for block in kernel.blocks):
        return ""
    if "Pool" in kernel.family and prod(axis.extent for axis in kernel.blocks[0].reduction) > 1:
        return "window"
    output = kernel.outputs[0].type.dims
    if kernel.family.startswith("Conv") and kernel.inputs[1].type.dims[1] == 1 < output[1]:
        return "window"
    rows = prod(output) // output[1]
    return "gemv" if kernel.family.startswith(("Conv", "Gemm", "MatMul")) and rows == 1 else ""


@pytest.mark.parametrize(
    ("name", "windows", "products"),
    [("mobilenet_v2", 18, 1), ("nasnet_a_mobile", 197, 1), ("mobilenet_v3_large", 24, 18)],
)
def test_windows_and_products_of_one_row_have_kernels_of_their_own(name: str, windows: int, products: int) -> None:
    taken = {"window": 0, "gemv": 0}
    for workload, count in workloads(name).items():
        option, wanted = best(workload), expected(workload)
        algorithm = option.tile.algorithm if option else "loops"
        assert not wanted or algorithm == wanted, f"{algorithm}\n{workload}"
        if algorithm in taken:
            taken[algorithm] += count
    assert taken == {"window": windows, "gemv": products}


@pytest.mark.parametrize("name", ["mobilenet_v2", "nasnet_a_mobile"])
def test_the_best_tiles_of_windows_give_most_multiprocessors_something_to_do(name: str) -> None:
    judged = 0
    for workload in workloads(name):
        option = best(workload)
        if option is None or option.tile.algorithm != "window":
            continue
        judged += 1
        threads = lower_cuda("kernel", workload, option.tile, H200).grid * option.tile.extent("block", "threads")
        elements = prod(workload.kernel.outputs[0].type.dims)
        assert (
            lower_cuda("kernel", workload, option.tile, H200).grid >= min(H200.multiprocessors, elements // 64) // 2
        ), option
        assert threads >= 64 * H200.multiprocessors or elements < 128 * H200.multiprocessors, option
    assert judged


def test_a_long_reduction_to_few_outputs_is_shared_out() -> None:
    """A global average of 28 x 28 positions at 72 channels.

    Nine threads for all of it would wait for one another 784 times.
    """
    (workload,) = (
        one
        for one in workloads("mobilenet_v3_large")
        if "GlobalAveragePool" in one.kernel.family and "72, 28" in one.shapes
    )
    first = cuda_window_tiles(workload, H200, "fp16")[0].tile
    assert first.extent("block", "parts") * first.extent("grid", "parts", 1) >= 64
