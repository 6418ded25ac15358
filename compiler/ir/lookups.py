"""Matrices whose zeros lie anywhere, as steps in which each line looks up one element in a vector of its inputs.

These are the steps of `compiler.ir.picks` for single numbers, for products of few rows, whose time is that of reading
the matrix. Inputs of such products are copied before they are multiplied, in whatever order: where columns can be
combined without conflicts (`compiler.ir.combined`) those of a group become neighbours, so that one step takes a packed
column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from compiler.ir.combined import combined
from compiler.ir.encoding import Encoding, Encodings
from compiler.ir.picks import MOST_FILL, in_panels, steps_of
from compiler.ir.zeros import CLASSES, MOST_AXES, class_of, is_pruned, kept, pairs_of_axes

LOOKUPS_WORD = "lookups"
WIDTHS = (8, 16)
"""Floats of a vector: lines that step together, and neighbours among which each looks up one."""
MOST_INPUTS = 1 << 16
"""Places that 16 bits can tell."""


@dataclass(frozen=True)
class Lookups(Encoding):
    """Steps in which each line has one weight, anywhere in a vector of inputs.

    lines    the constant's dimension of which each index is a line: columns of a product's second operand
    ordered  whether inputs are taken in the order of `order_of`
    fills    how many steps there are for each of WIDTHS, in 1 / CLASSES of those of the dense form
    """

    lines: int
    ordered: bool
    fills: tuple[int, ...]

    @staticmethod
    def of(lines: int, ordered: bool, fills: tuple[int, ...]) -> Lookups:
        """The encoding with the word that stands for it in the text of workloads."""
        word = "_".join(map(str, (LOOKUPS_WORD, lines, int(ordered), *fills)))
        return Lookups(word, word, lines, ordered, fills)

    @staticmethod
    def read(word: str) -> Lookups:
        """From `word`. Raises ValueError for any other."""
        first, *numbers = word.split("_")
        if first != LOOKUPS_WORD or len(numbers) != 2 + len(WIDTHS) or not all(map(str.isdecimal, numbers)):
            raise ValueError(f"`{word}` is no encoding of lookups")
        lines, ordered, *fills = map(int, numbers)
        if lines >= MOST_AXES or ordered > 1 or not all(0 < fill <= CLASSES for fill in fills):
            raise ValueError(f"`{word}` is no encoding of lookups: a fill is 1 to {CLASSES}, an order is there or not")
        return Lookups.of(lines, bool(ordered), tuple(fills))

    def fits(self, dims: tuple[int, ...]) -> bool:
        """Whether a constant of this shape is a matrix with such lines, none shorter than a vector."""
        if self.lines >= len(dims) or sum(dim > 1 for dim in dims) != 2 or dims[self.lines] == 1:
            return False
        return max(WIDTHS) <= int(np.prod(dims)) // dims[self.lines] <= MOST_INPUTS

    def fill(self, width: int) -> int | None:
        """The steps of vectors of so many floats; None where it is not told."""
        return self.fills[WIDTHS.index(width)] if width in WIDTHS else None


def lookup_encodings_of(constant: np.ndarray) -> Encodings:
    """Those in which a matrix of fp32 may be kept, by its zeros, one for each of its dimensions."""
    if constant.dtype != np.float32 or not is_pruned(constant):
        return ()
    return tuple(one for lines, along in pairs_of_axes(constant) for one in _encodings(constant, lines, along))


def _encodings(constant: np.ndarray, lines: int, along: int) -> Iterator[Lookups]:
    if constant.size != constant.shape[lines] * constant.shape[along]:
        return
    if not max(WIDTHS) <= constant.shape[along] <= MOST_INPUTS:
        return
    mask = np.moveaxis(kept(constant), (lines, along), (0, -1)).reshape(constant.shape[lines], -1)
    order = order_of(mask)
    fills = _fills(mask if order is None else mask[:, order])
    if fills[-1] <= MOST_FILL * CLASSES:
        yield Lookups.of(lines, order is not None, fills)


def order_of(mask: np.ndarray) -> np.ndarray | None:
    """The inputs of bool[lines, inputs] so that columns which can be combined are neighbours: int64[inputs].

    None where they cannot be. Inputs that no line reads come last.
    """
    found = combined(mask)
    if found is None:
        return None
    return np.argsort(np.where(found.group < 0, found.packed, found.group), kind="stable")


def _fills(mask: np.ndarray) -> tuple[int, ...]:
    fills = []
    for width in WIDTHS:
        panels = in_panels(mask, width)
        steps = steps_of(panels, 1, width).counts.sum()
        fills.append(min(class_of(steps, len(panels) * mask.shape[1]), CLASSES))
    return tuple(fills)
