"""Two of each four neighbours, each with its place among them: what sparse tensor cores take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.encodings.encoding import Encoding, Use
from compiler.encodings.zeros import MOST_AXES, is_pruned, kept

GROUP, KEPT = 4, 2
"""Neighbours, and how many of them are kept at most."""


@dataclass(frozen=True)
class TwoOfFour(Encoding):
    """Two elements of each four neighbours along a dimension, with their places among the four: the others are zero."""

    begins = "two_of_four"
    axis: int

    @classmethod
    def find(cls, constant: np.ndarray, use: Use) -> tuple[TwoOfFour, ...]:
        """One for each dimension along which two of each four neighbours of a constant are kept.

        Floats and int8 are multiplied so, for which zeros are those of a zero point of 0.
        """
        if use is not Use.TENSOR_CORES or not (constant.dtype.kind == "f" or constant.dtype == np.int8):
            return ()
        if not is_pruned(constant):
            return ()
        return tuple(one for one in map(TwoOfFour.of, range(constant.ndim)) if one.takes(constant))

    @staticmethod
    def of(axis: int) -> TwoOfFour:
        """The encoding with the word that stands for it in the text of workloads."""
        word = TwoOfFour.words(axis)
        return TwoOfFour(word, word, axis)

    @classmethod
    def read(cls, word: str) -> TwoOfFour:
        """With a dimension."""
        numbers = cls.numbers(word)
        if len(numbers) != 1 or numbers[0] >= MOST_AXES:
            raise ValueError(f"`{word}` is no encoding of two elements of four")
        return TwoOfFour.of(*numbers)

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
