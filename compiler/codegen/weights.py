"""The weights file: every constant as its kernels want it, packed or in its layout, once each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from operator import attrgetter

import numpy as np

from compiler.codegen.coded import (
    LEAST_REPACKED,
    PLAIN,
    Coded,
    Expansion,
    Filters,
    Held,
    Repacking,
    coded,
    is_made_of_filters,
)
from compiler.encodings.aside import Octets, together
from compiler.forms.winograd import TransformedPanels, transform
from compiler.ir.buffers import Buffer
from compiler.ir.packing import Packing, Panels
from compiler.ir.tensor import DType, Layout

ALIGNMENT = 64


class Weights:
    """Collects constants; `place` returns the byte offset of one from the file's first byte, adding it at first use.

    earlier  another program's, with which the file begins: what that holds is not stored a second time
    small    whether the program makes constants when it is loaded of what takes less, or of what the file holds
             already (`expansions`, `filters`, `repackings`)
    """

    def __init__(self, alignment: int = ALIGNMENT, earlier: Weights | None = None, *, small: bool = False) -> None:
        self._alignment = alignment
        self.small = small
        self.made_bytes = 0
        """Of all constants that the program makes. Their places are below 0."""
        self.expansions: list[Expansion] = []
        """Those that the file holds as indices."""
        self.filters: list[Filters] = []
        """Those that the file holds as the filters that they are transformed from."""
        self.repackings: list[Repacking] = []
        """Those of which the file holds panels of another width, or of other depths."""
        self._panels: dict[tuple[bytes, Panels], Held] = {}
        self._tops: dict[bytes, list[Held]] = {}
        """Panels of the file by the first row of their matrix."""
        self._made: dict[tuple[bytes, Panels, int], int] = {}
        self._shared: dict[bytes, int] = {}
        self._earlier = earlier
        self._at: dict[tuple[int, tuple[Layout, DType] | Packing], int] = {}
        self._pieces: dict[int, Octets] = {}
        self.size: int = earlier.size if earlier else 0
        """Bytes so far."""

    def place(self, buffer: Buffer, array: np.ndarray, packing: Packing | None) -> int:
        """The byte offset of a constant, packed or in its buffer's layout and dtype."""
        key = (buffer.id, packing or (buffer.layout, buffer.dtype))
        if key not in self._at:
            self._at[key] = self._placed(buffer, array, packing)
        return self._at[key]

    def _placed(self, buffer: Buffer, array: np.ndarray, packing: Packing | None) -> int:
        if self.small and isinstance(packing, TransformedPanels) and is_made_of_filters(packing, array):
            return self._transformed(packing, array)
        if packing:
            data = packing.pack(array)
        else:
            data = physical_array(array, buffer.layout).astype(buffer.dtype.numpy, copy=False)
        panels = packing if isinstance(packing, Panels) else None
        found = coded(data, panels) if self.small else None
        if found is not None:
            return self._expanded(data, found)
        if self.small and panels and panels.elements >= LEAST_REPACKED:
            return self._one_width(panels, array, data)
        return self._place(_octets(data))

    def _one_width(self, packing: Panels, array: np.ndarray, data: np.ndarray) -> int:
        """Where panels lie: in the file, or made of those that the file holds of the same matrix."""
        key = _matrix(packing, array)
        known = self._widths(key)
        if known and known.panel != packing.panel:
            return self._repacked(packing, key, [known])
        single = len(packing.starts) == 1
        if single and not known and (stack := self._stacked(packing, data[0])):
            return self._repacked(packing, key, stack)
        held = Held(self._place(_octets(data)), packing.panel, packing.depth)
        self._panels.setdefault(key, held)
        if single and not known:
            self._tops.setdefault(_rows(data[0], 0, 1, packing.columns), []).append(held)
        return held.place

    def _repacked(self, packing: Panels, key: tuple[bytes, Panels], stack: Sequence[Held]) -> int:
        """Where panels lie once they are made of those that the file holds, one upon another."""
        wanted = (*key, packing.panel)
        if wanted not in self._made:
            self._made[wanted] = self._reserved(packing.elements)
            rows = accumulate((held.depth for held in stack), initial=0)
            self.repackings += [Repacking(self._made[wanted], *one, packing) for one in zip(rows, stack, strict=False)]
        return self._made[wanted]

    def _widths(self, key: tuple[bytes, Panels]) -> Held | None:
        """The panels of a matrix that the file holds."""
        found = self._panels.get(key)
        return found or (self._earlier._widths(key) if self._earlier else None)

    def _stacked(self, packing: Panels, panels: np.ndarray) -> list[Held]:
        """What the file holds of which, one upon another, these panels consist; empty where it does not."""
        found: list[Held] = []
        row = 0
        while row < packing.depth:
            beginning = self._beginning(_rows(panels, row, row + 1, packing.columns))
            fitting = [
                one
                for one in beginning
                if self._rows_of(one, packing.columns) == _rows(panels, row, row + one.depth, packing.columns)
            ]
            if not fitting:
                return []
            found.append(max(fitting, key=attrgetter("depth")))
            row += found[-1].depth
        return found

    def _beginning(self, row: bytes) -> Iterator[Held]:
        """What the file holds of matrices of which this is the first row."""
        yield from self._tops.get(row, ())
        if self._earlier:
            yield from self._earlier._beginning(row)

    def _rows_of(self, held: Held, columns: int) -> bytes:
        if held.place not in self._pieces and self._earlier:
            return self._earlier._rows_of(held, columns)
        elements = -(-columns // held.panel) * held.panel * held.depth
        panels = np.frombuffer(self._pieces[held.place], np.float32, elements)
        return _rows(panels.reshape(-1, held.depth, held.panel), 0, held.depth, columns)

    def _reserved(self, count: int) -> int:
        """The place of a constant of so many float32 that the program makes."""
        self.made_bytes += -(-4 * count // self._alignment) * self._alignment
        return -self.made_bytes

    def _transformed(self, packing: TransformedPanels, array: np.ndarray) -> int:
        """Where filters lie once they are transformed; they are added as they are, once for all forms."""
        numbers, scale, _ = transform(packing.forms)
        places = (self._untransformed(packing, array), self._once(numbers.tobytes() + scale.tobytes()))
        self.filters.append(Filters(self._reserved(packing.elements), *places, packing))
        return self.filters[-1].at

    def _untransformed(self, packing: TransformedPanels, array: np.ndarray) -> int:
        """Where filters lie, as [batch, taps, depth, columns]; those of one batch are one panel of all columns.

        Of few values they are made dense before they are transformed.
        """
        whole = packing.columns
        panels = Panels((packing.offset,), packing.taps * packing.depth, whole, whole, packing.source)
        key = _matrix(panels, array)
        known = self._widths(key) if packing.batch == 1 else None
        if known and known.panel != whole:
            return self._repacked(panels, key, [known])
        filters = packing.filters(array)
        content = filters.tobytes()
        found = coded(filters, panels) if packing.batch == 1 else None
        if found is not None:
            if (digest := _digest(content)) not in self._shared:
                self._shared[digest] = self._expanded(filters, found)
            return self._shared[digest]
        place = self._once(content)
        if packing.batch == 1:
            self._panels.setdefault(key, Held(place, whole, panels.depth))
        return place

    def _once(self, content: bytes) -> int:
        digest = _digest(content)
        if digest not in self._shared:
            self._shared[digest] = self._place(content)
        return self._shared[digest]

    def _expanded(self, data: np.ndarray, found: Coded) -> int:
        """Where a constant lies once it is dense; its codebooks and indices are added, and what has none as it is."""
        at = self._reserved(data.size)
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


def _rows(panels: np.ndarray, begin: int, end: int, columns: int) -> bytes:
    """Of float32[panels, depth, panel] some rows, without what fills the last panel."""
    rows = panels[:, begin:end].transpose(1, 0, 2)
    return rows.reshape(rows.shape[0], -1)[:, :columns].tobytes()


def _matrix(packing: Panels, array: np.ndarray) -> tuple[bytes, Panels]:
    """What panels of all widths have in common: the constant's elements, and which of them stands where."""
    source = tuple((extent, stride) for extent, stride in packing.source if extent > 1)
    return _digest(_octets(array)), replace(packing, panel=packing.columns, source=source)


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
