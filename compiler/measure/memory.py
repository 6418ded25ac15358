"""Storages as plain memory: logical arrays read from and written to the physical buffers of a kernel graph."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from compiler.ir.buffers import Buffer

PAGE = 4096
GARBAGE = 0xFF
"""Every byte of memory that nothing has written: NaN in each float type, -1 in each signed integer."""


def allocate(count: int) -> np.ndarray:
    """`count` bytes that begin on a page, as u8[count], filled with GARBAGE."""
    room = np.full(count + PAGE, GARBAGE, np.uint8)
    skip = -room.ctypes.data % PAGE
    return room[skip : skip + count]


def operand(memory: np.ndarray, buffer: Buffer) -> np.ndarray:
    """A storage's memory from the buffer's first element on, flat, in its dtype: what a kernel's pointer points at."""
    return _elements(memory, buffer)[buffer.offset :]


def read_buffer(memory: np.ndarray, buffer: Buffer) -> np.ndarray:
    """The buffer's logical array, copied out of its storage.

    `memory` is the whole storage, flat and contiguous, in any dtype. Raises ValueError when the buffer reaches outside
    it.
    """
    padded = _physical(memory, buffer).transpose(_logical_order(buffer)).reshape(_padded(buffer))
    return padded[_inside(buffer)].astype(buffer.type.dtype.numpy)


def write_buffer(memory: np.ndarray, buffer: Buffer, array: np.ndarray) -> None:
    """Puts a logical array where the buffer's layout, strides and offset say, in the buffer's dtype.

    Padding is cleared where the layout's `fill` is "zero" and left as it is where it is "any". Raises ValueError when
    shapes differ or the buffer reaches outside `memory` (the whole storage, flat and contiguous, in any dtype).
    """
    if array.shape != buffer.type.dims:
        raise ValueError(f"an array of shape {list(array.shape)} does not fit buffer `{buffer}`")
    places = _physical(memory, buffer).transpose(_logical_order(buffer))
    padded = np.zeros(_padded(buffer), places.dtype)
    if buffer.layout.fill == "any":
        padded[...] = places.reshape(padded.shape)
    padded[_inside(buffer)] = array
    places[...] = padded.reshape(places.shape)


def _elements(memory: np.ndarray, buffer: Buffer) -> np.ndarray:
    flat = memory.view(np.uint8)
    width = buffer.dtype.bytes
    return flat[: len(flat) // width * width].view(buffer.dtype.numpy)


def _physical(memory: np.ndarray, buffer: Buffer) -> np.ndarray:
    """A view of the memory with the buffer's physical dimensions. A view of a broadcast value has strides of 0."""
    extents = buffer.layout.physical(buffer.type.dims)
    flat = _elements(memory, buffer)
    if 0 in extents:
        return np.empty(extents, flat.dtype)
    steps = [(extent - 1) * stride for extent, stride in zip(extents, buffer.strides, strict=True)]
    low, high = buffer.offset + sum(min(step, 0) for step in steps), buffer.offset + sum(max(step, 0) for step in steps)
    if low < 0 or high >= len(flat):
        raise ValueError(f"buffer `{buffer}` covers elements {low}..{high} of a storage of {len(flat)}")
    # As plain bytes where elements have one: numpy cannot make strides of all of ml_dtypes' types.
    octets = flat.view(np.uint8) if buffer.dtype.is_small else flat
    strides = tuple(stride * flat.itemsize for stride in buffer.strides)
    return as_strided(octets[buffer.offset :], extents, strides).view(flat.dtype)


def _logical_order(buffer: Buffer) -> list[int]:
    """Physical dimensions in the order of the logical axes, the outer part of a split axis before its inner part."""
    dims = buffer.layout.dims
    return sorted(range(len(dims)), key=lambda at: (dims[at][0], dims[at][1] > 0))


def _padded(buffer: Buffer) -> tuple[int, ...]:
    """Logical extents with each split axis padded up to a multiple of its block."""
    blocks = [max(buffer.layout.block_of(axis), 1) for axis in range(buffer.type.rank)]
    return tuple(-(-dim // block) * block for dim, block in zip(buffer.type.dims, blocks, strict=True))


def _inside(buffer: Buffer) -> tuple[slice, ...]:
    return tuple(slice(dim) for dim in buffer.type.dims)
