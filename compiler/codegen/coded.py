"""Constants as a file of weights holds them where that is less than kernels read: made once they are loaded.

Those of few values are codebooks and indices, Winograd's filters are what they are transformed from, and a matrix that
is read in panels of several widths lies there in one of them, or as the matrices that it consists of, one upon another:
one program multiplies by it what another has as the operands of a Concat.

Weights of an output channel may have values of their own, also once a batch normalisation was folded into them. In
packed panels a channel is a column, so that each column may have a codebook, or a scale that whole numbers of 8 bits
are multiplied by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.encodings.codebook import CHUNK, FIRST_LOOK, LEAST_SAVED, MOST_VALUES, bits_for, values_of
from compiler.encodings.quantised import grid_of, may_fit
from compiler.forms.winograd import TransformedPanels, transform
from compiler.ir.packing import Panels

LEAST_CODED = 1 << 14
"""Elements from which on a constant is stored so."""
LEAST_REPACKED = 1 << 10
"""Elements of a matrix from which on it is made of its panels of another width."""
PLAIN = 32
"""Bits of an element that has no index: the place is that of the elements themselves."""
SCALED = -8
"""Bits of an element that is a signed number of 8 bits times a scale: the place is that of float32 scales, one for each
column, then of the numbers."""
NUMBER_BITS = 8
SAMPLE = 16
"""Columns that are looked at first."""


@dataclass(frozen=True)
class Expansion:
    """A constant, or a part of one, that is made dense when a program is loaded.

    at     the byte where it lies then, counted from the file's first one; below 0, since it lies before that
    place  the byte of the file at which its codebooks begin, float32[codebooks][1 << bits], then its indices
    count  of elements
    bits   of an index: 1, 2, 4 or 8; of several in a byte the first is the lowest. PLAIN: elements as they are;
           SCALED: numbers with a scale for each column
    depth  of a panel of `lanes` columns, each of which has a codebook; with one for all, `count` and 1
    """

    at: int
    place: int
    count: int
    bits: int
    depth: int
    lanes: int = 1

    def __str__(self) -> str:
        return f"{{{self.at}, {self.place}, {self.count}, {self.depth}, {self.lanes}, {self.bits}}}"


@dataclass(frozen=True)
class Filters:
    """Filters that a loaded program transforms (`compiler.forms.winograd`): places as of an Expansion, and extents.

    numbers  the byte of the file at which float64[elements, taps] begins, then float64[elements] that rows are
             multiplied with
    """

    at: int
    place: int
    numbers: int
    packing: TransformedPanels

    def __str__(self) -> str:
        of = self.packing
        extents = (of.batch, of.panels, of.points, of.taps, of.depth, of.panel, of.columns)
        return f"{{{', '.join(map(str, (self.at, self.place, self.numbers, *extents)))}}}"


@dataclass(frozen=True)
class Held:
    """Panels that the file holds: their first byte, and the columns and the depth of each."""

    place: int
    panel: int
    depth: int


@dataclass(frozen=True)
class Repacking:
    """Panels, or some rows of them, that a loaded program makes of the file's: places as of an Expansion.

    row      the first of those that are made
    held     the panels of these rows that the file holds
    packing  the panels that are made
    """

    at: int
    row: int
    held: Held
    packing: Panels

    def __str__(self) -> str:
        of, held = self.packing, self.held
        places = (self.at + 4 * self.row * of.panel, held.place)
        extents = (len(of.starts), held.depth, of.columns, held.panel, of.panel, of.depth)
        return f"{{{', '.join(map(str, (*places, *extents)))}}}"


@dataclass(frozen=True)
class Coded:
    """The first `count` elements of an array as bytes; the other fields are those of their Expansion."""

    count: int
    bits: int
    depth: int
    lanes: int
    content: bytes


def is_made_of_filters(packing: TransformedPanels, array: np.ndarray) -> bool:
    """Whether a loaded program can transform a constant to the same bits: finite float32, by numbers of few digits."""
    fits = array.dtype == np.float32 and packing.elements >= LEAST_CODED and transform(packing.forms)[2]
    return bool(fits and np.isfinite(array).all())


def coded(data: np.ndarray, panels: Panels | None = None) -> Coded | None:
    """An fp32 array, packed in `panels` if given, as codebooks and indices, or as scales and numbers of 8 bits.

    One codebook may serve those at the beginning alone: packed constants may end in zeros that are a value more. None
    where an array is small, or too little would be saved.
    """
    if data.dtype != np.float32 or data.size < LEAST_CODED:
        return None
    octets = np.ascontiguousarray(data).reshape(-1).view(np.uint32)
    whole = _by_one(octets)
    each = (
        [form(octets, panels.depth, panels.panel) for form in (_by_columns, _scaled)]
        if panels and panels.panel > 1
        else []
    )
    options = [one for one in (whole, *each) if one and _bytes(one, octets) <= LEAST_SAVED * octets.nbytes]
    return min(options, key=lambda one: _bytes(one, octets), default=None)


def _bytes(one: Coded, octets: np.ndarray) -> int:
    """What an array takes then."""
    return len(one.content) + 4 * (octets.size - one.count)


def _by_one(octets: np.ndarray) -> Coded | None:
    """With one codebook for as many elements, in whole chunks, as have at most MOST_VALUES values; None for none."""
    values = np.unique(octets[:FIRST_LOOK])
    count = 0
    while count < octets.size:
        more = np.union1d(values, octets[count : count + CHUNK])
        if len(more) > MOST_VALUES:
            break
        values, count = more, min(count + CHUNK, octets.size)
    if not count:
        return None
    bits = bits_for(len(values))
    content = _book(values, bits) + _indices(np.searchsorted(values, octets[:count]), bits)
    return Coded(count, bits, count, 1, content)


def _by_columns(octets: np.ndarray, depth: int, lanes: int) -> Coded | None:
    """With a codebook for each column; None where one has more values than would pay."""
    columns = octets.reshape(-1, depth, lanes).transpose(0, 2, 1)
    books = []
    for line in columns.reshape(-1, depth):
        values = values_of(line.view(np.float32), MOST_VALUES)
        if values is None or 4 * len(values) > LEAST_SAVED * line.nbytes:
            return None
        books.append(values)
    bits = bits_for(max(map(len, books)))
    found = [np.searchsorted(book, line) for book, line in zip(books, columns.reshape(-1, depth), strict=True)]
    places = np.stack(found).reshape(columns.shape).transpose(0, 2, 1)
    content = b"".join(_book(values, bits) for values in books) + _indices(places.reshape(-1), bits)
    return Coded(octets.size, bits, depth, lanes, content)


def _scaled(octets: np.ndarray, depth: int, lanes: int) -> Coded | None:
    """With a scale for each column, such that a float32 product gives every bit back; None where there are none."""
    dense = octets.view(np.float32).reshape(-1, depth, lanes)
    lines = dense.transpose(0, 2, 1).reshape(-1, depth)
    sample = lines[:: -(-len(lines) // SAMPLE)]
    if not bool(np.isfinite(sample).all() and sample.any()) or not may_fit(sample, depth, NUMBER_BITS):
        return None
    grid = grid_of(lines, NUMBER_BITS)
    if grid is None or not grid.is_centred(NUMBER_BITS):
        return None
    numbers = grid.numbers.astype(np.int8).reshape(len(dense), lanes, depth).transpose(0, 2, 1)
    with np.errstate(under="ignore"):
        again = grid.scales.reshape(-1, 1, lanes) * numbers.astype(np.float32)
    if not np.array_equal(again.view(np.uint32), dense.view(np.uint32)):  # -0
        return None
    return Coded(octets.size, SCALED, depth, lanes, grid.scales.astype("<f4").tobytes() + numbers.tobytes())


def _book(values: np.ndarray, bits: int) -> bytes:
    """A codebook, filled up with zeros."""
    book = np.zeros(1 << bits, "<u4")
    book[: len(values)] = values
    return book.tobytes()


def _indices(places: np.ndarray, bits: int) -> bytes:
    each = 8 // bits
    filled = np.zeros(-(-len(places) // each) * each, np.uint8)
    filled[: len(places)] = places
    shifted = filled.reshape(-1, each) << np.arange(0, 8, bits, dtype=np.uint8)
    packed = np.bitwise_or.reduce(shifted, axis=1)
    return bytes(packed.astype(np.uint8).tobytes())
