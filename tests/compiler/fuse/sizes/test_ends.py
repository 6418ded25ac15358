"""Sums end where what they sum is zero, and results where their readers do."""

from __future__ import annotations

import numpy as np

from compiler.forms.bounds import beyond_bounds, bounds_in
from compiler.fuse import fuse
from compiler.ir.graph import Graph
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.fuse.sizes.test_unread import run
from tests.compiler.rewrite.sketch import Sketch

LONGEST = 6


def times(s: Sketch, size: int, factor: int) -> int:
    return s("Mul", size, s.c(factor, dtype=DType.I64))


def upscaled(seed: int) -> tuple[Graph, int]:
    """A picture of which one axis is open: convolved, gated by its mean, enlarged in several ways, put side by side."""
    random, s = np.random.default_rng(seed), Sketch(seed, dtype=DType.F32)
    x, size = s.x(1, 3, LONGEST, 4), s.x(dtype=DType.I64)
    first = s("Relu", s("PadBeyond", s("Conv", x, s.normal(4, 3, 3, 3), s.normal(4), **same()), size, axis=2))
    gate = s("Sigmoid", s("ReduceSum", first, axes=(2, 3), keepdims=1))
    gated = s("PadBeyond", s("Mul", first, gate), size, axis=2)
    factor = int(random.integers(2, 4))
    scaled = {"scales": (1.0, 1.0, float(factor), float(factor)), "mode": "nearest"}
    near = s(
        "Resize", gated, None, None, None, coordinate_transformation_mode="asymmetric", nearest_mode="floor", **scaled
    )
    spread = s("ConvTranspose", gated, s.normal(4, 2, factor, factor), s.normal(2), **strides(factor))
    larger = times(s, size, factor)
    parts = [s("PadBeyond", part, larger, axis=2) for part in (near, s("Tanh", spread))]
    both = s("Concat", *parts, axis=1)
    last = s("Conv", both, s.normal(3, 6, 3, 3), s.normal(3), **same())
    finer = s("ConvTranspose", s("PadBeyond", last, larger, axis=2), s.normal(3, 2, 2, 2), None, **strides(2))
    return s.graph(s("PadBeyond", s("Sigmoid", finer), times(s, larger, 2), axis=2)), 2 * factor


def same() -> dict[str, tuple[int, ...]]:
    return {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}


def strides(factor: int) -> dict[str, tuple[int, ...]]:
    return {"kernel_shape": (factor, factor), "strides": (factor, factor)}


def test_nothing_beyond_an_end_is_seen_at_any_size() -> None:
    """NaN lies wherever a result may be anything."""
    for seed in range(3):
        graph, factor = upscaled(seed)
        kernels = fuse(graph).kernels
        x, size = graph.inputs
        for count in range(LONGEST + 1):
            array = np.random.default_rng(count).normal(size=(1, 3, LONGEST, 4)).astype(np.float32)
            array[:, :, count:] = 0
            inputs = {x: array, size: np.array(count)}
            (wanted,) = (evaluate_graph(graph, inputs, OPERATORS)[id] for id in graph.outputs)
            (found,) = run(kernels, inputs)
            end, message = factor * count, f"seed {seed}, size {count}"
            np.testing.assert_allclose(found[:, :, :end], wanted[:, :, :end], rtol=2e-4, atol=2e-4, err_msg=message)


def test_transposed_convolutions_and_sums_say_where_they_end() -> None:
    graph, _ = upscaled(0)
    kernels = fuse(graph).kernels
    made = {family: call for call in reversed(kernels.calls) for family in call.kernel.family.split("+")}
    spread, summed = made["ConvTranspose"].kernel, made["ReduceSum"].kernel
    assert isinstance(spread, Kernel)
    assert isinstance(summed, Kernel)
    sizes = {slot.name: id for slot, id in zip(spread.inputs, made["ConvTranspose"].inputs, strict=True)}
    ends = {
        sizes[one.bound.size.slot]
        for one in beyond_bounds(spread)
        if one.bound.place.axes <= {*spread.shared} and len(one.bound.place.axes) == 1
    }
    assert ends == {graph.inputs[1]}, "at the size of its own points, not at that of the elements it writes for each"
    reduced = {axis for block in summed.blocks for axis in block.reduction}
    assert any(bound.place.axes <= reduced for bound in bounds_in(summed))
    assert sum(buffer.unread or bool(buffer.margins) for buffer in kernels.buffers.values()) >= 5


def test_a_greatest_element_is_looked_for_among_zeros_too() -> None:
    """It has no end: beyond a size lie zeros, and all that lies below it may be less."""
    s = Sketch(0, dtype=DType.F32)
    x, size = s.x(1, 3, LONGEST, 4), s.x(dtype=DType.I64)
    first = s("PadBeyond", s("Sub", s("Abs", x), s.c(9.0)), size, axis=2)
    kernels = fuse(s.graph(s("ReduceMax", first, axes=(2, 3), keepdims=1), s("Relu", first))).kernels
    (found, _) = run(kernels, {x: np.ones((1, 3, LONGEST, 4), np.float32), size: np.array(2)})
    assert (found == 0).all()
    kernel = next(call.kernel for call in kernels.calls if call.kernel.family == "ReduceMax")
    assert isinstance(kernel, Kernel)
    assert not [*bounds_in(kernel)]


def test_a_size_that_is_a_view_of_a_sum_ends_what_makes_several_elements_for_each_point() -> None:
    s = Sketch(0, dtype=DType.F32)
    x, durations = s.x(1, 3, LONGEST, 4), s.x(3, dtype=DType.I64)
    total = s("ReduceSum", durations, axes=(0,), keepdims=1)
    size = s("Reshape", total, None, shape=(), allowzero=1)
    first = s("Relu", s("PadBeyond", s("Conv", x, s.normal(3, 3, 3, 3), s.normal(3), **same()), size, axis=2))
    spread = s("ConvTranspose", first, s.normal(3, 2, 2, 2), s.normal(2), **strides(2))
    graph = s.graph(s("Relu", s("PadBeyond", spread, times(s, size, 2), axis=2)))
    kernels = fuse(graph).kernels
    call = next(call for call in kernels.calls if "ConvTranspose" in call.kernel.family)
    assert size in call.inputs
    array = np.random.default_rng(1).normal(size=(1, 3, LONGEST, 4)).astype(np.float32)
    inputs = {x: array, durations: np.array([2, 0, 1])}
    (wanted,) = (evaluate_graph(graph, inputs, OPERATORS)[id] for id in graph.outputs)
    (found,) = run(kernels, inputs)
    np.testing.assert_allclose(found[:, :, :6], wanted[:, :, :6], rtol=2e-4, atol=2e-4)


def test_a_sum_with_a_residual_reads_nothing_of_it_beyond_the_size() -> None:
    s = Sketch(0, dtype=DType.F32)
    x, size = s.x(1, 3, LONGEST, 4), s.x(dtype=DType.I64)

    def convolved(value: int) -> int:
        return s("PadBeyond", s("Conv", value, s.normal(3, 3, 3, 3), s.normal(3), **same()), size, axis=2)

    first = convolved(x)
    one, other = (s("Add", convolved(s(op, first)), first) for op in ("Relu", "Tanh"))
    graph = s.graph(s("Sigmoid", convolved(s("Relu", s("Add", one, other)))))
    kernels = fuse(graph).kernels
    stored = [id for call in kernels.calls for id in call.outputs if id not in kernels.outputs]
    assert len(stored) > 1
    assert all(kernels.buffers[id].unread or kernels.buffers[id].margins for id in stored)
    array = np.random.default_rng(1).normal(size=(1, 3, LONGEST, 4)).astype(np.float32)
    inputs = {x: array, size: np.array(3)}
    (wanted,) = (evaluate_graph(graph, inputs, OPERATORS)[id] for id in graph.outputs)
    (found,) = run(kernels, inputs)
    np.testing.assert_allclose(found[:, :, :3], wanted[:, :, :3], rtol=2e-4, atol=2e-4)
