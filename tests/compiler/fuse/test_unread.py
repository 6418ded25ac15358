"""What nobody reads beyond a size may be anything, and products that are read below one are told it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from compiler.forms.bounds import beyond_bounds, bounds_in
from compiler.fuse import fuse
from compiler.fuse.bounded import with_bounds
from compiler.ir.buffers import KernelGraph
from compiler.ir.evaluate import evaluate
from compiler.ir.expr import Apply, Const, Expr, Position, Where, conjuncts
from compiler.ir.graph import Graph
from compiler.ir.kernel import Kernel
from compiler.ir.parse import parse_kernel_graph
from compiler.ir.tensor import DType
from compiler.measure.memory import allocate, operand, read_buffer, storage_bytes, write_buffer
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.rewrite.sketch import Sketch

BATCH = 5
Build = Callable[[Sketch, int, int], int]


def convolutions(s: Sketch, x: int, size: int) -> int:
    """A residual block over a batch: every element of the batch for itself."""
    first = s("Relu", s("PadBeyond", conv(s, x), size, axis=0))
    second = s("PadBeyond", s("Add", s("PadBeyond", conv(s, first), size, axis=0), first), size, axis=0)
    return s("PadBeyond", conv(s, s("Relu", second)), size, axis=0)


def conv(s: Sketch, x: int) -> int:
    return s("Conv", x, s.normal(4, 4, 3, 3), s.normal(4), kernel_shape=(3, 3), pads=(1,) * 4)


def flattened(s: Sketch, x: int, size: int) -> int:
    """Rows of a product that are elements of the batch and places together."""
    rows = s("Reshape", s("Relu", s("PadBeyond", conv(s, x), size, axis=0)), shape=(BATCH, 4 * 36), allowzero=1)
    hidden = s("PadBeyond", s("MatMul", rows, s.normal(144, 7)), size, axis=0)
    return s("PadBeyond", s("Softmax", s("Tanh", hidden), axis=1), size, axis=0)


def summed(s: Sketch, x: int, size: int) -> int:
    """The sum over the batch needs the zeros."""
    return s("ReduceSum", s("Relu", s("PadBeyond", conv(s, x), size, axis=0)), axes=(0,), keepdims=1)


def windows(s: Sketch, x: int, size: int) -> int:
    """An axis that windows go over: the zeros behind its end are read."""
    bounded = s("PadBeyond", conv(s, x), size, axis=2)
    return s("PadBeyond", conv(s, s("Relu", bounded)), size, axis=2)


def shared(s: Sketch, x: int, size: int) -> int:
    """Of two readers one knows no size."""
    bounded = s("PadBeyond", conv(s, x), size, axis=0)
    return s("Add", s("PadBeyond", conv(s, bounded), size, axis=0), s("ReduceMax", bounded, axes=(0,), keepdims=1))


CASES: Mapping[str, tuple[Build, bool]] = {
    "convolutions": (convolutions, True),
    "flattened": (flattened, True),
    "summed": (summed, False),
    "windows": (windows, False),
    "shared": (shared, False),
}


def graph_of(name: str) -> Graph:
    s = Sketch(dtype=DType.F32)
    x, size = s.x(BATCH, 4, 6, 6), s.x(dtype=DType.I64)
    return s.graph(CASES[name][0](s, x, size))


def poisoned(kernel: Kernel) -> Kernel:
    """With NaN where there are zeros beyond a size."""
    conditions = {Apply("lt", (Position(bound.place), bound.size)) for bound in bounds_in(kernel)}

    def write(expr: Expr) -> Expr:
        if isinstance(expr, Where) and conditions & {*conjuncts(expr.condition)} and expr.dtype.is_float:
            return Where(expr.condition, expr.then, Const(float("nan"), expr.dtype))
        return expr

    blocks = tuple(replace(one, values=tuple(value.transform(write) for value in one.values)) for one in kernel.blocks)
    return replace(kernel, blocks=blocks)


def run(kernels: KernelGraph, inputs: Mapping[int, np.ndarray]) -> list[np.ndarray]:
    """Call by call, with NaN wherever a result may be anything."""
    memories = {storage: allocate(count) for storage, count in storage_bytes(kernels).items()}
    for id, array in {**kernels.constants, **inputs}.items():
        write_buffer(memories[kernels.buffers[id].storage], kernels.buffers[id], array)

    def read(id: int) -> np.ndarray:
        buffer = kernels.buffers[id]
        return read_buffer(operand(memories[buffer.storage], buffer), replace(buffer, offset=0))

    for call in kernels.calls:
        assert isinstance(call.kernel, Kernel)
        unread = [kernels.buffers[id].unread for id in call.outputs]
        kernel = poisoned(call.kernel) if all(unread) else call.kernel
        for id, array in zip(call.outputs, evaluate(kernel, [read(id) for id in call.inputs]), strict=True):
            buffer = kernels.buffers[id]
            write_buffer(operand(memories[buffer.storage], buffer), replace(buffer, offset=0), array)
    return [read(id) for id in kernels.outputs]


@pytest.mark.parametrize("name", CASES)
def test_nothing_that_may_be_anything_is_read(name: str) -> None:
    graph = graph_of(name)
    kernels = fuse(graph).kernels
    assert any(buffer.unread for buffer in kernels.buffers.values()) is CASES[name][1]
    assert not any(kernels.buffers[id].unread for id in kernels.outputs)
    x, size = graph.inputs
    for count in (0, 1, 3, BATCH):
        array = np.random.default_rng(count).normal(size=(BATCH, 4, 6, 6)).astype(np.float32)
        array[count:] = 0
        inputs = {x: array, size: np.array(count)}
        (wanted,) = (evaluate_graph(graph, inputs, OPERATORS)[id] for id in graph.outputs)
        (found,) = run(kernels, inputs)
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


def test_a_mark_is_printed_and_read_and_counts_for_keys_only_where_it_is() -> None:
    kernels = fuse(graph_of("convolutions")).kernels
    assert parse_kernel_graph(str(kernels), kernels.constants).buffers == kernels.buffers
    marked = next(buffer for buffer in kernels.buffers.values() if buffer.unread)
    assert "unread=True" in repr(marked)
    assert "unread" not in repr(replace(marked, unread=False))


def split() -> Graph:
    """The sum of two products, of which the second alone is followed by what says the size."""
    s = Sketch(dtype=DType.F32)
    x, y, size = s.x(BATCH, 8), s.x(BATCH, 9), s.x(dtype=DType.I64)
    both = s("Add", s("MatMul", x, s.normal(8, 6)), s("MatMul", y, s.normal(9, 6)))
    return s.graph(s("PadBeyond", s("Relu", both), size, axis=0))


def test_products_that_are_read_below_a_size_are_told_it() -> None:
    graph = split()
    bounded = with_bounds(graph)
    assert [node.op for node in bounded.nodes].count("PadBeyond") == 3
    assert bounded.outputs == graph.outputs
    kernels = [call.kernel for call in fuse(graph).kernels.calls]
    assert len(kernels) == 2
    assert all(isinstance(kernel, Kernel) and beyond_bounds(kernel) for kernel in kernels)
    arrays = [np.random.default_rng(1).normal(size=graph.type(id).dims).astype(np.float32) for id in graph.inputs[:2]]
    inputs = dict(zip(graph.inputs, (*arrays, np.array(3)), strict=True))
    (wanted,) = (evaluate_graph(graph, inputs, OPERATORS)[id] for id in graph.outputs)
    (found,) = run(fuse(graph).kernels, inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_product_is_told_through_a_reshape_that_leaves_the_axis() -> None:
    def bounds(*shape: int) -> int:
        s = Sketch(dtype=DType.F32)
        x, size = s.x(BATCH, 8), s.x(dtype=DType.I64)
        moved = s("Reshape", s("MatMul", x, s.normal(8, 6)), shape=shape, allowzero=1)
        graph = s.graph(s("PadBeyond", s("Relu", moved), size, axis=0))
        return [node.op for node in with_bounds(graph).nodes].count("PadBeyond")

    assert bounds(BATCH, 2, 3) == 2
    assert bounds(2, BATCH, 3) == 1


def test_a_graph_without_sizes_stays_as_it_is() -> None:
    s = Sketch(dtype=DType.F32)
    graph = s.graph(s("Relu", s("MatMul", s.x(3, 4), s.normal(4, 5))))
    assert with_bounds(graph) is graph


def test_a_product_that_something_reads_whole_is_not_told() -> None:
    s = Sketch(dtype=DType.F32)
    x, size = s.x(BATCH, 8), s.x(dtype=DType.I64)
    product = s("MatMul", x, s.normal(8, 6))
    below = s("PadBeyond", s("Relu", product), size, axis=0)
    graph = s.graph(below, s("ReduceSum", product, axes=(0,), keepdims=0))
    assert with_bounds(graph) is graph
