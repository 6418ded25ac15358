"""Column combining: sparse columns of a matrix packed into few in which no line has more than one element.

H. T. Kung, Bradley McDanel, Sai Qian Zhang, "Packing sparse convolutional neural networks for efficient systolic array
implementations: column combining under joint optimization", ASPLOS 2019. A row of the matrix is a filter (here: a
line), a column one of its inputs: a channel at a place of the window. Columns of one group become one packed column,
which has for each line a weight and the number of the column that it comes from. Where a line has several weights in a
group, a conflict, pruning keeps the largest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

MOST_COLUMNS = 32
"""Of a group: among so many elements a lane picks one by a single instruction (VPERMI2PS of two vectors of floats)."""
LEAST_LINES = 64
"""Fewer lines hardly conflict, so that columns of any sparse matrix can be packed."""
LEAST_FILLED = 0.75
"""The share of a packed matrix that is not zero from which on weights count as combined: zeros anywhere reach 0.72."""
MOST_TRIED = 128
"""Groups among which a column chooses."""
MOST_WORK = 1 << 30
"""Columns x columns x words of a column: larger matrices are not looked at."""
NEVER = np.int64(-1)


@dataclass(frozen=True)
class Combined:
    """How columns of a matrix can be packed without a conflict.

    group   int64[columns], which packed column each becomes a part of; -1 for columns that are zero throughout
    packed  how many packed columns there are
    filled  the share of the packed matrix that is not zero: the packing efficiency
    """

    group: np.ndarray = field(repr=False, compare=False)
    packed: int
    filled: float

    @property
    def columns(self) -> int:
        """How many there are before they are packed."""
        return len(self.group)

    def __str__(self) -> str:
        return f"{self.columns} columns combined in {self.packed}, {100 * self.filled:.0f} % filled"


def combined(mask: np.ndarray) -> Combined | None:
    """The columns of bool[lines, columns], of which True is not zero, packed without conflicts.

    Densest columns first, each into the fullest group that has room for it (the paper's dense-column-first packing).
    None where more than half as many columns are left, or less than LEAST_FILLED of them is not zero.
    """
    lines, columns = mask.shape
    counts = mask.sum(0)
    used = int(np.count_nonzero(counts))
    most = min(columns // 2, int(counts.sum() / (LEAST_FILLED * lines)))
    words = -(-lines // 64)
    fullest = int(mask.sum(1).max(initial=0))
    if lines < LEAST_LINES or not fullest or fullest > most or columns * columns * words > MOST_WORK:
        return None
    bits = _as_words(mask, words)
    taken, filled, sizes = (np.zeros((most, words), np.uint64), np.zeros(most, np.int64), np.zeros(most, np.int64))
    group = np.full(columns, NEVER)
    packed = 0
    for column in np.argsort(-counts, kind="stable")[:used]:
        free = ~(taken[:packed] & bits[column]).any(1) & (sizes[:packed] < MOST_COLUMNS)
        at = int(np.where(free, filled[:packed], NEVER).argmax()) if free.any() else packed
        if at == most:
            return None
        packed = max(packed, at + 1)
        taken[at] |= bits[column]
        filled[at] += counts[column]
        sizes[at] += 1
        group[column] = at
    return Combined(group, packed, float(counts.sum() / (lines * packed)))


def _as_words(mask: np.ndarray, words: int) -> np.ndarray:
    """uint64[columns, words]: the lines of each column as bits."""
    octets = np.packbits(mask.T, axis=1)
    whole = np.zeros((len(octets), 8 * words), np.uint8)
    whole[:, : octets.shape[1]] = octets
    return whole.view(np.uint64)


def groups_of(scores: np.ndarray, count: int) -> np.ndarray:
    """Columns of float[lines, columns], none of it negative, in at most `count` groups: int64[columns].

    Of each group a line will keep one element, that of the greatest score. The heaviest columns come first, each into
    the group where least is lost by its conflicts, of the MOST_TRIED that hold least so far. The paper bounds how many
    conflicts a group may have and lets the number of groups follow; here that number is given, and what a conflict
    costs is weighed. No group has more than twice its even share of the columns, or MOST_COLUMNS.
    """
    lines, columns = scores.shape
    even = -(-columns // count)
    largest = max(min(2 * even, MOST_COLUMNS), even)
    scores = np.ascontiguousarray(scores.T, np.float32)
    best = np.zeros((count, lines), np.float32)
    sizes, held = np.zeros(count, np.int64), np.zeros(count, np.float32)
    group = np.empty(columns, np.int64)
    for column in np.argsort(-scores.sum(1), kind="stable"):
        able = np.flatnonzero(sizes < largest)
        if len(able) > MOST_TRIED:
            able = able[np.argpartition(held[able], MOST_TRIED)[:MOST_TRIED]]
        at = able[int(np.minimum(best[able], scores[column]).sum(1).argmin())]
        best[at] = np.maximum(best[at], scores[column])
        held[at] = best[at].sum()
        sizes[at] += 1
        group[column] = at
    return group


def largest_of_each(scores: np.ndarray, group: np.ndarray) -> np.ndarray:
    """What is kept of float[lines, columns] where each line keeps the greatest of each group; of equals the first."""
    order = np.argsort(group, kind="stable")
    begins = np.flatnonzero(np.diff(group[order], prepend=-1))
    sorted_scores = scores[:, order]
    most = np.maximum.reduceat(sorted_scores, begins, axis=1)
    lengths = np.diff(np.append(begins, len(order)))
    ties = np.where(sorted_scores == most.repeat(lengths, 1), np.arange(len(order)), len(order))
    first = np.minimum.reduceat(ties, begins, axis=1)
    kept = np.zeros(scores.shape, bool)
    np.put_along_axis(kept, order[first], True, axis=1)
    return kept
