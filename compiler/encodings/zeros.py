"""Zeros in constant weights: how many there are, how they lie, and which lines have theirs in the same places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from compiler.encodings.combined import Combined, combined
from compiler.encodings.encoding import Use
from compiler.encodings.finding import Reported

FEWEST = 0.5
"""The share of zeros from which on a tensor is reported, and may be kept and multiplied without them."""
LEAST_ELEMENTS = 1024
MOST_AXES = 8
"""Dimensions of a tensor whose encodings name one."""
GROUPS = (1, 2, 4, 8)
"""Lines of a matrix whose elements may be kept together: at a place where one of them is not zero all are kept."""
CLASSES = 64
"""Shares of kept elements are rounded up to so many parts of the whole.

Weights that are about equally sparse then share code and measurements.
"""
SPARSE = "sparse"
"""What the names of algorithms begin with whose kernels leave zeros out, on whichever kind of device."""
INTEGER = "integer"
"""How the names of algorithms end that multiply whole numbers, none of which is NaN or infinite."""
BLOCKS = ((4, 4), (16, 2), (8, 8), (32, 2), (16, 4), (32, 4), (16, 16))
PATTERNS = ((1, 4), (2, 4), (1, 2), (4, 8))
"""N:M: at most N of M neighbours along the inputs are not zero, or along the lines of a matrix, maybe transposed."""
MOST_PATTERNS, LEAST_TAPS = 32, 4
"""Kinds of windows that pruning by patterns leaves at most, and weights of a window from which on there are kinds."""
FULL = 0.9
"""The share of such neighbours of which N are not zero: where fewer are, they keep to the form by chance.

Also the share of a block's elements that are not zero: rounding to bytes makes zeros of a few."""

UNSTRUCTURED, COMBINED = "unstructured", "combined"
"""Forms: zeros that lie anywhere, and those with which columns can be packed (`compiler.encodings.combined`)."""


def leaves_out(algorithm: str) -> bool:
    """Whether kernels of an algorithm leave out weights that are zero."""
    return algorithm.startswith(SPARSE)


def kept(lines: np.ndarray) -> np.ndarray:
    """What of a matrix cannot be left out: all but zeros of either sign. A NaN is no zero."""
    return np.asarray(lines != 0)


def is_pruned(constant: np.ndarray) -> bool:
    """Whether a constant is large enough, and a good part of it zero."""
    if constant.size < LEAST_ELEMENTS or constant.ndim > MOST_AXES:
        return False
    return bool(np.count_nonzero(constant) <= (1 - FEWEST) * constant.size)


def order_of(mask: np.ndarray, group: int) -> np.ndarray:
    """The order in which lines of a mask bool[lines, places] are taken into groups: int64[lines].

    Lines that have their zeros in the same places become neighbours where that leaves more zeros out. The order of the
    places does not matter.
    """
    natural = np.arange(len(mask))
    if group == 1:
        return natural
    first: dict[bytes, int] = {}
    alike = np.argsort([first.setdefault(row.tobytes(), at) for at, row in enumerate(mask)], kind="stable")
    return alike if entries_of(mask[alike], group) < entries_of(mask, group) else natural


def entries_of(mask: np.ndarray, group: int) -> int:
    """Places that are kept, counted once for each group of lines in their order."""
    return int(np.count_nonzero(any_in_groups(mask, group)))


def any_in_groups(mask: np.ndarray, group: int) -> np.ndarray:
    """At which places one of a group of lines is kept: bool[groups, places] of bool[lines, places].

    The last group may have fewer lines.
    """
    found = mask[::group].copy()
    for at in range(1, group):
        lines = mask[at::group]
        found[: len(lines)] |= lines
    return found


def fill_of(mask: np.ndarray, group: int) -> int:
    """The share of places that a mask's groups keep, in 1 / CLASSES, rounded up; at least 1."""
    whole = -(-len(mask) // group) * mask.shape[1]
    return class_of(entries_of(mask[order_of(mask, group)], group), whole)


def class_of(part: int, whole: int) -> int:
    """A share in 1 / CLASSES, rounded up; at least 1."""
    return max(-(-int(part) * CLASSES // whole), 1)


def pairs_of_axes(constant: np.ndarray) -> tuple[tuple[int, int], ...]:
    """The first two axes that are longer than 1, in both orders: either may be that of lines; none without a second."""
    first, second, *_ = (*(axis for axis, dim in enumerate(constant.shape) if dim > 1), -1, -1)
    return ((first, second), (second, first)) if second >= 0 else ()


def is_grouped(array: np.ndarray) -> bool:
    """Whether weights [lines, inputs, ...] are equal blocks along a diagonal.

    Beside them all is zero, and nothing inside.
    """
    mask = kept(array)
    linked = np.asarray(mask.reshape(*mask.shape[:2], -1).any(2))
    lines, inputs = linked.shape
    if not linked[0, 0] or linked[0].all():
        return False
    wide = int(np.argmin(linked[0]))
    groups = inputs // wide
    if inputs % wide or lines % groups:
        return False
    blocks = np.kron(np.eye(groups, dtype=bool), np.ones((lines // groups, wide), bool))
    return bool((linked == blocks).all()) and np.count_nonzero(mask) * groups == mask.size


@dataclass(frozen=True)
class Zeros(Reported):
    """What the zeros of one constant weight are like.

    lines        filters of a convolution, else rows of the matrix; zero_lines and equal_lines of them are zero
                 throughout, or equal to one before them
    zero_inputs  input channels of a convolution, or columns of the matrix, that are zero for all lines
    share        of all elements, which are zero
    form         `unstructured`, or the strongest that they keep to: `N:M`, `1xN` and `Nx1` vectors, `HxW` blocks
                 (lines x inputs), few patterns of windows, `lines` and `inputs` that are zero throughout, and
                 `combined` columns
    combined     how columns can be packed without conflicts, of `combined` weights
    """

    key = "sparse"
    title = "Weights with many zeros"

    shape: tuple[int, ...]
    share: float
    form: str
    lines: int
    zero_lines: int
    equal_lines: int
    zero_inputs: int
    combined: Combined | None = None

    @classmethod
    def of(cls, constant: np.ndarray, use: Use = Use.PRODUCT) -> Zeros | None:
        """Of a weight tensor of at least two dimensions; None where they are fewer than FEWEST of its elements.

        The first axis is taken for that of the lines; of a recurrence's weights all but the last.
        """
        array = constant.reshape(-1, constant.shape[-1]) if use is Use.RECURRENCE else constant
        if array.dtype.kind not in "fiu" or array.ndim < 2 or array.size < LEAST_ELEMENTS:
            return None
        mask = kept(array)
        share = 1 - np.count_nonzero(mask) / array.size
        if share < FEWEST or not mask.any():
            return None
        lines = mask.reshape(len(mask), -1)
        empty = np.asarray(~lines.any(1))
        inputs = np.asarray(~mask.any(axis=(0, *range(2, mask.ndim))))
        flat = np.ascontiguousarray(array.reshape(len(array), -1))
        distinct = len({row.tobytes() for row in flat[~empty]})
        equal = int((~empty).sum()) - distinct
        form = _form(mask, empty, inputs)
        packed = None
        if form == UNSTRUCTURED:
            sides = (lines, lines.T) if array.ndim == 2 else (lines,)
            packed = next((one for one in map(combined, sides) if one is not None), None)
            form = COMBINED if packed is not None else form
        return Zeros(array.shape, float(share), form, len(lines), int(empty.sum()), equal, int(inputs.sum()), packed)

    def to_json(self) -> dict[str, Any]:
        """The fields, with how many `columns` of `combined` weights can be packed in how many `packed` ones.

        Of these a share is `filled`; all three are null where columns cannot be packed.
        """
        return {
            "share": round(self.share, 4),
            "form": self.form,
            "zero_lines": self.zero_lines,
            "equal_lines": self.equal_lines,
            "zero_inputs": self.zero_inputs,
            "columns": self.combined and self.combined.columns,
            "packed": self.combined and self.combined.packed,
            "filled": self.combined and round(self.combined.filled, 4),
        }

    @property
    def words(self) -> str:
        """How zeros lie."""
        return self.form

    @property
    def gain(self) -> int:
        """How many elements the array has."""
        return int(np.prod(self.shape))

    @classmethod
    def summary(cls, each: Sequence[Self]) -> str:
        """The share of zeros, from the least to the greatest, and what else can be said of all together."""
        least, most = (f"{100 * end(zeros.share for zeros in each):.1f}" for end in (min, max))
        lines, equal = sum(zeros.zero_lines for zeros in each), sum(zeros.equal_lines for zeros in each)
        inputs = sum(zeros.zero_inputs for zeros in each)
        parts = [f"{least} % zeros" if least == most else f"{least} to {most} % zeros"]
        parts += [f"{lines} lines zero throughout"] if lines else []
        parts += [f"{equal} lines equal to others"] if equal else []
        parts += [f"{inputs} inputs unread"] if inputs else []
        parts += [str(one.combined) for one in each[:1] if one.combined]
        return "; ".join(parts)

    @staticmethod
    def is_used_by(algorithm: str) -> bool:
        """Whether zeros are left out."""
        return leaves_out(algorithm)

    @staticmethod
    def note(used: bool) -> str:
        """Whether zeros are kept."""
        return "kept and multiplied without zeros" if used else "kept dense, which is faster or all there is"

    @staticmethod
    def notices(algorithms: Sequence[str]) -> list[str]:
        """That zero weights are left out, where they are: it shows where an activation is not finite."""
        count = sum(leaves_out(algorithm) and not algorithm.endswith(INTEGER) for algorithm in algorithms)
        if not count:
            return []
        kernels = "1 kernel multiplies" if count == 1 else f"{count} kernels multiply"
        return [
            f"{kernels} no zero weights: a NaN or an infinity among activations need not reach results to which only "
            "zero weights link it; the option sparsity=off multiplies every weight"
        ]

    def __str__(self) -> str:
        parts = [f"{100 * self.share:.1f} % zeros, {self.form}"]
        parts += [f"{self.zero_lines} of {self.lines} lines zero"] if self.zero_lines else []
        parts += [f"{self.equal_lines} lines equal to others"] if self.equal_lines else []
        parts += [f"{self.zero_inputs} inputs unread"] if self.zero_inputs else []
        parts += [str(self.combined)] if self.combined else []
        return "; ".join(parts)


def _form(mask: np.ndarray, empty: np.ndarray, inputs: np.ndarray) -> str:
    """The strongest form that all zeros keep to, of the lines and inputs that are not zero throughout."""
    left = mask[~empty][:, ~inputs]
    whole = ["lines"] * bool(empty.any()) + ["inputs"] * bool(inputs.any())
    if left.all():
        return " and ".join(whole)
    channels = mask.reshape(*mask.shape[:2], -1)
    inner = _inner_form(channels)
    return inner if inner != UNSTRUCTURED or not whole else " and ".join([*whole, inner])


def _inner_form(mask: np.ndarray) -> str:
    """Of a mask bool[lines, inputs, taps]."""
    for high, wide in reversed(BLOCKS):
        if _is_blocked(mask, high, wide):
            return f"{high}x{wide} blocks"
    for many in (16, 8, 4, 2):
        if _is_blocked(mask, many, 1):
            return f"{many}x1 vectors"
        if _is_blocked(mask, 1, many):
            return f"1x{many} vectors"
    for side in (mask, mask.swapaxes(0, 1))[: 1 + (mask.shape[2] == 1)]:
        for few, many in PATTERNS:
            if side.shape[1] % many == 0:
                counts = np.add.reduce([side[:, at::many] for at in range(many)], dtype=np.uint8)
                if int(counts.max()) <= few and float((counts == few).mean()) >= FULL:
                    return f"{few}:{many}"
    if mask.shape[2] > 1 and bool((mask.any(2) == mask.all(2)).all()):
        return "whole windows"
    return _patterns(mask) or UNSTRUCTURED


def _patterns(mask: np.ndarray) -> str:
    """The few kinds of windows that there are, if as many weights are kept in nearly each of them; else empty."""
    windows = mask.reshape(-1, mask.shape[2])
    windows = windows[windows.any(1)]
    counts = windows.sum(1)
    if mask.shape[2] < LEAST_TAPS or counts.max() < 2 or (counts == counts.max()).mean() < FULL:
        return ""
    kinds = len(np.unique(np.packbits(windows, axis=1), axis=0))
    return f"{kinds} patterns of {counts.max()} of {mask.shape[2]}" if kinds <= MOST_PATTERNS else ""


def _is_blocked(mask: np.ndarray, high: int, wide: int) -> bool:
    """Whether blocks of lines x inputs, at each tap, are zero as a whole or hardly anywhere."""
    lines, inputs, taps = mask.shape
    if lines % high or inputs % wide:
        return False
    least = np.count_nonzero(mask) / FULL
    panels = any_in_groups(mask.reshape(lines, -1), high)
    if high * np.count_nonzero(panels) > least:  # and blocks hold no less
        return False
    blocks = any_in_groups(panels.reshape(-1, inputs, taps).swapaxes(0, 1), wide)
    return bool(high * wide * np.count_nonzero(blocks) <= least)
