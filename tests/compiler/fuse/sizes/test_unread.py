"""What nobody reads beyond a size may be anything, and products that are read below one are told it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from compiler.forms.attention import as_any_attention
from compiler.forms.bounds import beyond_bounds, bounds_in
from compiler.fuse import fuse
from compiler.fuse.sizes.bounded import with_bounds
from compiler.ir.buffers import Buffer, KernelGraph
from compiler.ir.evaluate import evaluate
from compiler.ir.expr import Apply, Const, Expr, Position, Where, conjuncts
from compiler.ir.graph import Graph
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from compiler.measure.memory import allocate, operand, read_buffer, write_buffer
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.rewrite.sketch import Sketch
from tests.parse import parse_kernel_graph

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


def channelwise(s: Sketch, x: int, size: int) -> int:
    """Windows channel by channel read as far as they reach: no algorithm adds up more."""
    taps = {"kernel_shape": (3, 3), "pads": (1,) * 4}
    bounded = s("Relu", s("PadBeyond", conv(s, x), size, axis=2))
    pooled = s("Relu", s("PadBeyond", s("MaxPool", bounded, **taps), size, axis=2))
    return s("PadBeyond", s("Conv", pooled, s.normal(4, 1, 3, 3), s.normal(4), group=4, **taps), size, axis=2)


def shared(s: Sketch, x: int, size: int) -> int:
    """Of two readers one knows no size."""
    bounded = s("PadBeyond", conv(s, x), size, axis=0)
    return s("Add", s("PadBeyond", conv(s, bounded), size, axis=0), s("ReduceMax", bounded, axes=(0,), keepdims=1))


def attention(s: Sketch, x: int, size: int) -> int:
    """Its keys end with its queries, and are no axis of what it stores."""
    rows = s("Reshape", x, shape=(1, 1, BATCH, 4 * 36), allowzero=1)
    queries, keys, values = (s("PadBeyond", s("MatMul", rows, s.normal(144, 8)), size, axis=2) for _ in range(3))
    scores = s("MatMul", queries, s("Transpose", keys, perm=(0, 1, 3, 2)))
    seen = s("Softmax", s("PadBeyond", scores, size, axis=3, value=float("-inf")), axis=-1)
    mixed = s("PadBeyond", s("MatMul", seen, values), size, axis=2)
    return s("PadBeyond", s("MatMul", s("Reshape", mixed, shape=(BATCH, 8), allowzero=1), s.normal(8, 3)), size, axis=0)


CASES: Mapping[str, tuple[Build, bool]] = {
    "convolutions": (convolutions, True),
    "flattened": (flattened, True),
    "summed": (summed, True),
    "attention": (attention, True),
    "windows": (windows, False),
    "channelwise": (channelwise, False),
    "shared": (shared, False),
}


def graph_of(name: str) -> Graph:
    s = Sketch(dtype=DType.F32)
    x, size = s.x(BATCH, 4, 6, 6), s.x(dtype=DType.I64)
    return s.graph(CASES[name][0](s, x, size))


def poisoned(kernel: Kernel) -> Kernel:
    """With NaN where there are zeros beyond a size."""
    conditions = {
        Apply("lt", (Position(bound.place), bound.size)) for bound in (one.bound for one in beyond_bounds(kernel))
    }

    def write(expr: Expr) -> Expr:
        if isinstance(expr, Where) and conditions & {*conjuncts(expr.condition)} and expr.dtype.is_float:
            return Where(expr.condition, expr.then, Const(float("nan"), expr.dtype))
        return expr

    blocks = tuple(replace(one, values=tuple(value.transform(write) for value in one.values)) for one in kernel.blocks)
    return replace(kernel, blocks=blocks)


def ends_of(kernel: Kernel, given: Sequence[np.ndarray], buffer: Buffer) -> Iterator[tuple[int, int]]:
    """Dimensions of a result, and from where on its elements may be anything."""
    sizes = {slot.name: array for slot, array in zip(kernel.inputs, given, strict=True)}
    stores = [
        store for block in kernel.blocks for store in block.stores if store.slot in {s.name for s in kernel.outputs}
    ]
    for dim, margin in enumerate(buffer.margins):
        for bound in bounds_in(kernel) if margin >= 0 else ():
            if all(store.index[dim] == bound.place for store in stores):
                yield dim, int(sizes[bound.size.slot]) + margin


def run(kernels: KernelGraph, inputs: Mapping[int, np.ndarray]) -> list[np.ndarray]:
    """Call by call, with NaN wherever a result may be anything."""
    memories = {storage: allocate(count) for storage, count in kernels.storage_bytes.items()}
    for id, array in {**kernels.constants, **inputs}.items():
        write_buffer(memories[kernels.buffers[id].storage], kernels.buffers[id], array)

    def read(id: int) -> np.ndarray:
        buffer = kernels.buffers[id]
        return read_buffer(operand(memories[buffer.storage], buffer), replace(buffer, offset=0))

    for call in kernels.calls:
        assert isinstance(call.kernel, Kernel)
        unread = [kernels.buffers[id].unread for id in call.outputs]
        kernel = poisoned(call.kernel) if all(unread) else call.kernel
        given = [read(id) for id in call.inputs]
        for id, array in zip(call.outputs, evaluate(kernel, given), strict=True):
            buffer = kernels.buffers[id]
            for dim, end in ends_of(call.kernel, given, buffer):
                array[(*(slice(None),) * dim, slice(max(end, 0), None))] = np.nan
            write_buffer(operand(memories[buffer.storage], buffer), replace(buffer, offset=0), array)
    return [read(id) for id in kernels.outputs]


@pytest.mark.parametrize("name", CASES)
def test_nothing_that_may_be_anything_is_read(name: str) -> None:
    graph = graph_of(name)
    kernels = fuse(graph).kernels
    inner = [buffer for id, buffer in kernels.buffers.items() if id not in kernels.outputs]
    assert any(buffer.unread for buffer in inner) is CASES[name][1]
    body = fuse(graph, is_body=True).kernels
    assert not any(body.buffers[id].unread for id in body.outputs)
    x, size = graph.inputs
    for count in (0, 1, 3, BATCH):
        array = np.random.default_rng(count).normal(size=(BATCH, 4, 6, 6)).astype(np.float32)
        array[count:] = 0
        inputs = {x: array, size: np.array(count)}
        (wanted,) = (evaluate_graph(graph, inputs, OPERATORS)[id] for id in graph.outputs)
        (found,) = run(kernels, inputs)
        if any(kernels.buffers[id].unread for id in kernels.outputs):
            axis = 2 if name in ("windows", "channelwise") else 0
            found, wanted = (np.take(array, range(count), axis) for array in (found, wanted))
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


LONGEST = 14


def chain(seed: int) -> tuple[Graph, list[tuple[int, int, int]]]:
    """Windows one after another over an axis, each as a stride, a reach and what it is padded by in all."""
    random, s = np.random.default_rng(seed), Sketch(dtype=DType.F32)
    x, size = s.x(1, 3, LONGEST), s.x(dtype=DType.I64)
    windows, most = [], LONGEST
    for _ in range(3):
        taps, dilation, stride = (int(random.integers(1, most + 1)) for most in (5, 3, 4))
        reach = (taps - 1) * dilation + 1
        pads = tuple(int(pad) for pad in random.integers(0, reach, 2))
        if (most + sum(pads) - reach) // stride < 1:
            continue
        weights = s.normal(3, 3, taps)
        moved = {"kernel_shape": (taps,), "pads": pads, "strides": (stride,), "dilations": (dilation,)}
        x = s("Conv", x, weights, s.normal(3), **moved)
        windows.append((stride, reach, sum(pads)))
        most = (most + sum(pads) - reach) // stride + 1
        more = sum(pads) - reach + stride * (1 + reach)
        quotient = s("Div", s("Add", size, s.c(more, dtype=DType.I64)), s.c(stride, dtype=DType.I64))
        size = s("Max", s("Sub", quotient, s.c(reach, dtype=DType.I64)), s.c(0, dtype=DType.I64))
        x = s("Relu", s("PadBeyond", x, size, axis=2))
    return s.graph(x), windows


def test_windows_read_so_far_behind_a_size_and_no_further() -> None:
    """NaN lies wherever a result may be anything: chains of convolutions at every size."""
    margins = 0
    for seed in range(8):
        graph, windows = chain(seed)
        kernels = fuse(graph).kernels
        margins += sum(bool(buffer.margins) for buffer in kernels.buffers.values())
        x, size = graph.inputs
        for count in range(LONGEST + 1):
            array = np.random.default_rng(count).normal(size=(1, 3, LONGEST)).astype(np.float32)
            array[..., count:] = 0
            inputs, end = {x: array, size: np.array(count)}, count
            for stride, reach, pads in windows:
                end = max((end + pads - reach) // stride + 1, 0)
            (wanted,) = (evaluate_graph(graph, inputs, OPERATORS)[id] for id in graph.outputs)
            (found,) = run(kernels, inputs)
            message = f"seed {seed}, size {count}"
            np.testing.assert_allclose(found[..., :end], wanted[..., :end], rtol=2e-4, atol=2e-4, err_msg=message)
    assert margins >= 6


def test_a_mark_is_printed_and_read_and_counts_for_keys_only_where_it_is() -> None:
    kernels = fuse(graph_of("convolutions")).kernels
    assert parse_kernel_graph(str(kernels), kernels.constants).buffers == kernels.buffers
    marked = next(buffer for buffer in kernels.buffers.values() if buffer.unread)
    assert "unread=True" in repr(marked)
    assert "unread" not in repr(replace(marked, unread=False))
    kernels = fuse(graph_of("windows")).kernels
    assert parse_kernel_graph(str(kernels), kernels.constants).buffers == kernels.buffers
    marked = next(buffer for buffer in kernels.buffers.values() if buffer.margins)
    assert marked.margins == (-1, -1, 8, -1), "one for the window, seven for a tile of Winograd's largest form"
    channelwise = fuse(graph_of("channelwise")).kernels
    margins = {buffer.margins for id, buffer in channelwise.buffers.items() if id not in channelwise.outputs}
    assert margins == {(), (-1, -1, 1, -1)}, "one for each window"
    assert "margins=(-1, -1, 8, -1)" in repr(marked)
    assert "margins" not in repr(replace(marked, margins=()))


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
    (found,) = run(fuse(graph, is_body=True).kernels, inputs)
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


def test_attention_stores_no_zeros_behind_its_queries() -> None:
    kernels = fuse(graph_of("attention")).kernels
    (call,) = [call for call in kernels.calls if as_any_attention(call.kernel)]
    assert isinstance(call.kernel, Kernel)
    assert len([*bounds_in(call.kernel)]) > len(beyond_bounds(call.kernel)) == 1
    assert [kernels.buffers[id].unread for id in call.outputs] == [True]
