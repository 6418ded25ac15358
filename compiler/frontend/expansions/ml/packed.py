"""The tables of a forest as the compiler's own operator Forest takes them (`compiler.ops.forest`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ops.forest import GROUP, NARROW, WIDE, Layout

MOST_COPIES = 4
"""Times as many nodes as the model has, at most: a node that several branches lead to is written once for each."""
SWAPPED = {"BRANCH_GT": "BRANCH_LEQ", "BRANCH_GTE": "BRANCH_LT"}
"""What is asked instead where the branches change places."""
LEAF = "LEAF"


@dataclass(frozen=True)
class Packed:
    """Arguments of one call of Forest.

    layout   of `nodes`; its numbers are the type of what is compared and summed
    weights  [leaves, width]
    """

    layout: Layout
    nodes: np.ndarray
    roots: np.ndarray
    firsts: np.ndarray
    weights: np.ndarray
    levels: tuple[int, ...]
    strict: bool
    missing: bool


@dataclass(frozen=True)
class _Placed:
    """All nodes of all trees, one tree after another, those without branches first; siblings lie side by side.

    ids     the row of the model's tables
    steps   to the yes branch; 0 for a leaf
    tree    in the new order
    starts  of each tree its root; `order` is its number in the model
    levels  of each tree
    """

    ids: np.ndarray
    steps: np.ndarray
    tree: np.ndarray
    starts: np.ndarray
    order: np.ndarray
    levels: np.ndarray


def packed(
    modes: np.ndarray,
    features: np.ndarray,
    splits: np.ndarray,
    branches: tuple[np.ndarray, np.ndarray],
    missing: np.ndarray,
    leaves: tuple[np.ndarray, np.ndarray],
    roots: np.ndarray,
    sums: bool,
) -> Packed | None:
    """A forest of nodes that ask which of two numbers is greater; None for one that asks something else.

    branches  for each node the rows of its yes and of its no branch
    missing   whether a missing value goes to the yes branch
    leaves    [nodes, targets], what a leaf says of each target, and whether it says anything
    sums      whether what leaves do not say counts as zero
    """
    inner = modes != LEAF
    asked = set(modes[inner].tolist())
    if not asked <= {"BRANCH_LEQ", "BRANCH_LT", *SWAPPED}:
        return None
    swaps = np.isin(modes, list(SWAPPED)) & ~np.isnan(splits)
    yes, no = (np.where(swaps, other, own) for own, other in (branches, branches[::-1]))
    placed = _place(inner, yes, no, roots)
    if placed is None:
        return None
    strict = asked <= {"BRANCH_LT", "BRANCH_GTE"} and bool(asked)
    below = np.isin(modes, ["BRANCH_LT", "BRANCH_GTE"])
    numbers = splits if strict else np.where(below, _before(splits), splits)
    weights, width, firsts = _weights(placed, inner, leaves, sums)
    leaf = np.where(inner[placed.ids], -1, np.cumsum(~inner[placed.ids]) - 1)
    columns = features[placed.ids], placed.steps, (missing ^ swaps)[placed.ids], leaf
    layout = NARROW if splits.dtype == np.float32 and NARROW.fits(columns[1], columns[0], len(weights) + 1) else WIDE
    nodes = layout.pack(numbers[placed.ids], *columns)
    fill = -len(roots) % GROUP
    starts = np.concatenate([np.full(fill, placed.starts[0]), placed.starts])
    firsts = np.concatenate([np.full(fill, firsts[0]), firsts])
    if sums and fill:  # by a leaf that says nothing
        lone = layout.pack(np.zeros(1), *(np.zeros(1, np.int64),) * 2, np.zeros(1, bool), np.array([len(weights)]))
        starts[:fill], nodes = len(nodes), np.concatenate([nodes, lone])
        weights = np.concatenate([weights, np.zeros((1, width), weights.dtype)])
    deepest = placed.levels[GROUP - 1 - fill :: GROUP]
    return Packed(
        layout,
        nodes,
        starts.astype(np.int32),
        firsts.astype(np.int32),
        weights.astype(layout.numbers),
        tuple(deepest.tolist()),
        strict,
        bool(((missing ^ swaps) & inner).any()),
    )


def _before(splits: np.ndarray) -> np.ndarray:
    """The greatest number below each; NaN below the least, since nothing is less than that."""
    found = np.nextafter(splits, np.array(-np.inf, splits.dtype))
    return np.where(splits == -np.inf, np.array(np.nan, splits.dtype), found)


def _place(inner: np.ndarray, yes: np.ndarray, no: np.ndarray, roots: np.ndarray) -> _Placed | None:
    """Level by level over all trees at once, then sorted by tree; None for too many nodes."""
    ids, trees = [roots.astype(np.int64)], [np.arange(len(roots))]
    children = []
    total, depth = len(roots), np.zeros(len(roots), np.int64)
    while (open_ := np.flatnonzero(inner[ids[-1]])).size:
        first = np.full(len(ids[-1]), -1)
        first[open_] = total + 2 * np.arange(len(open_))
        children.append(first)
        below = ids[-1][open_]
        depth[trees[-1][open_]] = len(ids)
        trees.append(np.repeat(trees[-1][open_], 2))
        ids.append(np.stack([yes[below], no[below]], axis=1).reshape(-1))
        total += len(ids[-1])
        if total > MOST_COPIES * len(inner):
            return None
    children.append(np.full(len(ids[-1]), -1))
    order = np.argsort(depth, kind="stable")
    rank = np.empty(len(roots), np.int64)
    rank[order] = np.arange(len(roots))
    tree, first, all_ids = rank[np.concatenate(trees)], np.concatenate(children), np.concatenate(ids)
    sequence = np.argsort(tree, kind="stable")
    place = np.empty(total, np.int64)
    place[sequence] = np.arange(total)
    steps = np.where(first >= 0, place[first] - place, 0)
    return _Placed(all_ids[sequence], steps[sequence], tree[sequence], place[order], order, depth[order])


def _weights(
    placed: _Placed, inner: np.ndarray, leaves: tuple[np.ndarray, np.ndarray], sums: bool
) -> tuple[np.ndarray, int, np.ndarray]:
    """[leaves, width] in the order of nodes; the width; and of each tree the first target.

    One column where the leaves of every tree say something of one target alone, which may be another one for another
    tree; else one for each target.
    """
    weights, has = leaves
    is_leaf = ~inner[placed.ids]
    rows, trees = placed.ids[is_leaf], placed.tree[is_leaf]
    count, targets = len(placed.starts), weights.shape[1]
    says = np.zeros((count, targets), bool)
    np.logical_or.at(says, trees, has[rows])
    nothing = np.zeros(count, np.int64)
    if targets == 1:
        return weights[rows], 1, nothing
    if not sums or (says.sum(axis=1) > 1).any():
        return weights[rows], targets, nothing
    firsts = says.argmax(axis=1)
    return weights[rows, firsts[trees]][:, None], 1, firsts
