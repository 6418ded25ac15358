"""The weights file: every constant as its kernels want it, packed or in its layout, once each."""

from __future__ import annotations

import numpy as np

from compiler.ir.buffers import Buffer
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType, Layout

ALIGNMENT = 64


class Weights:
    """Collects constants; `place` returns the byte offset of one, adding it at first use."""

    def __init__(self, alignment: int = ALIGNMENT) -> None:
        self._alignment = alignment
        self._at: dict[tuple[int, tuple[Layout, DType] | Packing], int] = {}
        self._pieces: list[bytes] = []
        self.size = 0
        """Bytes so far."""

    def place(self, buffer: Buffer, array: np.ndarray, packing: Packing | None) -> int:
        """The byte offset of a constant, packed or in its buffer's layout and dtype."""
        key = (buffer.id, packing or (buffer.layout, buffer.dtype))
        if key not in self._at:
            data = (
                packing.pack(array)
                if packing
                else physical_array(array, buffer.layout).astype(buffer.dtype.numpy, copy=False)
            )
            piece = data.tobytes()
            self._at[key] = self.size
            self._pieces.append(piece + bytes(-len(piece) % self._alignment))
            self.size += len(self._pieces[-1])
        return self._at[key]

    def bytes(self) -> bytes:
        """The whole file."""
        return b"".join(self._pieces)


def physical_array(array: np.ndarray, layout: Layout) -> np.ndarray:
    """A constant's elements in the order of its layout (split axes zero-padded), as one dense array."""
    shape: list[int] = []
    padded: list[int] = []
    where: dict[tuple[int, int], int] = {}
    for axis, extent in enumerate(array.shape):
        inner = layout.block_of(axis)
        outer = -(-extent // inner) if inner else extent
        padded.append(outer * inner if inner else extent)
        where[axis, 0] = len(shape)
        shape.append(outer)
        if inner:
            where[axis, inner] = len(shape)
            shape.append(inner)
    wide = np.zeros(padded, array.dtype)
    wide[tuple(slice(0, extent) for extent in array.shape)] = array
    return np.ascontiguousarray(wide.reshape(shape).transpose([where[dim] for dim in layout.dims]))
