"""Codebooks: weights of few distinct values, kept as these and, for each weight, its place among them.

Such weights come from clustering (Han et al., Deep Compression, ICLR 2016, section 3), palettes, look-up tables of a
few bits and quantised layers written as floats. Values are told apart by their bits: -0.0 is another value than 0.0, so
that what is looked up is what was there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from compiler.encodings.encoding import Encoding, Use
from compiler.encodings.finding import MEGABYTE, Reported
from compiler.encodings.zeros import LEAST_ELEMENTS, MOST_AXES, pairs_of_axes

BITS = (1, 2, 4, 8)
"""Of an index."""
MOST_VALUES = 256
OWN_VALUES, OWN_BITS = 16, 4
"""Of a codebook that is one line's own: larger ones take more bytes than they save."""
LEAST_SAVED = 0.5
"""The share of a constant's bytes that its codebooks and indices may take at most."""
CODED = "gemv_codebook"
"""The algorithm whose kernels look weights up."""
FIRST_LOOK = 2048
"""Elements of which most constants show that they have too many values."""
CHUNK = 1 << 16


@dataclass(frozen=True)
class Codebook(Encoding):
    """Indices of so many bits into the values.

    axis  the constant's dimension of which each index has a codebook of its own; None where one serves all
    """

    begins = "codebook"
    bits: int
    axis: int | None

    @classmethod
    def find(cls, constant: np.ndarray, use: Use) -> tuple[Codebook, ...]:
        """Those that save enough bytes, by a constant's dtype, size and values."""
        return tuple(one.encoding for one in every_codebook_of(constant)) if use is Use.GEMV else ()

    @staticmethod
    def of(bits: int, axis: int | None = None) -> Codebook:
        """The encoding with the word that stands for it in the text of workloads."""
        word = Codebook.words(bits, *(() if axis is None else (axis,)))
        return Codebook(word, word, bits, axis)

    @classmethod
    def read(cls, word: str) -> Codebook:
        """With bits, and a dimension if lines have codebooks of their own."""
        numbers = cls.numbers(word)
        if not 1 <= len(numbers) <= 2:
            raise ValueError(f"`{word}` is no codebook")
        bits, *axis = numbers
        if bits not in BITS or any(one >= MOST_AXES for one in axis):
            raise ValueError(f"`{word}` is no codebook: an index has {', '.join(map(str, BITS))} bits")
        return Codebook.of(bits, *axis)

    def fits(self, dims: tuple[int, ...]) -> bool:
        """Whether a constant of this shape has such lines."""
        return self.axis is None or self.axis < len(dims)

    def pruned(self, constant: np.ndarray) -> np.ndarray:
        """A constant with each element moved to the nearest of as many values as an index tells apart; zeros stay."""
        low, high = min(float(constant.min()), 0.0), max(float(constant.max()), 0.0)
        steps = (1 << self.bits) - 1
        step = (high - low) / steps or 1.0
        least = np.rint(low / step)
        levels = np.rint(constant / step).clip(least, least + steps) + 0.0  # no zero has a sign
        return np.asarray(levels * step, constant.dtype)


def values_of(array: np.ndarray, most: int) -> np.ndarray | None:
    """The distinct values of an fp32 array, as sorted bits uint32[values]; None where there are more than `most`."""
    octets = bits_of(array).reshape(-1)
    found = np.unique(octets[:FIRST_LOOK])
    for at in range(FIRST_LOOK, octets.size, CHUNK):
        if len(found) > most:
            return None
        found = np.union1d(found, octets[at : at + CHUNK])
    return found if len(found) <= most else None


def bits_of(array: np.ndarray) -> np.ndarray:
    """The bits of fp32 elements, uint32 of the same shape."""
    return np.ascontiguousarray(array, np.float32).view(np.uint32)


def bits_for(values: int) -> int:
    """The fewest bits by which so many values are told apart."""
    return next(bits for bits in BITS if values <= 1 << bits)


@dataclass(frozen=True)
class SharedValues(Reported):
    """That the elements of a weight tensor share few values.

    values     in the largest codebook
    codebooks  one, or one for each index of an axis
    zeros      how many elements are zero
    """

    key = "shared"
    computed = True
    title = "Weights of few values"

    shape: tuple[int, ...]
    encoding: Codebook
    values: int
    codebooks: int
    zeros: int

    @classmethod
    def of(cls, constant: np.ndarray, use: Use = Use.PRODUCT) -> SharedValues | None:
        """The way to keep a constant as indices that takes the fewest bytes; None where there is none."""
        return min(every_codebook_of(constant), key=lambda one: one.bytes, default=None)

    def to_json(self) -> dict[str, Any]:
        """`values` of the largest codebook, `bits` of an index, `codebooks`, and the `axis` with one for each index.

        The axis is null where one codebook serves all. `zeros` is their share, `saved_bytes` are beside fp32.
        """
        return {
            "values": self.values,
            "bits": self.encoding.bits,
            "codebooks": self.codebooks,
            "axis": self.encoding.axis,
            "zeros": round(self.zeros / self.elements, 4),
            "saved_bytes": self.saved_bytes,
        }

    @property
    def elements(self) -> int:
        """How many there are."""
        return int(np.prod(self.shape))

    @property
    def bytes(self) -> int:
        """Of codebooks and indices together."""
        return 4 * self.values * self.codebooks + -(-self.elements * self.encoding.bits // 8)

    @property
    def saved_bytes(self) -> int:
        """Of those of the dense tensor."""
        return 4 * self.elements - self.bytes

    @property
    def words(self) -> str:
        """How indices and codebooks are kept."""
        kept = f"indices of {self.encoding.bits} bit{'s' * (self.encoding.bits > 1)}"
        whose = (
            "one codebook" if self.encoding.axis is None else f"a codebook for each index of axis {self.encoding.axis}"
        )
        return f"{kept}, {whose}"

    @property
    def gain(self) -> int:
        """Bytes."""
        return self.saved_bytes

    @classmethod
    def summary(cls, each: Sequence[Self]) -> str:
        """Values, zeros among them, and what is saved, of tensors together."""
        most, zeros = max(one.values for one in each), sum(one.zeros for one in each)
        share = f", {100 * zeros / sum(one.elements for one in each):.1f} % zeros" if zeros else ""
        dense = sum(4 * one.elements for one in each) / MEGABYTE
        stored = sum(one.bytes for one in each) / MEGABYTE
        return f"{most} values{share}; {stored:.2f} MB for {dense:.2f} MB in fp32"

    @staticmethod
    def is_used_by(algorithm: str) -> bool:
        """Whether weights are looked up."""
        return algorithm == CODED

    @staticmethod
    def note(used: bool) -> str:
        """Whether indices are kept."""
        if used:
            return "kept as indices and looked up"
        return (
            "multiplied dense, which is faster or all there is; for CPUs large ones are stored as indices unless their "
            "kernel transforms them"
        )

    def __str__(self) -> str:
        zeros = f", {100 * self.zeros / self.elements:.1f} % zeros" if self.zeros else ""
        return f"{self.values} values{zeros}; {self.words}"


def every_codebook_of(constant: np.ndarray) -> tuple[SharedValues, ...]:
    """How a constant's elements share values, the one codebook first, then those of axes with 16 values at most each.

    None of a constant that is small, is not fp32 or has a NaN or an infinity, and where too few bytes would be saved.
    """
    if constant.dtype != np.float32 or constant.ndim < 2 or constant.size < LEAST_ELEMENTS:
        return ()
    if constant.ndim > MOST_AXES:
        return ()
    whole = values_of(constant, MOST_VALUES)
    found = [] if whole is None else [_shared(constant, [whole], None)]
    if whole is None or bits_for(len(whole)) > OWN_BITS:
        found += [one for lines, _ in pairs_of_axes(constant) if (one := _by_lines(constant, lines)) is not None]
    return tuple(one for one in found if one is not None and one.bytes <= LEAST_SAVED * constant.nbytes)


def _by_lines(constant: np.ndarray, axis: int) -> SharedValues | None:
    own = []
    for line in np.moveaxis(constant, axis, 0):
        values = values_of(line, OWN_VALUES)
        if values is None:
            return None
        own.append(values)
    return _shared(constant, own, axis)


def _shared(constant: np.ndarray, codebooks: list[np.ndarray], axis: int | None) -> SharedValues | None:
    if not all(bool(np.isfinite(values.view(np.float32)).all()) for values in codebooks):
        return None
    most = max(map(len, codebooks))
    zeros = constant.size - int(np.count_nonzero(constant))
    return SharedValues(constant.shape, Codebook.of(bits_for(most), axis), most, len(codebooks), zeros)
