from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.ir.buffers import Buffer
from compiler.ir.index import Index
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.measure.memory import GARBAGE, PAGE, allocate, operand, read_buffer, write_buffer
from tests.parse import parse_kernel_graph

NCHW16C = Layout(((0, 0), (1, 0), (2, 0), (3, 0), (1, 16)))
IMAGE = TensorType(DType.F32, (2, 20, 3, 5))


def counted(type: TensorType) -> np.ndarray:
    return np.arange(1, type.elements + 1).astype(type.dtype.numpy).reshape(type.dims)


def memory_of(buffer: Buffer) -> np.ndarray:
    return allocate(buffer.span * buffer.type.dtype.bytes)


def by_address(memory: np.ndarray, buffer: Buffer) -> np.ndarray:
    """Each element found through `Buffer.address`, the definition of where it lies."""
    flat = memory.view(buffer.type.dtype.numpy)
    found = np.empty(buffer.type.dims, flat.dtype)
    for point in itertools.product(*map(range, buffer.type.dims)):
        found[point] = flat[buffer.address(tuple(map(Index.of, point))).const]
    return found


@pytest.mark.parametrize("layout", [Layout.plain(4), Layout.channels_last(4), NCHW16C, replace(NCHW16C, fill="zero")])
def test_what_is_written_lies_where_the_buffer_says_and_reads_back(layout: Layout) -> None:
    buffer = Buffer.whole(0, IMAGE, layout)
    memory = memory_of(buffer)
    write_buffer(memory, buffer, counted(IMAGE))
    assert np.array_equal(by_address(memory, buffer), counted(IMAGE))
    assert np.array_equal(read_buffer(memory, buffer), counted(IMAGE))


@given(
    dims=st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 3)),
    order=st.permutations(range(4)),
    block=st.integers(2, 4),
    dtype=st.sampled_from([DType.F32, DType.BF16, DType.I64, DType.U8, DType.BOOL]),
)
def test_any_split_and_permutation_round_trips(
    dims: tuple[int, ...], order: list[int], block: int, dtype: DType
) -> None:
    parts = ((0, 0), (1, 0), (2, 0), (1, block))
    buffer = Buffer.whole(0, TensorType(dtype, dims), Layout(tuple(parts[part] for part in order)))
    memory = memory_of(buffer)
    write_buffer(memory, buffer, counted(buffer.type))
    assert np.array_equal(read_buffer(memory, buffer), counted(buffer.type))
    assert np.array_equal(by_address(memory, buffer), counted(buffer.type))


def test_padding_is_cleared_where_it_may_be_relied_on_and_untouched_elsewhere() -> None:
    for fill, expected in (("zero", 0), ("any", GARBAGE)):
        buffer = Buffer.whole(0, IMAGE, replace(NCHW16C, fill=fill))
        memory = memory_of(buffer)
        write_buffer(memory, buffer, counted(IMAGE))
        padding = memory.view(np.float32).reshape(2, 2, 3, 5, 16)[:, 1, :, :, 4:]
        assert np.array_equal(padding.view(np.uint8), np.full(padding.view(np.uint8).shape, expected))


def test_slices_of_a_concat_share_one_storage_without_touching_each_other() -> None:
    whole = Buffer.whole(9, TensorType(DType.F32, (2, 48, 3, 3)), NCHW16C)
    types = (TensorType(DType.F32, (2, 16, 3, 3)), TensorType(DType.F32, (2, 32, 3, 3)))
    first = Buffer(1, types[0], NCHW16C, 9, whole.strides, 0)
    second = Buffer(2, types[1], NCHW16C, 9, whole.strides, whole.strides[1])
    memory = memory_of(whole)
    a, b = counted(types[0]), 1000 + counted(types[1])
    write_buffer(memory, second, b)
    write_buffer(memory, first, a)
    assert np.array_equal(read_buffer(memory, whole), np.concatenate((a, b), axis=1))
    assert np.array_equal(read_buffer(memory, second), b)
    assert operand(memory, second)[0] == 1001


def test_a_broadcast_view_and_a_scalar_are_read() -> None:
    memory = np.array([7, 8, 9], np.float32)
    repeated = Buffer(1, TensorType(DType.F32, (4, 3)), Layout.plain(2), 0, (0, 1))
    assert np.array_equal(read_buffer(memory, repeated), np.tile([7, 8, 9], (4, 1)))
    scalar = Buffer(2, TensorType(DType.F32, ()), Layout.plain(0), 0, (), 2)
    assert read_buffer(memory, scalar) == 9
    backwards = Buffer(3, TensorType(DType.F32, (3,)), Layout.plain(1), 0, (-1,), 2)
    assert np.array_equal(read_buffer(memory, backwards), [9, 8, 7])


def test_a_buffer_that_leaves_its_storage_is_refused() -> None:
    type = TensorType(DType.F32, (2, 3))
    memory = np.zeros(6, np.float32)
    for outside in (
        Buffer(1, type, Layout.plain(2), 0, (3, 1), 1),
        Buffer(1, type, Layout.plain(2), 0, (4, 1)),
        Buffer(1, type, Layout.plain(2), 0, (-3, 1), 2),
    ):
        with pytest.raises(ValueError, match="of a storage of 6"):
            read_buffer(memory, outside)
    with pytest.raises(ValueError, match=r"shape \[3, 2\] does not fit"):
        write_buffer(memory, Buffer.whole(1, type), np.zeros((3, 2), np.float32))


def test_allocated_memory_begins_on_a_page_and_is_not_a_number() -> None:
    memory = allocate(100)
    assert (memory.ctypes.data % PAGE, len(memory)) == (0, 100)
    assert np.isnan(memory.view(np.float32)).all()


def test_a_storage_reaches_to_the_end_of_its_last_buffer() -> None:
    kernels = parse_kernel_graph(
        """kernels(b0) -> (b2)
        b0: f32[4] plain
        b1: f32[2] plain in s2 + 0
        b2: f32[4] plain
        b3: f32[2] plain in s2 + 2
        k0: kernel k(in x0: f32[4]; out y0: f32[2]) for i:2 y0[i] = x0[i]
        b1 = k0(b0)
        b3 = k0(b0)"""
    )
    assert kernels.storage_bytes == {0: 16, 2: 16}
