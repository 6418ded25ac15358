"""Blocks of zeros: weights kept in groups of neighbours, each for as many lines as a few vectors have lanes.

Instructions that add dot products take k in groups, four bytes or two bf16 to a lane, for all lanes of a vector. What
they can leave out is a group that is zero for every line of its vectors. Where one number at a time is multiplied, as
the state of a recurrent layer is, a group is a single one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from compiler.encodings.encoding import Encoding, Use, group_of
from compiler.encodings.zeros import CLASSES, MOST_AXES, any_in_groups, class_of, is_pruned, kept, pairs_of_axes

WIDTHS = (8, 16, 32)
"""Lines whose groups may be kept together."""
MOST_FILL = 0.75
"""The share of blocks, the narrowest ones, up to which they are told of at all."""
GROUPS = (1, 2, 4, 8)
"""Neighbours of a group: floats of recurrent layers, those rounded to bf16, bytes; on GPUs any of them."""
TILE = min(WIDTHS)
"""Lines and neighbours of the tiles that a constant is pruned by."""


@dataclass(frozen=True)
class Blocks(Encoding):
    """The groups that are not zero for each of some neighbouring lines, with their places.

    lines  the constant's dimension of which each index is a line: filters, columns of a product's second operand
    along  the dimension along which a group lies
    group  how many neighbours it has
    fills  what is kept, for each of WIDTHS, in 1 / CLASSES of all blocks
    """

    begins = "blocks"
    lines: int
    along: int
    group: int
    fills: tuple[int, ...]

    @classmethod
    def find(cls, constant: np.ndarray, use: Use) -> tuple[Blocks, ...]:
        """Groups of as many neighbours as are multiplied together; for tensor cores of any size.

        Of a recurrent layer's weights fp32[..., gates, inputs] gates are the lines, inputs are kept one by one, and no
        block reaches from one matrix to the next.
        """
        if use is Use.RECURRENCE:
            if constant.dtype != np.float32 or constant.ndim < 2 or not is_pruned(constant):
                return ()
            return tuple(_encodings(constant, constant.ndim - 2, constant.ndim - 1, 1))
        if use is Use.TENSOR_CORES:
            if not (constant.dtype.kind == "f" or constant.dtype == np.int8) or not is_pruned(constant):
                return ()
            return tuple(one for pair in pairs_of_axes(constant) for one in _vectors(constant, *pair))
        group = group_of(constant, use)
        return block_encodings_of(constant, group) if group else ()

    @staticmethod
    def of(lines: int, along: int, group: int, fills: tuple[int, ...]) -> Blocks:
        """The encoding with the word that stands for it in the text of workloads."""
        word = Blocks.words(lines, along, group, *fills)
        return Blocks(word, word, lines, along, group, fills)

    @classmethod
    def read(cls, word: str) -> Blocks:
        """With two dimensions, a group, and a fill for each of WIDTHS."""
        numbers = cls.numbers(word)
        if len(numbers) != 3 + len(WIDTHS):
            raise ValueError(f"`{word}` is no encoding of blocks")
        lines, along, group, *fills = numbers
        if group not in GROUPS or lines == along or max(lines, along) >= MOST_AXES:
            raise ValueError(f"`{word}` is no encoding of blocks: no such dimensions or group")
        if not all(0 < fill <= CLASSES for fill in fills):
            raise ValueError(f"`{word}` is no encoding of blocks: a fill is 1 to {CLASSES}")
        return Blocks.of(lines, along, group, tuple(fills))

    def fits(self, dims: tuple[int, ...]) -> bool:
        """Whether a constant of this shape has whole groups."""
        return max(self.lines, self.along) < len(dims) and dims[self.along] % self.group == 0

    def fill(self, width: int) -> int | None:
        """What is kept when so many lines are kept together; None where that is not told."""
        return self.fills[WIDTHS.index(width)] if width in WIDTHS else None

    def pruned(self, constant: np.ndarray) -> np.ndarray:
        """The constant with no more blocks than are told of, whatever it keeps; square tiles of it stay.

        What is pruned by several encodings of these dimensions keeps the tiles of the scarcest.
        """
        outer, inner = sorted((self.lines, self.along))
        places = np.moveaxis(constant, (outer, inner), (0, 1))
        shape = places.shape[:2]
        order = _tiles_in_order(shape[0], shape[1], places[0, 0].size)
        left = np.zeros(order.shape, bool)
        left[np.unravel_index(np.argsort(order, axis=None)[: self._room(order, shape)], order.shape)] = True
        mask = left.repeat(TILE, 0).repeat(TILE, 1)[: shape[0], : shape[1]].reshape(places.shape)
        return np.moveaxis(np.where(mask, places, np.zeros((), constant.dtype)), (0, 1), (outer, inner))

    def _room(self, order: np.ndarray, shape: tuple[int, ...]) -> int:
        """How many tiles, the first by int64[outer, inner, others], have no more blocks than are told of."""
        outer, inner, other = np.unravel_index(np.argsort(order, axis=None), order.shape)
        rows, columns = (outer, inner) if self.lines < self.along else (inner, outer)
        lines, along = shape if self.lines < self.along else shape[::-1]
        groups = -(-np.minimum(TILE, along - columns * TILE) // self.group)
        room = order.size
        for width, fill in zip(WIDTHS, self.fills, strict=True):
            block = (rows * TILE // width * along + columns) * order.shape[2] + other
            _, first = np.unique(block, return_index=True)
            new = np.zeros(order.size, np.int64)
            new[first] = groups[first]
            whole = -(-lines // width) * (along // self.group) * order.shape[2]
            room = min(room, int(np.searchsorted(np.cumsum(new), fill * whole // CLASSES, side="right")))
        return room


def block_encodings_of(constant: np.ndarray, group: int) -> tuple[Blocks, ...]:
    """Those of blocks of so many neighbours in which a constant may be kept, by its size and zeros.

    The first two axes are lines or groups.
    """
    if not is_pruned(constant):
        return ()
    return tuple(one for pair in pairs_of_axes(constant) for one in _encodings(constant, *pair, group))


def _tiles_in_order(outer: int, inner: int, others: int) -> np.ndarray:
    """In which order tiles stay, int64[outer, inner, others]: those of the widest panels together, these at random."""
    tiles = (-(-outer // TILE), -(-inner // TILE))
    many = max(WIDTHS) // TILE
    scores = np.random.default_rng(0).random((-(-tiles[0] // many), -(-tiles[1] // many), others))
    each = scores.repeat(many, 0).repeat(many, 1)[: tiles[0], : tiles[1]]
    order = np.empty(each.size, np.int64)
    order[np.argsort(each, axis=None, kind="stable")] = np.arange(each.size)
    return order.reshape(each.shape)


def _vectors(constant: np.ndarray, lines: int, along: int) -> list[Blocks]:
    """Of groups of every size; a group is told of where the next larger one keeps more."""
    found: list[Blocks] = []
    for group in reversed(GROUPS):
        for one in _encodings(constant, lines, along, group):
            if not found or one.fills != found[-1].fills:
                found.append(one)
    return found


def _encodings(constant: np.ndarray, lines: int, along: int, group: int) -> Iterator[Blocks]:
    if constant.shape[along] % group:
        return
    places = np.moveaxis(kept(constant), (lines, along), (0, 1))
    groups = places.reshape(len(places), -1, group, places[0, 0].size).any(2).reshape(len(places), -1)
    fills = tuple(_fill(groups, width) for width in WIDTHS)
    if fills[0] <= MOST_FILL * CLASSES:
        yield Blocks.of(lines, along, group, fills)


def _fill(groups: np.ndarray, width: int) -> int:
    """The share of blocks of so many lines of bool[lines, groups] that are kept, in 1 / CLASSES; at least 1."""
    blocks = any_in_groups(groups, width)
    return class_of(int(np.count_nonzero(blocks)), blocks.size)
