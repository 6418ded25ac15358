from __future__ import annotations

import numpy as np
import pytest

from compiler.codegen.calls import workload_of
from compiler.devices.cpu.algorithms.loops.tiles import loop_tiles
from compiler.devices.cpu.target import CpuTarget, resolve
from compiler.devices.cuda.algorithms.loops.tiles import cuda_loop_tiles
from compiler.devices.cuda.target import resolve as resolve_cuda
from compiler.fuse import fuse
from compiler.ir.buffers import Buffer, KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.tensor import Layout
from tests.compiler.networks import Network, graph_of

PLAIN, LAST = Layout.plain(4), Layout.channels_last(4)


@pytest.fixture
def cpu() -> CpuTarget:
    return resolve("cpu:x86-64-v3")


def kernels_of(net: Network, *outputs: str) -> KernelGraph:
    return fuse(graph_of(net.model(list(outputs)))).kernels


def pooled(side: int, operand: Layout, result: Layout) -> Workload:
    """A MaxPool of 32 channels with stride 2 under some layouts."""
    net = Network()
    y = net.node(
        "MaxPool", [net.input(1, 32, side, side)], (1, 32, side // 2, side // 2), kernel_shape=[2, 2], strides=[2, 2]
    )
    kernels = kernels_of(net, y)
    (call,) = kernels.calls
    bound = {id: layout for ids, layout in ((call.inputs, operand), (call.outputs, result)) for id in ids}
    buffers = {id: Buffer.whole(id, kernels.buffers[id].type, layout) for id, layout in bound.items()}
    return workload_of(KernelGraph(buffers, (call,), kernels.inputs, kernels.outputs), call)


def ns(workload: Workload, cpu: CpuTarget) -> float:
    (only,) = loop_tiles(workload, cpu, 1)
    return 1e9 * only.seconds


@pytest.mark.parametrize("side", [16, 128])
def test_windows_whose_vectors_lie_along_memory_cost_less_than_those_whose_elements_are_apart(
    side: int, cpu: CpuTarget
) -> None:
    along = ns(pooled(side, LAST, LAST), cpu)
    assert along < ns(pooled(side, LAST, PLAIN), cpu)
    assert 4 * along < ns(pooled(side, PLAIN, LAST), cpu)


def test_elements_that_are_apart_cost_more_where_operands_do_not_stay_in_the_second_level_cache(cpu: CpuTarget) -> None:
    near, far = (ns(pooled(side, LAST, PLAIN), cpu) / side**2 for side in (32, 256))
    assert far > 2 * near


def test_a_transposition_by_squares_costs_less_than_elements_one_by_one(cpu: CpuTarget) -> None:
    net = Network()
    transposed = kernels_of(net, net.node("Transpose", [net.input(1, 64, 64, 64)], (1, 64, 64, 64), perm=[0, 2, 3, 1]))
    (call,) = transposed.calls
    assert ns(workload_of(transposed, call), cpu) < ns(pooled(128, LAST, PLAIN), cpu)


def test_more_operations_cost_more_and_those_that_are_no_instruction_most(cpu: CpuTarget) -> None:
    def of(*ops: str) -> float:
        net = Network()
        x = net.input(1, 16, 16, 16)
        for op in ops:
            x = net.node(op, [x], (1, 16, 16, 16))
        kernels = kernels_of(net, x)
        return ns(workload_of(kernels, kernels.calls[0]), cpu)

    assert of("Neg") < of(*["Neg", "Relu"] * 8) < of(*["Tanh", "Relu"] * 8)


def test_values_stored_where_others_say_cost_more_than_those_read_so(cpu: CpuTarget) -> None:
    net = Network()
    x = net.input(1024, 64)
    places = net.constant(np.arange(1024, dtype=np.int64))
    gathered = kernels_of(net, net.node("Gather", [x, places], (1024, 64)))
    net = Network()
    x, updates = net.input(1024, 64), net.input(1024, 64)
    places = net.constant(np.arange(1024, dtype=np.int64)[:, None])
    scattered = kernels_of(net, net.node("ScatterND", [x, places, updates], (1024, 64)))
    assert ns(workload_of(gathered, gathered.calls[-1]), cpu) < ns(workload_of(scattered, scattered.calls[-1]), cpu)


def test_on_a_gpu_neighbouring_threads_that_read_apart_fetch_sectors_of_their_own() -> None:
    target = resolve_cuda("cuda:sm_90")
    along, apart = (cuda_loop_tiles(pooled(256, operand, LAST), target, "fp32")[0].seconds for operand in (LAST, PLAIN))
    assert along < apart


def test_on_a_gpu_a_window_costs_its_loads_though_it_touches_no_more_elements() -> None:
    target = resolve_cuda("cuda:sm_90")

    def of(taps: int) -> float:
        net = Network()
        side = 64
        y = net.node(
            "MaxPool",
            [net.input(1, 64, side, side)],
            (1, 64, side, side),
            kernel_shape=[taps] * 2,
            pads=[taps // 2] * 4,
        )
        kernels = kernels_of(net, y)
        return cuda_loop_tiles(workload_of(kernels, kernels.calls[0]), target, "fp32")[0].seconds

    assert of(3) < of(9)
