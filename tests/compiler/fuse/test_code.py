"""What fusion makes of copies and maps, run on cores and on the double of a GPU.

It is carried out by the algorithms that are chosen for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx

from compiler.devices.cpu.target import resolve
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve as resolve_cuda
from compiler.devices.kinds import propose
from compiler.fuse import fuse
from compiler.ir.buffers import KernelGraph
from compiler.ir.kernel import Kernel
from tests.compiler.devices.cpu import library
from tests.compiler.devices.cpu.library import Case, array_of
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.on_double import Subject, needs_double
from tests.compiler.fuse.test_fuse import cell, pointwise, shuffled
from tests.compiler.networks import Network, graph_of


def unit_of_shufflenet() -> onnx.ModelProto:
    net = Network()
    mixed = shuffled(net, pointwise(net, net.input(1, 16, 5, 5), 32, 5), 2)
    halves = []
    for first in (0, 16):
        ends = [net.constant(np.array([end], np.int64)) for end in (first, first + 16, 1)]
        halves.append(net.node("Slice", [mixed, *ends], (1, 16, 5, 5)))
    joined = net.node("Concat", [halves[0], pointwise(net, halves[1], 16, 5)], (1, 32, 5, 5), axis=1)
    return net.model([pointwise(net, joined, 8, 5)])


def factorized_reduction() -> onnx.ModelProto:
    net = Network()
    x = pointwise(net, net.input(1, 16, 7, 7), 16, 7)
    padded = net.node("Pad", [x, net.constant(np.array([0, 0, 0, 0, 0, 0, 1, 1]))], (1, 16, 8, 8))
    ends = [net.constant(np.array(end, np.int64)) for end in ([1, 1], [8, 8], [2, 3])]
    shifted = net.node("Slice", [padded, *ends], (1, 16, 7, 7))
    return net.model([pointwise(net, shifted, 8, 4, strides=[2, 2])])


def block_of_convnext() -> onnx.ModelProto:
    net = Network()
    x = net.node("Conv", [net.input(1, 16, 6, 6), net.weight(16, 1, 3, 3)], (1, 16, 6, 6), pads=[1] * 4, group=16)
    y = net.node("Transpose", [x], (1, 6, 6, 16), perm=[0, 2, 3, 1])
    y = net.node(
        "Transpose", [net.node("MatMul", [y, net.weight(16, 16)], (1, 6, 6, 16))], (1, 16, 6, 6), perm=[0, 3, 1, 2]
    )
    return net.model([pointwise(net, net.node("Add", [x, y], (1, 16, 6, 6)), 8, 6)])


def layer_of_densenet() -> onnx.ModelProto:
    net = Network()
    x = pointwise(net, net.input(1, 16, 6, 6), 16, 6)
    joined = net.node("Concat", [x, pointwise(net, x, 16, 6)], (1, 32, 6, 6), axis=1)
    y = net.node("Mul", [joined, net.weight(1, 32, 1, 1)], (1, 32, 6, 6))
    y = net.node("Relu", [net.node("Add", [y, net.weight(1, 32, 1, 1)], (1, 32, 6, 6))], (1, 32, 6, 6))
    whole = net.node("Concat", [joined, pointwise(net, y, 8, 6)], (1, 40, 6, 6), axis=1)
    return net.model([pointwise(net, whole, 8, 6)])


def kernel_graphs() -> Iterator[KernelGraph]:
    models = (unit_of_shufflenet(), factorized_reduction(), block_of_convnext(), layer_of_densenet())
    for model in (*models, cell(), cell(also="Softmax")):
        yield fuse(graph_of(model)).kernels


def cases() -> Iterator[Case]:
    """Every kernel that computes, on the buffers it has in its model."""
    random = np.random.default_rng(2)
    for kernels in kernel_graphs():
        for call in kernels.calls:
            kernel = call.kernel
            assert isinstance(kernel, Kernel)
            if "Conv" in kernel.family or "MatMul" in kernel.family:
                buffers = tuple(replace(kernels.buffers[id], offset=0) for id in (*call.inputs, *call.outputs))
                inputs = tuple(array_of(slot.type, random) for slot in kernel.inputs)
                constant = tuple(at for at, id in enumerate(call.inputs) if id in kernels.constants)
                yield Case(kernel, buffers, inputs, constant=constant, tolerance=1e-4)


def test_c_carries_out_kernels_that_took_in_copies_and_maps() -> None:
    target = resolve("cpu:x86-64-v3")
    chosen = [replace(case, tile=propose(case.workload, target, 1)[0].tile) for case in cases()]
    dense = [case for case in chosen if all(array.shape[1:2] != (1,) for array in case.inputs)]
    assert {case.tile.algorithm for case in dense} == {"contraction"}
    library.check(chosen, target, "-O1")


@needs_double
def test_cuda_carries_out_kernels_that_took_in_copies_and_maps() -> None:
    target = resolve_cuda("cuda:sm_90")
    subjects = []
    for number, case in enumerate(cases()):
        workload = on_double.workload_of(case)
        tile = propose(workload, target, 1, precision="tf32")[0].tile
        subjects.append(
            Subject(replace(case, tile=tile, tolerance=4e-3), lower_cuda(f"k{number}", workload, tile, target))
        )
    on_double.check(subjects)
