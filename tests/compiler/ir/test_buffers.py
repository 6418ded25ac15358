from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import VerifyError
from compiler.ir.buffers import Buffer, Call, KernelGraph, row_major
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Slot
from compiler.ir.tensor import DType, Layout, TensorType
from tests.parse import parse_kernel, parse_kernel_graph

NCHW4C = Layout(((0, 0), (1, 0), (2, 0), (3, 0), (1, 4)))


def address(buffer: Buffer, point: tuple[int, ...]) -> int:
    index = buffer.address(tuple(Index.of(position) for position in point))
    assert index.is_const
    return index.const


def packed(array: np.ndarray, layout: Layout) -> np.ndarray:
    """An array in a layout, by numpy: each split axis padded with -1 and split, then all axes permuted."""
    parts: list[tuple[int, int]] = []
    for axis in range(array.ndim):
        block = layout.block_of(axis)
        parts.append((axis, 0))
        if block:
            parts.append((axis, block))
            at = len(parts) - 2
            short = -array.shape[at] % block
            array = np.pad(array, [(0, short if dim == at else 0) for dim in range(array.ndim)], constant_values=-1)
            array = array.reshape(*array.shape[:at], array.shape[at] // block, block, *array.shape[at + 1 :])
    return array.transpose([parts.index(dim) for dim in layout.dims])


def read_back(array: np.ndarray, layout: Layout) -> np.ndarray:
    """The elements of the packed array, each found through `Buffer.address`."""
    buffer = Buffer.whole(0, TensorType(DType.I64, array.shape), layout)
    memory = packed(array, layout).reshape(-1)
    read = np.empty_like(array)
    for point in itertools.product(*map(range, array.shape)):
        read[point] = memory[address(buffer, point)]
    return read


@pytest.mark.parametrize(
    "layout", [Layout.plain(4), Layout.channels_last(4), NCHW4C, Layout(((2, 0), (1, 0), (0, 0), (3, 0)))]
)
def test_a_layout_addresses_what_numpy_packs(layout: Layout) -> None:
    array = np.arange(2 * 6 * 3 * 5).reshape(2, 6, 3, 5)
    assert np.array_equal(read_back(array, layout), array)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 3)), st.permutations(range(4)), st.integers(2, 4))
def test_any_split_and_permutation_addresses_each_element_once(
    dims: tuple[int, int, int], order: list[int], block: int
) -> None:
    parts = ((0, 0), (1, 0), (2, 0), (1, block))
    layout = Layout(tuple(parts[part] for part in order))
    layout.verify(3)
    array = np.arange(np.prod(dims)).reshape(dims)
    assert np.array_equal(read_back(array, layout), array)


def test_physical_extents_are_padded_up_to_the_block() -> None:
    assert NCHW4C.physical((2, 6, 3, 5)) == (2, 2, 3, 5, 4)
    assert Layout.channels_last(4).physical((2, 6, 3, 5)) == (2, 3, 5, 6)
    buffer = Buffer.whole(0, TensorType(DType.F32, (2, 6, 3, 5)), NCHW4C)
    assert (buffer.strides, buffer.span, buffer.is_contiguous) == ((120, 60, 20, 4, 1), 240, True)


def test_an_address_over_axes_splits_the_channel() -> None:
    buffer = Buffer.whole(0, TensorType(DType.F32, (1, 8, 3, 5)), NCHW4C)
    c = Axis("c", 8)
    inner = Index.of(Axis("o", 2)) * 4 + Axis("v", 4)
    zero = Index.of(0)
    assert str(buffer.address((zero, Index.of(c), zero, zero))) == "60*((c)//4) + (c)%4"
    assert str(buffer.address((zero, inner, zero, zero))) == "60*o + v"


def test_slices_of_a_concat_are_written_where_numpy_puts_them() -> None:
    whole = Buffer.whole(9, TensorType(DType.F32, (2, 5, 3)))
    first = Buffer(1, TensorType(DType.F32, (2, 2, 3)), Layout.plain(3), 9, whole.strides, 0)
    second = Buffer(2, TensorType(DType.F32, (2, 3, 3)), Layout.plain(3), 9, whole.strides, 2 * 3)
    memory = np.full(30, -1)
    a, b = np.arange(12).reshape(2, 2, 3), 100 + np.arange(18).reshape(2, 3, 3)
    for buffer, array in ((first, a), (second, b)):
        for point in itertools.product(*map(range, array.shape)):
            memory[address(buffer, point)] = array[point]
    assert np.array_equal(memory.reshape(2, 5, 3), np.concatenate((a, b), axis=1))
    assert (whole.is_contiguous, first.is_contiguous, second.is_contiguous) == (True, False, False)
    assert (first.span, second.span, whole.span) == (21, 30, 30)


def test_extents_of_one_do_not_break_contiguity_and_an_empty_tensor_spans_nothing() -> None:
    thin = Buffer(0, TensorType(DType.F32, (1, 4)), Layout.plain(2), 0, (99, 1))
    assert thin.is_contiguous
    assert Buffer.whole(0, TensorType(DType.F32, (0, 4))).span == 0
    assert row_major((2, 3, 4)) == (12, 4, 1)


def test_layouts_that_do_not_cover_their_tensor_are_refused() -> None:
    for dims in (((0, 0),), ((0, 0), (0, 0)), ((0, 0), (1, 0), (2, 4)), ((0, 0), (1, 0), (1, 4), (1, 2))):
        with pytest.raises(ValueError, match="does not cover the 2 axes"):
            Layout(dims).verify(2)
    with pytest.raises(ValueError, match="unknown fill 'one'"):
        Layout(((0, 0), (1, 0)), "one").verify(2)


TEXT = """
kernels(b0) -> (b2)
  b0: f32[4] plain
  b1: f32[4] plain
  b2: f32[4] plain
  k0: kernel Exp(in x: f32[4]; out y: f32[4])
    for i:4
      y[i] = exp(x[i])
  b1 = k0(b0)
  b2 = k0(b1)
"""


def graph() -> KernelGraph:
    return parse_kernel_graph(TEXT)


def test_a_sound_kernel_graph_passes_and_tells_readers_and_writers() -> None:
    graph().verify()
    assert graph().readers == {0: (0,), 1: (1,), 2: ()}
    assert graph().writer == {1: 0, 2: 1}


def test_reading_a_buffer_before_it_is_written_is_refused_and_shown() -> None:
    g = graph()
    with pytest.raises(VerifyError) as refusal:
        replace(g, calls=(g.calls[1], g.calls[0])).verify()
    assert str(refusal.value).splitlines()[:3] == [
        "call 0 `b2 = Exp(b1)` reads b1 before it is written",
        "  > b2 = Exp(b1)",
        "    b1 = Exp(b0)",
    ]


def test_a_buffer_written_through_a_slice_of_its_storage_may_be_read() -> None:
    g = graph()
    alias = replace(g.buffers[1], id=5, storage=1)
    replace(g, buffers={**g.buffers, 5: alias}, calls=(g.calls[0], replace(g.calls[1], inputs=(5,)))).verify()


def test_calls_that_do_not_fit_their_kernel_are_refused() -> None:
    g = graph()
    with pytest.raises(VerifyError, match="binds 3 buffers to 2 slots"):
        replace(g, calls=(replace(g.calls[0], inputs=(0, 0)), g.calls[1])).verify()
    short = Buffer.whole(1, TensorType(DType.F32, (3,)))
    with pytest.raises(VerifyError, match=r"binds `b1: f32\[3\] plain` to slot `y: f32\[4\]`"):
        replace(g, buffers={**g.buffers, 1: short}).verify()


def test_an_output_that_is_never_written_is_refused() -> None:
    g = graph()
    with pytest.raises(VerifyError, match="output b2 is never written"):
        replace(g, calls=g.calls[:1]).verify()


def test_ill_formed_buffers_and_kernels_are_refused() -> None:
    g = graph()
    with pytest.raises(VerifyError, match=r"buffer `b1: f32\[4\] <0 1 zero>`: layout <0 1 zero> does not cover"):
        replace(g, buffers={**g.buffers, 1: replace(g.buffers[1], layout=Layout(((0, 0), (1, 0)), "zero"))}).verify()
    with pytest.raises(VerifyError, match="has 2 strides for layout plain"):
        replace(g, buffers={**g.buffers, 1: replace(g.buffers[1], strides=(4, 1))}).verify()
    broken = replace(g.calls[0].kernel, inputs=(Slot("y", TensorType(DType.F32, (4,))),))
    with pytest.raises(VerifyError, match="names a slot twice"):
        replace(g, calls=(Call(broken, (0,), (1,)), g.calls[1])).verify()


def test_a_kernel_in_the_graph_is_the_one_that_was_written() -> None:
    expected = parse_kernel("kernel Exp(in x: f32[4]; out y: f32[4]) for i:4 y[i] = exp(x[i])")
    assert graph().calls[0].kernel == graph().calls[1].kernel == expected
