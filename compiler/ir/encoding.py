"""Encodings: how the elements of a constant may be kept in memory, which is for its values to say.

    DENSE      each element in its own dtype
    INT24      fp32 in 24 bits: three quarters of the bytes where reading them is all the work
    Sparse     without most zeros, each element with its place: where a good part of a matrix is zero
    Codebook   indices into few values (`compiler.ir.codebook`)
    TwoOfFour  two of each four neighbours, each with its place among them: what sparse tensor cores take

In INT24 a column of a matrix is kept as whole numbers of 24 bits times a power of two of its own, the least for which
the largest element fits. An element is off by at most 2^-23 of the largest of its column, about what fp32 arithmetic
makes of a sum over the column anyway (its products alone round to 2^-24 of themselves). Elements that came from a half
type stay what they are, unless they are below 2^-12 of the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.packing import Panels
from compiler.ir.tensor import DType
from compiler.ir.zeros import CLASSES, GROUPS, MOST_AXES, fill_of, is_grouped, is_pruned, kept

INT24_BYTES = 3
"""Of an element."""
BITS = 8 * INT24_BYTES - 1
"""Of an element's magnitude."""
MAX_PEAK = 16.0
"""How far the largest element of a line may exceed the root of their mean square. Beyond it the others would lose
digits."""
MIN_BYTES = 1 << 20
"""Smaller constants stay in a cache, from which whole floats come as fast."""


@dataclass(frozen=True)
class Int24Panels:
    """Panels of 24 bits: for each, uint8[depth, panel, 3], little-endian and signed.

    Then one factor for each column, float32[panel]. A number n of the packed panel stands for n * 256 * 2^-31 times the
    factor of its column.
    """

    panels: Panels
    dtype: DType = DType.U8

    @property
    def panel_bytes(self) -> int:
        """Of one panel with its factors."""
        return self.panels.panel * (INT24_BYTES * self.panels.depth + 4)

    @property
    def elements(self) -> int:
        """Bytes of the packed constant."""
        return self.panels.elements // (self.panels.panel * self.panels.depth) * self.panel_bytes

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant in panels as integers of 24 bits, each column of a panel after its power of two."""
        depth, panel = self.panels.depth, self.panels.panel
        packed = []
        for floats in self.panels.pack(constant).reshape(-1, depth, panel):
            _, exponent = np.frexp(np.abs(floats).max(0))
            whole = np.rint(np.ldexp(floats.astype(np.float64), BITS - exponent)).clip(-(2**BITS), 2**BITS - 1)
            octets = np.ascontiguousarray(whole.astype("<i4")).view(np.uint8).reshape(depth, panel, 4)
            factors = np.ldexp(np.float32(1), exponent).astype("<f4")
            packed += [octets[:, :, :INT24_BYTES].reshape(-1), factors.view(np.uint8)]
        return np.concatenate(packed)


@dataclass(frozen=True)
class Encoding:
    """One way to keep a constant's elements.

    `word` is what the text of a workload calls a constant that may be kept so.
    """

    name: str
    word: str

    def __str__(self) -> str:
        return self.name

    def pruned(self, constant: np.ndarray) -> np.ndarray:
        """A constant with its elements changed as the encoding asks; the same where it may hold any elements."""
        return constant


DENSE = Encoding("dense", "")
INT24 = Encoding("int24", "narrow")
ENCODINGS: tuple[Encoding, ...] = (DENSE, INT24)
"""Those that a constant has or has not. Sparse encodings, which follow them, differ by how sparse a constant is."""
SPARSE_WORD = "sparse"


@dataclass(frozen=True)
class Sparse(Encoding):
    """The elements that are not zero, with their places, line by line of a matrix.

    axis   the constant's dimension of which each index is a line: a filter, a column of a product's second operand
    fills  what is kept, for each of GROUPS lines that are kept together, in 1 / CLASSES of all places
    """

    axis: int
    fills: tuple[int, ...]

    @staticmethod
    def of(axis: int, fills: tuple[int, ...]) -> Sparse:
        """The encoding with the word that stands for it in tiles."""
        word = "_".join(map(str, (SPARSE_WORD, axis, *fills)))
        return Sparse(word, word, axis, fills)

    @staticmethod
    def read(word: str) -> Sparse:
        """From `word`. Raises ValueError for any other."""
        first, *numbers = word.split("_")
        if first != SPARSE_WORD or len(numbers) != 1 + len(GROUPS) or not all(map(str.isdecimal, numbers)):
            raise ValueError(f"`{word}` is no sparse encoding")
        axis, *fills = map(int, numbers)
        if axis > 1 or not all(0 < fill <= CLASSES for fill in fills):
            raise ValueError(f"`{word}` is no sparse encoding: an axis is 0 or 1, a fill 1 to {CLASSES}")
        return Sparse.of(axis, tuple(fills))

    def fill(self, group: int) -> int:
        """What is kept when so many lines are kept together."""
        return self.fills[GROUPS.index(group)]


TWO_OF_FOUR_WORD = "two_of_four"
GROUP, KEPT = 4, 2
"""Neighbours, and how many of them are kept at most."""


@dataclass(frozen=True)
class TwoOfFour(Encoding):
    """Two elements of each four neighbours along a dimension, with their places among the four: the others are zero."""

    axis: int

    @staticmethod
    def of(axis: int) -> TwoOfFour:
        """The encoding with the word that stands for it in the text of workloads."""
        word = f"{TWO_OF_FOUR_WORD}_{axis}"
        return TwoOfFour(word, word, axis)

    @staticmethod
    def read(word: str) -> TwoOfFour:
        """From `word`. Raises ValueError for any other."""
        first, _, axis = word.rpartition("_")
        if first != TWO_OF_FOUR_WORD or not axis.isdecimal() or int(axis) >= MOST_AXES:
            raise ValueError(f"`{word}` is no encoding of two elements of four")
        return TwoOfFour.of(int(axis))

    def fits(self, dims: tuple[int, ...]) -> bool:
        """Whether a constant of this shape has whole groups."""
        return self.axis < len(dims) and dims[self.axis] % GROUP == 0

    def takes(self, constant: np.ndarray) -> bool:
        """Whether no more than two of any four neighbours are not zero."""
        return self.fits(constant.shape) and bool((kept(self._grouped(constant)).sum(-1) <= KEPT).all())

    def pruned(self, constant: np.ndarray) -> np.ndarray:
        """The constant with all but the two largest of each four neighbours set to zero; of equals the first stay."""
        groups = self._grouped(constant)
        sizes = np.abs(groups if constant.dtype.kind == "f" else groups.astype(np.int64))  # -128 has no size in int8
        ranks = np.argsort(np.argsort(-sizes, axis=-1, kind="stable"), axis=-1)
        zeroed = np.where(ranks < KEPT, groups, np.zeros((), constant.dtype))
        return np.moveaxis(zeroed.reshape(*zeroed.shape[:-2], -1), -1, self.axis)

    def _grouped(self, constant: np.ndarray) -> np.ndarray:
        """The groups as the last axis."""
        last = np.moveaxis(constant, self.axis, -1)
        return last.reshape(*last.shape[:-1], -1, GROUP)


Encodings = tuple[Encoding, ...]
"""In which a tensor may be kept, in the order of ENCODINGS. DENSE is always among them."""


def encodings_of(constant: np.ndarray) -> Encodings:
    """All in which a constant may be kept, by its dtype, size and values."""
    return (DENSE, INT24) if _fits_int24(constant) else (DENSE,)


def sparse_encodings_of(constant: np.ndarray) -> Encodings:
    """The sparse ones in which a constant may be kept, by its dtype, size and zeros.

    By its first axis; a matrix also by its second. None for weights of groups that were written as one: their blocks
    are dense, and a grouped convolution leaves out what lies beside them.
    """
    if constant.dtype != np.float32 or not is_pruned(constant):
        return ()
    array = constant.squeeze() if min(constant.shape) == 1 and constant.squeeze().ndim == 2 else constant
    if array.ndim < 2 or is_grouped(array):
        return ()
    lines = kept(array.reshape(len(array), -1))
    sides = (lines, np.ascontiguousarray(lines.T)) if array.ndim == 2 else (lines,)
    return tuple(Sparse.of(axis, tuple(fill_of(side, group) for group in GROUPS)) for axis, side in enumerate(sides))


def pruned(array: np.ndarray, encodings: Encodings) -> np.ndarray:
    """An array with zeros, and few values, where encodings of a constant ask for it: it stands in trials of kernels."""
    for one in encodings:
        array = one.pruned(array)
    return array


def two_of_four_encodings_of(constant: np.ndarray) -> Encodings:
    """Those by which two of each four neighbours of a constant are kept, one for each dimension along which it fits.

    Floats and int8 are multiplied so, for which zeros are those of a zero point of 0.
    """
    if constant.dtype.kind != "f" and constant.dtype != np.int8:
        return ()
    if not is_pruned(constant):
        return ()
    return tuple(one for one in map(TwoOfFour.of, range(constant.ndim)) if one.takes(constant))


def _fits_int24(constant: np.ndarray) -> bool:
    """A large matrix of fp32, or a few of them, no line of which, along any axis, has a lonely peak."""
    constant = constant.squeeze()
    if constant.dtype != np.float32 or constant.ndim not in (2, 3) or constant.nbytes < MIN_BYTES:
        return False
    if not bool(np.isfinite(constant).all()):
        return False
    squares = np.square(constant, dtype=np.float64)
    return all(bool(np.all(squares.max(axis) <= MAX_PEAK**2 * squares.mean(axis))) for axis in range(constant.ndim))
