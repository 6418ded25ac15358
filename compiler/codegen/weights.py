"""The weights file: every constant as its kernels want it, packed or in its layout, once each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from compiler.codegen.coded import PLAIN, Coded, Expansion, coded
from compiler.encodings.aside import Octets, together
from compiler.ir.buffers import Buffer
from compiler.ir.packing import Packing, Panels
from compiler.ir.tensor import DType, Layout

ALIGNMENT = 64


class Weights:
    """Collects constants; `place` returns the byte offset of one from the file's first byte, adding it at first use.

    earlier  another program's, with which the file begins: what that holds is not stored a second time
    codes    whether the program makes constants of few values dense when it is loaded (`expansions`)
    """

    def __init__(self, alignment: int = ALIGNMENT, earlier: Weights | None = None, *, codes: bool = False) -> None:
        self._alignment = alignment
        self._codes = codes
        self.expansions: list[Expansion] = []
        """Constants that the file holds as indices. Their bytes are below 0."""
        self._earlier = earlier
        self._at: dict[tuple[int, tuple[Layout, DType] | Packing], int] = {}
        self._pieces: dict[int, Octets] = {}
        self.size: int = earlier.size if earlier else 0
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
            panels = packing if isinstance(packing, Panels) else None
            found = coded(data, panels) if self._codes else None
            self._at[key] = self._place(_octets(data)) if found is None else self._expanded(data, found)
        return self._at[key]

    @property
    def expanded_bytes(self) -> int:
        """Of all dense constants that the file holds as indices."""
        return -min((one.at for one in self.expansions), default=0)

    def _expanded(self, data: np.ndarray, found: Coded) -> int:
        """Where a constant lies once it is dense; its codebooks and indices are added, and what has none as it is."""
        at = -(self.expanded_bytes + -(-data.nbytes // self._alignment) * self._alignment)
        place = self._place(found.content)
        self.expansions.append(Expansion(at, place, found.count, found.bits, found.depth, found.lanes))
        if rest := data.size - found.count:
            place = self._place(data.reshape(-1)[found.count :].tobytes())
            self.expansions.append(Expansion(at + 4 * found.count, place, rest, PLAIN, rest))
        return at

    def _place(self, content: Octets) -> int:
        piece = together([content, bytes(-len(content) % self._alignment)])
        if self._earlier and (known := self._earlier.held.get(_digest(piece))) is not None:
            return known
        at = self.size
        self._pieces[at] = piece
        self.size += len(piece)
        return at

    @cached_property
    def held(self) -> dict[bytes, int]:
        """Where each piece lies, by its digest; asked once all are placed."""
        earlier = self._earlier.held if self._earlier else {}
        return {**{_digest(piece): at for at, piece in self._pieces.items()}, **earlier}

    def bytes(self) -> Octets:
        """The whole file, of which the pieces are parts from now on."""
        whole = together([*self._in_order()])
        self._lie_in(memoryview(whole))
        return whole

    def _in_order(self) -> Iterator[Octets]:
        if self._earlier:
            yield from self._earlier._in_order()
        yield from self._pieces.values()

    def _lie_in(self, whole: memoryview) -> None:
        self._pieces = {at: whole[at : at + len(piece)] for at, piece in self._pieces.items()}
        if self._earlier:
            self._earlier._lie_in(whole)


def _octets(array: np.ndarray) -> Octets:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _digest(piece: Octets) -> bytes:
    return hashlib.sha256(piece).digest()


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
