"""Random decision trees, and what they say by the plainest walk: node by node, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.frontend.expansions.ml.packed import Packed, packed
from compiler.ir.graph import Attr

LEAF = "LEAF"
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE")
VALUES = (-np.inf, -1.5, -0.0, 0.0, 1e-45, 0.5, 2.0, np.inf, np.nan)
"""Of samples and of what nodes ask for, so that they meet at equality and at the ends."""


@dataclass
class Trees:
    """Tables with a row for each node."""

    modes: np.ndarray
    features: np.ndarray
    splits: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    weights: np.ndarray
    has: np.ndarray
    roots: np.ndarray

    def packed(self, sums: bool = True) -> Packed | None:
        branches, leaves = (self.yes, self.no), (self.weights, self.has)
        return packed(self.modes, self.features, self.splits, branches, self.missing, leaves, self.roots, sums)

    def leaf(self, sample: np.ndarray, node: int) -> int:
        """The leaf that a sample reaches from a node."""
        while self.modes[node] != LEAF:
            value, split = sample[self.features[node]], self.splits[node]
            answers = {"BRANCH_LEQ": value <= split, "BRANCH_LT": value < split}
            answers |= {"BRANCH_GT": value > split, "BRANCH_GTE": value >= split}
            goes = answers[self.modes[node]] or (np.isnan(value) and self.missing[node])
            node = int((self.yes if goes else self.no)[node])
        return node

    def says(self, x: np.ndarray, aggregate: str) -> np.ndarray:
        """[N, targets] in float64."""
        combine = getattr(np, aggregate.lower())
        reached = [[self.leaf(sample, int(root)) for root in self.roots] for sample in x]
        return np.array([combine(self.weights[leaves].astype(np.float64), axis=0) for leaves in reached])


def grown(
    seed: int,
    trees: int,
    depth: int,
    features: int = 4,
    targets: int = 1,
    modes: Sequence[str] = MODES[:1],
    missing: bool = False,
    one_target: bool = True,
    dtype: type = np.float32,
) -> Trees:
    """Trees of all shapes up to a depth; the leaves of a tree say something of one target, or of all."""
    random = np.random.default_rng(seed)
    rows: list[list[object]] = []
    weights: list[np.ndarray] = []

    def node(level: int, target: int) -> int:
        row: list[object] = [LEAF, 0, 0.0, 0, 0, False]
        rows.append(row)
        at = len(rows) - 1
        row[3] = row[4] = at
        says = np.zeros(targets)
        weights.append(says)
        if level < depth and (random.random() < 0.8 or (level == 0 and depth > 0)):
            row[0], row[1] = str(random.choice(modes)), int(random.integers(features))
            row[2] = float(random.choice(VALUES)) if random.random() < 0.5 else float(np.float32(random.normal()))
            row[5] = bool(missing and random.random() < 0.5)
            row[3], row[4] = node(level + 1, target), node(level + 1, target)
        elif one_target:
            says[target] = random.normal()
        else:
            says[:] = random.normal(size=targets)
        return at

    roots = [node(0, tree % targets) for tree in range(trees)]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    table: np.ndarray = np.array(weights, dtype)
    return Trees(
        columns[0],
        columns[1],
        columns[2].astype(dtype),
        columns[3],
        columns[4],
        columns[5],
        table,
        table != 0,
        np.array(roots),
    )


def samples(seed: int, count: int, features: int = 4, missing: bool = True, dtype: type = np.float32) -> np.ndarray:
    """Numbers among which are those that nodes ask for."""
    random = np.random.default_rng(seed)
    usual = random.normal(size=(count, features))
    special = random.choice(VALUES if missing else VALUES[:-1], (count, features))
    return np.where(random.random((count, features)) < 0.4, special, usual).astype(dtype)


def arguments(found: Packed, x: np.ndarray, aggregate: str, targets: int) -> tuple[list[np.ndarray], dict[str, Attr]]:
    """Inputs and attributes of one call of Forest."""
    attrs: dict[str, Attr] = {
        "targets": targets,
        "levels": found.levels,
        "aggregate": aggregate,
        "strict": int(found.strict),
        "missing": int(found.missing),
    }
    return [x.astype(found.layout.numbers), found.nodes, found.roots, found.firsts, found.weights], attrs
