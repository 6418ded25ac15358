"""Which separable convolutions can be staged in shared memory, and their products over rectangles of pixels."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from compiler.devices.cuda.algorithms.separable.geometry import as_staged, element_of
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.fuse import fuse
from compiler.fuse.joins import joins
from compiler.ir.expr import Apply, Expr
from compiler.ir.graph import Graph
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from tests.compiler.rewrite.sketch import Sketch


def separable(channels: int = 24, window: str = "Conv", between: str = "") -> Graph:
    s = Sketch(0, DType.F32)
    y = s("Conv", s.x(1, channels, 9, 9), s.normal(channels, channels, 1, 1))
    y = s("Tanh", s("Conv", y, s.normal(channels, channels, 1, 1)))
    if window == "Conv":
        y = s("Conv", y, s.normal(channels, 1, 3, 3), group=channels, kernel_shape=(3, 3), pads=(1,) * 4)
    else:
        y = s(window, y, kernel_shape=(3, 3), pads=(1,) * 4)
    y = s("Add", y, s("Conv", s.x(1, 4, 9, 9), s.normal(channels, 4, 1, 1))) if between else y
    return s.graph(s("Conv", s("Conv", s("Relu", y), s.normal(16, channels, 1, 1)), s.normal(8, 16, 1, 1)))


def workload(graph: Graph, element: DType | None = None, *, constant: bool = True) -> Workload:
    kernels = fuse(graph).kernels
    found = cuda_workload_of(kernels, joins(kernels)[0].call)
    inputs = tuple(replace(buffer, element=element) for buffer in found.inputs)
    return replace(found, inputs=inputs, constant=tuple(one and constant for one in found.constant))


@pytest.mark.parametrize(
    ("channels", "element", "count"), [(24, None, 4), (24, DType.F16, 8), (20, DType.F16, 4), (23, None, 1)]
)
def test_channels_come_by_as_many_bytes_as_lie_aligned(channels: int, element: DType | None, count: int) -> None:
    staged = as_staged(workload(separable(channels), element))
    assert staged is not None
    assert staged.count == count
    assert staged.weights is not None
    assert staged.weights[1].elements == 9 * channels


def test_what_cannot_be_copied_or_zeroed_is_refused() -> None:
    assert as_staged(workload(separable(23), DType.F16)) is None, "two bytes are no copy"
    assert as_staged(workload(separable(), constant=False)) is None, "weights that are no constants are not packed"
    assert as_staged(workload(separable(window="MaxPool"))) is None, "zeros around an operand are no identity of max"
    assert as_staged(workload(separable(between="Add"))) is None, "pixels outside of a tile's image read nothing"


def test_a_map_before_the_window_must_keep_the_zeros_around_its_operand() -> None:
    for function, kept in (("tanh", True), ("abs", True), ("sigmoid", False), ("exp", False)):
        work = workload(separable())
        assert isinstance(work.kernel, Kernel)
        first, *rest = work.kernel.blocks
        data = next(load for load in first.values[0].loads if load.slot == work.kernel.inputs[0].name)
        value = first.values[0].transform(partial(mapped, function=function, data=data))
        kernel = replace(work.kernel, blocks=(replace(first, values=(value,)), *rest))
        kernel.verify()
        assert (as_staged(replace(work, kernel=kernel)) is not None) is kept


def mapped(part: Expr, function: str, data: Expr) -> Expr:
    return Apply(function, (part,)) if part == data else part


def test_the_element_of_the_product_follows_the_weights_and_the_precision() -> None:
    for element, precision, want in (
        (DType.F16, "fp16", DType.F16),
        (DType.BF16, "bf16", DType.BF16),
        (DType.F16, "fp32", DType.F32),
        (None, "fp16", DType.F32),
    ):
        work = workload(separable(), element)
        staged = as_staged(work)
        assert staged is not None
        assert element_of(staged, work, precision) is want


def test_rectangles_cover_all_pixels_and_rows_beyond_them_are_counted_too() -> None:
    staged = as_staged(workload(separable()))
    assert staged is not None
    product = staged.product(4, 8)
    assert [axis.extent for axis in staged.rectangles(4, 8).tiles] == [3, 2]
    assert [axis.extent for axis in product.m] == [3, 2, 4, 8]
    assert (product.rows, product.columns, product.depth) == (3 * 2 * 32, 16, 24)
