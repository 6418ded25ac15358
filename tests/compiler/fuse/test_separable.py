from __future__ import annotations

from functools import cache

import pytest

from compiler.forms.separable import as_separable
from compiler.fuse import fuse
from compiler.fuse.joins import Join, joins
from compiler.fuse.separable import join_separable
from compiler.ir.buffers import KernelGraph
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import check, draws
from tests.compiler.devices.cuda.algorithms import test_loops as test_cu_loops
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.fuse.separables import check_joined, joined_case, pair_of, separables
from tests.compiler.rewrite.sketch import Sketch


@cache
def drawn() -> list[tuple[KernelGraph, Join]]:
    """A window and the pointwise convolution after it, and what joins them."""
    return [pair for graph in draws(separables(), 90) if (pair := pair_of(graph)) is not None]


def test_most_windows_before_a_pointwise_convolution_are_joined_with_it() -> None:
    assert len(drawn()) > 60


def test_a_joined_kernel_means_what_the_two_meant() -> None:
    for kernels, join in drawn():
        check_joined(kernels, join, 1, 1e-4)


def test_plain_loops_in_c_carry_out_joined_kernels() -> None:
    check([joined_case(*pair, seed) for seed, pair in enumerate(drawn())], optimise="-O1")


@needs_double
def test_plain_loops_in_cuda_carry_out_joined_kernels() -> None:
    test_cu_loops.check([joined_case(*pair, seed) for seed, pair in enumerate(drawn()[:24])], (None, 32))


def test_both_halves_of_the_form_are_kernels_again() -> None:
    for _, join in drawn():
        view = as_separable(join.call.kernel)
        assert view is not None
        view.window_kernel.verify()
        view.product_kernel.verify()
        assert view.row.slot in {slot.name for slot in view.window_kernel.outputs}
        assert view.row.slot in {slot.name for slot in view.product_kernel.inputs}


def refusals(s: Sketch, *outputs: int) -> set[str]:
    """Why the pairs of calls of a graph are not joined."""
    kernels = fuse(s.graph(*outputs)).kernels
    pairs = [
        (kernels.writer[id], at) for at, call in enumerate(kernels.calls) for id in call.inputs if id in kernels.writer
    ]
    assert not joins(kernels)
    return {reason for pair in pairs if isinstance(reason := join_separable(kernels, *pair), str)}


def depthwise(s: Sketch, x: int, **more: object) -> int:
    channels = s.dims(x)[1]
    return s("Conv", x, s.normal(channels, 1, 3, 3), pads=(1, 1, 1, 1), group=channels, **more)


def pointwise(s: Sketch, x: int, columns: int = 8, **more: object) -> int:
    return s("Conv", x, s.normal(columns, s.dims(x)[1], 1, 1), **more)


def sketch() -> tuple[Sketch, int]:
    s = Sketch(0, DType.F32)
    return s, s("Conv", s.x(1, 8, 9, 9), s.normal(8, 8, 1, 1))


def test_a_window_that_is_read_twice_stays() -> None:
    s, x = sketch()
    y = depthwise(s, x)
    one, two = pointwise(s, y), pointwise(s, y)
    assert "the result between them is read elsewhere too" in refusals(s, one, two)


def test_a_window_whose_result_is_an_output_stays() -> None:
    s, x = sketch()
    y = depthwise(s, x)
    assert "the result between them is an output of the model" in refusals(s, y, pointwise(s, y))


def test_a_window_that_lies_in_a_concat_stays() -> None:
    s, x = sketch()
    y, z = depthwise(s, x), s("MaxPool", x, kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(1, 1))
    whole = s("Concat", y, z, axis=1)
    assert "the result between them is a part of another buffer" in refusals(s, pointwise(s, y), pointwise(s, whole))


def test_a_window_with_two_results_stays() -> None:
    s, x = sketch()
    y = depthwise(s, x)
    assert "the first has several results" in refusals(s, pointwise(s, s("Relu", y)), s("Add", pointwise(s, y), x))


def test_a_dense_convolution_is_no_window() -> None:
    s, x = sketch()
    y = s("Conv", x, s.normal(8, 8, 3, 3), pads=(1, 1, 1, 1))
    assert "the window sums over all channels" in refusals(s, pointwise(s, y))


@pytest.mark.parametrize("more", [{"strides": (2, 2)}, {"group": 2}, {"pads": (1, 1, 1, 1)}])
def test_only_a_dense_pointwise_convolution_of_unit_stride_is_joined(more: dict[str, object]) -> None:
    s, x = sketch()
    y = depthwise(s, x)
    groups = more.get("group", 1)
    assert isinstance(groups, int)
    assert refusals(s, s("Conv", y, s.normal(8, 8 // groups, 1, 1), **more))


def test_a_sum_over_all_positions_has_no_pixels() -> None:
    s, x = sketch()
    y = pointwise(s, s("GlobalAveragePool", x))
    assert "together they are not in the form of a separable convolution" in refusals(s, y)


def test_memory_that_the_window_reads_is_not_written_in_place() -> None:
    s, x = sketch()
    x = s("Relu", x)
    y = s("MaxPool", s("Add", pointwise(s, depthwise(s, x)), x), kernel_shape=(2, 2))
    kernels = fuse(s.graph(y)).kernels
    (join,) = joins(kernels)
    assert kernels.calls[join.calls[1]].in_place
    assert not join.call.in_place


def test_memory_that_the_product_alone_reads_may_be_written_in_place() -> None:
    s, x = sketch()
    other = s("Conv", x, s.normal(8, 8, 3, 3), pads=(1, 1, 1, 1))
    row = depthwise(s, x)
    also = s("Conv", other, s.normal(8, 8, 3, 3))
    y = s("MaxPool", s("Add", pointwise(s, row), other), kernel_shape=(2, 2))
    kernels = fuse(s.graph(y, also)).kernels
    (join,) = joins(kernels)
    ((out, into),) = join.call.in_place
    assert kernels.buffers[join.call.inputs[into]].type == kernels.buffers[join.call.outputs[out]].type
    assert join.call.inputs[into] in kernels.calls[join.calls[1]].inputs
