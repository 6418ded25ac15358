"""Single elements without most zeros, each with its place: where a good part of a matrix is zero."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.encodings.encoding import Encoding, Use
from compiler.encodings.zeros import CLASSES, GROUPS, fill_of, is_grouped, is_pruned, kept


@dataclass(frozen=True)
class Sparse(Encoding):
    """The elements that are not zero, with their places, line by line of a matrix.

    axis   the constant's dimension of which each index is a line: a filter, a column of a product's second operand
    fills  what is kept, for each of GROUPS lines that are kept together, in 1 / CLASSES of all places
    """

    begins = "sparse"
    axis: int
    fills: tuple[int, ...]

    @classmethod
    def find(cls, constant: np.ndarray, use: Use) -> tuple[Sparse, ...]:
        """By the first axis of fp32 weights; of a matrix also by its second.

        None for weights of groups that were written as one: their blocks are dense, and a grouped convolution leaves
        out what lies beside them.
        """
        if use not in (Use.PRODUCT, Use.BF16_PRODUCT) or constant.dtype != np.float32 or not is_pruned(constant):
            return ()
        array = constant.squeeze() if min(constant.shape) == 1 and constant.squeeze().ndim == 2 else constant
        if array.ndim < 2 or is_grouped(array):
            return ()
        lines = kept(array.reshape(len(array), -1))
        sides = (lines, np.ascontiguousarray(lines.T)) if array.ndim == 2 else (lines,)
        return tuple(
            Sparse.of(axis, tuple(fill_of(side, group) for group in GROUPS)) for axis, side in enumerate(sides)
        )

    @staticmethod
    def of(axis: int, fills: tuple[int, ...]) -> Sparse:
        """The encoding with the word that stands for it in tiles."""
        word = Sparse.words(axis, *fills)
        return Sparse(word, word, axis, fills)

    @classmethod
    def read(cls, word: str) -> Sparse:
        """With a fill for each of GROUPS."""
        numbers = cls.numbers(word)
        if len(numbers) != 1 + len(GROUPS):
            raise ValueError(f"`{word}` is no sparse encoding")
        axis, *fills = map(int, numbers)
        if axis > 1 or not all(0 < fill <= CLASSES for fill in fills):
            raise ValueError(f"`{word}` is no sparse encoding: an axis is 0 or 1, a fill 1 to {CLASSES}")
        return Sparse.of(axis, tuple(fills))

    def fill(self, group: int) -> int:
        """What is kept when so many lines are kept together."""
        return self.fills[GROUPS.index(group)]
