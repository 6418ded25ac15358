"""Constants of few values as a file of weights holds them: a codebook and indices, made dense once they are loaded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.codebook import CHUNK, FIRST_LOOK, LEAST_SAVED, MOST_VALUES, bits_for

LEAST_CODED = 1 << 14
"""Elements from which on a constant is stored so."""


PLAIN = 32
"""Bits of an element that has no index: the place is that of the elements themselves."""


@dataclass(frozen=True)
class Expansion:
    """A constant, or a part of one, that is made dense when a program is loaded.

    at     the byte where it lies then, counted from the file's first one; below 0, since it lies before that
    place  the byte of the file at which its codebook begins, float32[1 << bits], behind which its indices are
    count  of elements
    bits   of an index: 1, 2, 4 or 8; of several in a byte the first is the lowest. PLAIN: elements as they are
    """

    at: int
    place: int
    count: int
    bits: int

    def __str__(self) -> str:
        return f"{{{self.at}, {self.place}, {self.count}, {self.bits}}}"


def coded(data: np.ndarray) -> tuple[int, int, bytes] | None:
    """How many elements of an fp32 array share one codebook, the bits of their indices, and codebook and indices.

    They are those at the beginning: packed constants may end in zeros that are a value more. None where an array is
    small, or too little would be saved.
    """
    if data.dtype != np.float32 or data.size < LEAST_CODED:
        return None
    octets = np.ascontiguousarray(data).reshape(-1).view(np.uint32)
    count, values = _at_the_beginning(octets)
    bits = bits_for(len(values))
    if 4 * (octets.size - count) + count * bits // 8 > LEAST_SAVED * data.nbytes:
        return None
    book = np.zeros(1 << bits, "<u4")
    book[: len(values)] = values
    indices = np.zeros(-(-count * bits // 8) * 8 // bits, np.uint8)
    indices[:count] = np.searchsorted(values, octets[:count])
    places = indices.reshape(-1, 8 // bits) << np.arange(0, 8, bits, dtype=np.uint8)
    return count, bits, book.tobytes() + np.bitwise_or.reduce(places, axis=1).astype(np.uint8).tobytes()


def _at_the_beginning(octets: np.ndarray) -> tuple[int, np.ndarray]:
    """How many elements, in whole chunks, have at most MOST_VALUES values, and these; none of most arrays."""
    values = np.unique(octets[:FIRST_LOOK])
    if len(values) > MOST_VALUES:
        return 0, values[:0]
    for at in range(0, octets.size, CHUNK):
        more = np.union1d(values, octets[at : at + CHUNK])
        if len(more) > MOST_VALUES:
            return at, values
        values = more
    return octets.size, values
