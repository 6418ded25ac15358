"""Weights whose zeros lie anywhere, as steps in which each line picks a few elements out of one window of its inputs.

Instructions that add dot products take a group of inputs, four bytes or two bf16, for a line in each lane. Where lanes
can pick their groups by themselves from a vector of neighbouring inputs, a step has for each line its next few weights
that are not zero, if all of them lie in one window. The window begins at the least input that a line still lacks, so
that lines wait for each other little: the number of steps is near to the weights of the fullest line over a group.

Where lanes hold one number each, as the state of a recurrent layer is multiplied in fp32, a group is a single one. Few
rows that are multiplied by a matrix are copied before, in whatever order: where columns of the matrix can be combined
without conflicts (`compiler.encodings.combined`) those of a group become neighbours, so that one step takes a packed
column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from compiler.encodings.combined import combined
from compiler.encodings.encoding import Encoding, Use, group_of
from compiler.encodings.zeros import CLASSES, MOST_AXES, class_of, is_pruned, kept, pairs_of_axes

ORDERED = "_ordered"
"""At the end of an encoding's word."""
WINDOWS: Mapping[tuple[int, int], tuple[int, ...]] = {
    (4, 64): (16, 32),
    (4, 16): (4, 8, 16, 32),
    (2, 32): (16, 32),
    (2, 8): (4, 8, 16, 32),
    (1, 32): (16, 32),
    (1, 16): (4, 8, 16, 32),
    (1, 8): (8, 16, 32),
}
"""Lines that step together, by the neighbours of a group and of a window.

Windows are of 64 and of 16 bytes; of floats, of as many as one or two vectors hold.
"""
NOWHERE = 1 << 62
"""Behind the last input of any line."""
MOST_FILL = 0.6
"""The share of the dense form's steps, for the fewest lines, up to which steps are told of at all."""


@dataclass(frozen=True)
class Picks(Encoding):
    """Steps in which each line has a group of weights anywhere in a window.

    lines   the constant's dimension of which each index is a line: filters, columns of a product's second operand
    along   the dimension that is innermost among a line's inputs; the others are taken in their order
    group   weights of a line in a step
    window  neighbouring inputs among which they lie
    fills   how many steps there are for each of WINDOWS' numbers of lines, in 1 / CLASSES of those of the dense form
    ordered whether inputs are taken in the order of `order_of`, and not as they are
    """

    begins = "picks"
    lines: int
    along: int
    group: int
    window: int
    fills: tuple[int, ...]
    ordered: bool = False

    @classmethod
    def find(cls, constant: np.ndarray, use: Use) -> tuple[Picks, ...]:
        """Groups of as many weights as are multiplied together.

        Of a recurrent layer's weights fp32[..., gates, inputs] gates are the lines, and none of one matrix steps
        together with one of the next.
        """
        if use is not Use.RECURRENCE:
            group = group_of(constant, use)
            return pick_encodings_of(constant, group) if group else ()
        if constant.dtype != np.float32 or constant.ndim < 2 or not is_pruned(constant):
            return ()
        matrices = kept(constant).reshape(-1, *constant.shape[-2:])
        return tuple(_known(matrices, constant.ndim - 2, constant.ndim - 1, 1))

    @staticmethod
    def of(lines: int, along: int, group: int, window: int, fills: tuple[int, ...], *, ordered: bool = False) -> Picks:
        """The encoding with the word that stands for it in the text of workloads."""
        word = Picks.words(lines, along, group, window, *fills) + ORDERED * ordered
        return Picks(word, word, lines, along, group, window, fills, ordered)

    @classmethod
    def read(cls, word: str) -> Picks:
        """With two dimensions, a group, a window, a fill for each of its WINDOWS, and whether inputs are ordered."""
        ordered = word.endswith(ORDERED)
        numbers = cls.numbers(word.removesuffix(ORDERED))
        if len(numbers) < 4:
            raise ValueError(f"`{word}` is no encoding of picks")
        lines, along, group, window, *fills = numbers
        if len(fills) != len(WINDOWS.get((group, window), ())) or lines == along or max(lines, along) >= MOST_AXES:
            raise ValueError(f"`{word}` is no encoding of picks: no such dimensions or window")
        if not all(0 < fill <= CLASSES for fill in fills) or (ordered and group != 1):
            raise ValueError(
                f"`{word}` is no encoding of picks: a fill is 1 to {CLASSES}, and single inputs alone are ordered"
            )
        return Picks.of(lines, along, group, window, tuple(fills), ordered=ordered)

    def fits(self, dims: tuple[int, ...]) -> bool:
        """Whether a constant of this shape has such lines, none shorter than a window."""
        if max(self.lines, self.along) >= len(dims):
            return False
        return int(np.prod(dims)) // max(dims[self.lines], 1) >= self.window

    def fill(self, width: int) -> int | None:
        """The steps where so many lines step together; None where it is not told."""
        widths = WINDOWS[self.group, self.window]
        return self.fills[widths.index(width)] if width in widths else None


@dataclass(frozen=True)
class Steps:
    """The steps of panels of lines.

    counts  int64[panels]
    bases   int64[panels, most steps]: where the windows begin
    places  int64[panels, most steps, lines, group]: which element of the window each weight is multiplied with; -1 for
            none
    """

    counts: np.ndarray
    bases: np.ndarray
    places: np.ndarray


def steps_of(mask: np.ndarray, group: int, window: int) -> Steps:
    """The steps of bool[panels, lines, inputs]; there are as many inputs as a window has at least."""
    panels, lines, inputs = mask.shape
    found = _weights_of(mask.reshape(-1, inputs), group)
    bases, places = [], []
    for begin, ahead, inside in _walk(found.reshape(panels, lines, -1), inputs, group, window):
        bases.append(begin)
        places.append(np.where(inside, ahead - begin[:, None, None], -1))
    starts = np.array(bases, np.int64).reshape(len(bases), panels).T
    chosen = np.array(places, np.int64).reshape(len(places), panels, lines, group).swapaxes(0, 1)
    return Steps((starts >= 0).sum(1), starts, chosen)


def _weights_of(mask: np.ndarray, group: int) -> np.ndarray:
    """At which inputs lines of bool[lines, inputs] have weights, in their order: int64[lines, most + group].

    NOWHERE stands behind the last of a line.
    """
    numbers = np.count_nonzero(mask, axis=1)
    width = int(numbers.max(initial=0)) + group
    found = np.full((len(mask), width), NOWHERE)
    found[np.arange(width) < numbers[:, None]] = np.nonzero(mask)[1]
    return found


def _walk(
    weights: np.ndarray, inputs: int, group: int, window: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The steps of `_weights_of` [panels, lines, most + group], one after another, each as three arrays.

    Where each panel's window begins, -1 behind its last step; the next weights of its lines; which of these lie in it.
    """
    flat, width = weights.reshape(-1), weights.shape[2]
    at = np.arange(0, flat.size, width).reshape(*weights.shape[:2], 1) + np.arange(group)
    while True:
        ahead = flat[at]
        first = ahead[:, :, 0].min(1)
        left = first < NOWHERE
        if not left.any():
            break
        begin = np.where(left, np.minimum(first, inputs - window), -1)
        inside = ahead < (begin + window)[:, None, None]
        yield begin, ahead, inside
        at += inside.sum(2, keepdims=True)


def in_panels(lines: np.ndarray, width: int) -> np.ndarray:
    """[lines, inputs] as [panels, width, inputs], filled up with zeros."""
    panels = -(-len(lines) // width)
    whole = np.zeros((panels * width, lines.shape[1]), lines.dtype)
    whole[: len(lines)] = lines
    return whole.reshape(panels, width, -1)


def pick_encodings_of(constant: np.ndarray, group: int) -> tuple[Picks, ...]:
    """Those by groups of a size in which a constant may be kept, by its zeros.

    The first two axes are lines or innermost. Single inputs are ordered where columns can be combined.
    """
    if not is_pruned(constant):
        return ()
    return tuple(one for pair in pairs_of_axes(constant) for one in _encodings(constant, *pair, group))


def _encodings(constant: np.ndarray, lines: int, along: int, group: int) -> Iterator[Picks]:
    mask = np.moveaxis(kept(constant), (lines, along), (0, -1))
    mask = np.ascontiguousarray(mask.reshape(len(mask), -1))
    order = order_of(mask) if group == 1 else None
    whole = mask if order is None else mask[:, order]
    yield from _known(whole[None], lines, along, group, ordered=order is not None)


def order_of(mask: np.ndarray) -> np.ndarray | None:
    """The inputs of bool[lines, inputs] so that columns which can be combined are neighbours: int64[inputs].

    None where they cannot be. Inputs that no line reads come last.
    """
    found = combined(mask)
    if found is None:
        return None
    return np.argsort(np.where(found.group < 0, found.packed, found.group), kind="stable")


def _known(matrices: np.ndarray, lines: int, along: int, group: int, *, ordered: bool = False) -> Iterator[Picks]:
    """By masks bool[matrices, lines, inputs]."""
    inputs = matrices.shape[2]
    weights = _weights_of(matrices.reshape(-1, inputs), group).reshape(*matrices.shape[:2], -1)
    for (of, window), widths in WINDOWS.items():
        if of == group and inputs >= window:
            fills = tuple(_fill(weights, inputs, group, window, width) for width in widths)
            if fills[0] <= MOST_FILL * CLASSES:
                yield Picks.of(lines, along, group, window, fills, ordered=ordered)


def _fill(weights: np.ndarray, inputs: int, group: int, window: int, width: int) -> int:
    """The share of the dense form's steps, in 1 / CLASSES, rounded up; at least 1, and at most all.

    By `_weights_of` [matrices, lines, most + group].
    """
    panels = -(-weights.shape[1] // width)
    whole = np.full((len(weights), panels * width, weights.shape[2]), NOWHERE)
    whole[:, : weights.shape[1]] = weights
    steps = _walk(whole.reshape(len(weights) * panels, width, -1), inputs, group, window)
    count = sum(int(np.count_nonzero(begin >= 0)) for begin, *_ in steps)
    return min(class_of(count, len(weights) * panels * -(-inputs // group)), CLASSES)
