"""Ensembles of decision trees: one call of the compiler's own Forest where nodes ask which of two numbers is greater.

Others are walked level by level: every sample stands at one node of every tree. A node is a row of tables; a leaf leads
to itself, so that after as many steps as the deepest tree has levels every sample stands at its leaf. Source: the
operators of ai.onnx.ml; where they leave the scores of two classes open, ONNX Runtime's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.ml.attributes import AGAIN, columns, demand, labels, number, numbers, word, words
from compiler.frontend.expansions.ml.linear import POST, labelled, transformed
from compiler.frontend.expansions.ml.packed import packed
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion
from compiler.frontend.reading.tensors import CODES
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

MOST_LEVELS = 64
"""Each is a handful of operators."""
LEAF, MEMBER = "LEAF", "BRANCH_MEMBER"
OWN_FOREST = "tilewright::Forest"
"""What the compiler's own definitions call it; no model may."""
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", MEMBER)
"""By their number in TreeEnsemble."""
COMPARISONS = {
    "BRANCH_LEQ": "LessOrEqual",
    "BRANCH_LT": "Less",
    "BRANCH_GTE": "GreaterOrEqual",
    "BRANCH_GT": "Greater",
    "BRANCH_EQ": "Equal",
}


@dataclass(frozen=True)
class Forest:
    """Tables with a row for each node, and the node that each tree begins with.

    weights  [nodes, targets], what a leaf adds to each target
    has      [nodes, targets], whether it says anything of the target
    members  [nodes, most], values that a MEMBER node looks for, the first repeated to fill a row
    """

    modes: np.ndarray
    features: np.ndarray
    splits: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing_is_yes: np.ndarray
    weights: np.ndarray
    has: np.ndarray
    roots: np.ndarray
    members: np.ndarray

    @property
    def levels(self) -> int:
        """Steps from the farthest root to a leaf. Raises Unsupported for a cycle and for more than MOST_LEVELS."""
        return len(self.by_level) - 1

    @cached_property
    def by_level(self) -> list[np.ndarray]:
        """The nodes that are so many steps from a root, from none on. Raises Unsupported as `levels` does."""
        found = [np.unique(self.roots)]
        while (inner := found[-1][self.modes[found[-1]] != LEAF]).size:
            found.append(np.unique(np.concatenate([self.yes[inner], self.no[inner]])))
            demand(len(found) <= MOST_LEVELS + 1, f"its trees are deeper than {MOST_LEVELS} levels, or are no trees")
        return found


def ensemble(site: Site) -> Expansion:
    """TreeEnsemble: nodes and leaves in tables of their own, in the element type of x."""
    kind = site.given(0).dtype
    demand(kind in (DType.F32, DType.F64), f"its input is {kind}, where f32 or f64 is taken")
    demand(int(number(site, "post_transform", 0)) == 0, "it has a post transform")
    aggregate = {0: "AVERAGE", 1: "SUM", 2: "MIN", 3: "MAX"}.get(int(number(site, "aggregate_function", 1)))
    demand(aggregate is not None, "its aggregate_function is unknown")
    composition = Composition(site)
    forest = _of_tables(site, kind.numpy)
    return composition.gives(_total(composition, site, forest, str(aggregate), np.zeros(0, kind.numpy)))


def regressor(site: Site) -> Expansion:
    """TreeEnsembleRegressor: [N, targets] in float32."""
    post = word(site, "post_transform", "NONE", *POST)
    aggregate = word(site, "aggregate_function", "SUM", "SUM", "AVERAGE", "MIN", "MAX")
    forest = _of_lists(site, "target", int(number(site, "n_targets", 1)))
    base = _wide(site, "base_values")
    composition = Composition(site)
    total = _total(composition, site, forest, aggregate, base)
    return composition.gives(transformed(composition, _as_f32(composition, total), post))


def classifier(site: Site) -> Expansion:
    """TreeEnsembleClassifier: the label of the best class of each sample, and the scores."""
    post = word(site, "post_transform", "NONE", *POST)
    names = labels(site, "classlabels_int64s")
    base = _wide(site, "base_values")
    classes = numbers(site, "class_ids", np.int64)
    composition = Composition(site)
    if len(names) == 2 and len(np.unique(classes)) == 1:
        forest = _of_lists(site, "class", 1, moved=int(classes[0]))
        score = _as_f32(composition, _total(composition, site, forest, "SUM", base[-1:]))
        return composition.gives(*_of_two(composition, score, names, post, positive=bool((forest.weights >= 0).all())))
    forest = _of_lists(site, "class", len(names))
    scores = _as_f32(composition, _total(composition, site, forest, "SUM", base))
    return composition.gives(labelled(composition, scores, names), transformed(composition, scores, post))


def _of_two(composition: Composition, score: str, names: np.ndarray, post: str, *, positive: bool) -> tuple[str, str]:
    """Label and scores where leaves vote for one class of two.

    Votes that are all positive are its probability, and the other class has the rest; otherwise their sum is above or
    below 0.
    """
    half = composition.constant(np.array(0.5 if positive else 0.0, np.float32))
    is_second = composition.call("Greater", composition.call("Squeeze", score, composition.ints(1)), half)
    first, second = (composition.constant(names[at : at + 1].reshape(())) for at in range(2))
    label = composition.call("Where", is_second, second, first)
    if positive and post != "LOGISTIC":
        other = composition.call("Sub", composition.constant(np.array(1, np.float32)), score)
        return label, composition.call("Concat", other, score, axis=1)
    both = composition.call("Concat", composition.call("Neg", score), score, axis=1)
    return label, transformed(composition, both, post)


def _as_f32(composition: Composition, name: str) -> str:
    return composition.call("Cast", name, to=CODES[DType.F32])


def _total(composition: Composition, site: Site, forest: Forest, aggregate: str, base: np.ndarray) -> str:
    """[N, targets]: the leaves' weights, aggregated over the trees, and the base values."""
    kind = site.given(0)
    targets = forest.weights.shape[1]
    demand(kind.rank in (1, 2), f"{kind} is neither a vector nor a matrix")
    demand(len(base) in (0, targets), f"{len(base)} base values do not fit {targets} targets")
    width = columns(kind)
    inner = forest.modes != LEAF
    demand(bool((forest.features[inner] < width).all()), f"a node asks for a feature that {kind} does not have")
    x = composition.cast("x0", kind.dtype, DType.of(forest.splits.dtype))
    if kind.rank == 1:
        x = composition.reshape(x, 1, width)
    rows = kind.shape[0] if kind.rank == 2 else 1
    if aggregate in ("MIN", "MAX"):
        says = forest.has[forest.modes == LEAF]
        demand(bool(says.all()), f"{aggregate} of leaves that do not all say something of every target")
    combine = {"AVERAGE": "SUM"}.get(aggregate, aggregate)
    total = _summed(composition, x, forest, combine)
    if not total:
        leaves = _walk(composition, x, rows if isinstance(rows, int) else None, forest)
        votes = composition.call("Gather", composition.constant(forest.weights), leaves, axis=0)
        reduce = {"SUM": "ReduceSum", "MIN": "ReduceMin", "MAX": "ReduceMax"}[combine]
        total = composition.call(reduce, votes, composition.ints(1), keepdims=0)
    if aggregate == "AVERAGE":
        count = np.array(len(forest.roots), forest.weights.dtype)
        total = composition.call("Div", total, composition.constant(count))
    return (
        composition.call("Add", total, composition.constant(base.astype(forest.weights.dtype))) if len(base) else total
    )


def _summed(composition: Composition, x: str, forest: Forest, aggregate: str) -> str:
    """The same by the compiler's own operator Forest; nothing where that cannot ask what a node asks."""
    found = packed(
        forest.modes,
        forest.features,
        forest.splits,
        (forest.yes, forest.no),
        forest.missing_is_yes,
        (forest.weights, forest.has),
        forest.roots,
        sums=aggregate == "SUM",
    )
    if found is None:
        return ""
    dtype, wide = DType.of(forest.splits.dtype), DType.of(found.layout.numbers)
    tables = (found.nodes, found.roots, found.firsts, found.weights)
    total = composition.call(
        OWN_FOREST,
        composition.cast(x, dtype, wide),
        *map(composition.constant, tables),
        targets=forest.weights.shape[1],
        levels=found.levels,
        aggregate=aggregate,
        strict=int(found.strict),
        missing=int(found.missing),
    )
    return composition.cast(total, wide, dtype)


def _walk(composition: Composition, x: str, rows: int | None, forest: Forest) -> str:
    """[N, trees]: the leaf at which each sample arrives in each tree; `rows` None: how many samples is not known."""
    roots = forest.roots.astype(np.int32)
    if rows is None:
        size = composition.call("Shape", x, start=0, end=1)
        shape = composition.call("Concat", size, composition.ints(len(roots)), axis=0)
        at = composition.call("Expand", composition.constant(roots), shape)
    else:
        at = composition.constant(np.broadcast_to(roots, (rows, len(roots))))
    tables = _Tables(composition, forest)
    for _ in range(forest.levels):
        value = composition.call("GatherElements", x, tables.row(tables.features, at), axis=1)
        yes, no = tables.row(tables.yes, at), tables.row(tables.no, at)
        at = composition.call("Where", tables.goes(value, at), yes, no)
    return at


class _Tables:
    """The forest's tables as constants of a composition."""

    def __init__(self, composition: Composition, forest: Forest) -> None:
        self.composition, self.forest = composition, forest
        self.features = composition.constant(forest.features.astype(np.int32))
        self.splits = composition.constant(forest.splits)
        self.yes = composition.constant(forest.yes.astype(np.int32))
        self.no = composition.constant(forest.no.astype(np.int32))
        self.modes: Sequence[str] = sorted(set(forest.modes[forest.modes != LEAF].tolist()))
        self.of_mode = {mode: composition.constant(forest.modes == mode) for mode in self.modes}
        self.missing = composition.constant(forest.missing_is_yes)
        self.members = composition.constant(forest.members)

    def row(self, table: str, at: str) -> str:
        """The entries of nodes."""
        return self.composition.call("Gather", table, at, axis=0)

    def goes(self, value: str, at: str) -> str:
        """Whether samples go to the branch of those for which a node's question is true."""
        call = self.composition.call
        found = ""
        for mode in self.modes:
            answer = self._answer(mode, value, at)
            if len(self.modes) > 1:
                answer = call("And", answer, self.row(self.of_mode[mode], at))
            found = call("Or", found, answer) if found else answer
        if self.forest.missing_is_yes.any():
            found = call("Or", found, call("And", call("IsNaN", value), self.row(self.missing, at)))
        return found

    def _answer(self, mode: str, value: str, at: str) -> str:
        call = self.composition.call
        if mode == MEMBER:
            wide = call("Unsqueeze", value, self.composition.ints(-1))
            hits = self.composition.cast(call("Equal", wide, self.row(self.members, at)), DType.BOOL, DType.I32)
            most = call("ReduceMax", hits, self.composition.ints(-1), keepdims=0)
            return self.composition.cast(most, DType.I32, DType.BOOL)
        split = self.row(self.splits, at)
        if mode == "BRANCH_NEQ":
            return call("Not", call("Equal", value, split))
        return call(COMPARISONS[mode], value, split)


def _of_tables(site: Site, dtype: np.dtype) -> Forest:
    """The attributes of TreeEnsemble: nodes first, then leaves, in one table."""
    targets = int(number(site, "n_targets", 1))
    modes_of = numbers(site, "nodes_modes", np.int64)
    count = len(modes_of)
    leaf_targets = numbers(site, "leaf_targetids", np.int64)
    leaf_weights = numbers(site, "leaf_weights", dtype)
    leaves = len(leaf_targets)
    demand(0 < leaves == len(leaf_weights), "its leaves have not one target and weight each")
    demand(bool(((modes_of >= 0) & (modes_of < len(MODES))).all()), "a node has an unknown mode")
    demand(bool(((leaf_targets >= 0) & (leaf_targets < targets)).all()), "a leaf has an unknown target")
    features = _column(site, "nodes_featureids", count)
    splits = numbers(site, "nodes_splits", dtype)
    demand(len(splits) == count, "its nodes have not one split each")

    def branch(ids: str, are_leaves: str) -> np.ndarray:
        to, of_leaves = _column(site, ids, count), _column(site, are_leaves, count)
        demand(bool(((to >= 0) & (to < np.where(of_leaves, leaves, count))).all()), "a branch leads nowhere")
        return np.where(of_leaves, count + to, to)

    own = count + np.arange(leaves)
    yes = np.concatenate([branch("nodes_truenodeids", "nodes_trueleafs"), own])
    no = np.concatenate([branch("nodes_falsenodeids", "nodes_falseleafs"), own])
    roots = numbers(site, "tree_roots", np.int64)
    demand(bool(len(roots)) and bool(((roots >= 0) & (roots < count)).all()), "its roots are not all nodes")
    # A tree that is one leaf has a node both of whose branches are that leaf.
    nothing = np.zeros(leaves, np.int64)
    weights = np.zeros((count + leaves, targets), dtype)
    weights[own, leaf_targets] = leaf_weights
    has = np.zeros(weights.shape, bool)
    has[own, leaf_targets] = True
    missing = numbers(site, "nodes_missing_value_tracks_true", np.int64).astype(bool)
    demand(len(missing) in (0, count), "nodes_missing_value_tracks_true does not fit its nodes")
    return Forest(
        np.array([*(MODES[mode] for mode in modes_of), *[LEAF] * leaves]),
        np.concatenate([features, nothing]),
        np.concatenate([splits, nothing.astype(dtype)]),
        yes,
        no,
        np.concatenate([missing if len(missing) else np.zeros(count, bool), nothing.astype(bool)]),
        weights,
        has,
        roots,
        _members(site, modes_of, leaves, dtype),
    )


def _column(site: Site, name: str, count: int) -> np.ndarray:
    """A table of numbers from 0 on, one for each node."""
    found = numbers(site, name, np.int64)
    demand(len(found) == count and not (found < 0).any(), f"attribute {name!r} does not fit its {count} nodes")
    return found


def _members(site: Site, modes: np.ndarray, leaves: int, dtype: np.dtype) -> np.ndarray:
    """The sets of MEMBER nodes, which follow one another in `membership_values`, a NaN after each."""
    values = numbers(site, "membership_values", dtype)
    sets = [part[~np.isnan(part)] for part in np.split(values, np.flatnonzero(np.isnan(values)) + 1)]
    own = iter(sets)
    asking = modes == MODES.index(MEMBER)
    kept = [next(own, values[:0]) if member else values[:0] for member in asking] + [values[:0]] * leaves
    most = max((len(one) for one in kept), default=0)
    table = np.full((len(kept), max(most, 1)), np.nan, dtype)  # which equals nothing
    for row, one in zip(table, kept, strict=True):
        row[: len(one)] = one
    return table


def _of_lists(site: Site, what: str, targets: int, moved: int = 0) -> Forest:
    """The attributes of the older operators: nodes by (tree, node), and weights by (tree, node, target).

    what   `target` or `class`
    moved  the number of the first target
    """
    modes = np.array(words(site, "nodes_modes"))
    count = len(modes)
    demand(count > 0, "it has no nodes")
    demand(set(modes.tolist()) <= {LEAF, *MODES[:-1]}, "a node has an unknown mode")
    trees, nodes = _column(site, "nodes_treeids", count), _column(site, "nodes_nodeids", count)
    place = {pair: at for at, pair in enumerate(zip(trees.tolist(), nodes.tolist(), strict=True))}
    demand(len(place) == count, "two of its nodes have one number")
    wide = any(f"{name}_as_tensor" in site.call.attrs for name in ("nodes_values", f"{what}_weights"))
    dtype = np.dtype(np.float64 if wide else np.float32)
    splits = _wide(site, "nodes_values").astype(dtype)
    demand(len(splits) == count, "its nodes have not one value each")
    yes, no = (_led(site, name, modes, trees, place) for name in ("nodes_truenodeids", "nodes_falsenodeids"))
    led = {*yes[modes != LEAF].tolist(), *no[modes != LEAF].tolist()}
    roots = np.array([at for at in range(count) if at not in led], np.int64)
    demand(len(roots) == len(np.unique(trees)), "its trees have not one root each")
    missing = numbers(site, "nodes_missing_value_tracks_true", np.int64).astype(bool)
    demand(len(missing) in (0, count), "nodes_missing_value_tracks_true does not fit its nodes")
    weights, has = _weights(site, what, targets, moved, place, _wide(site, f"{what}_weights").astype(dtype))
    forest = Forest(
        modes,
        np.where(modes == LEAF, 0, _column(site, "nodes_featureids", count)),
        splits,
        yes,
        no,
        missing if len(missing) else np.zeros(count, bool),
        weights,
        has,
        roots,
        np.full((count, 1), np.nan, dtype),
    )
    demand(sum(map(len, forest.by_level)) == count, "its nodes are not all reached from the roots, each by one way")
    return forest


def _wide(site: Site, name: str) -> np.ndarray:
    """An attribute that may be a list of float32 or a tensor of float64."""
    tensor = f"{name}_as_tensor"
    return numbers(site, tensor, np.float64) if tensor in site.call.attrs else numbers(site, name).astype(np.float64)


def _led(site: Site, name: str, modes: np.ndarray, trees: np.ndarray, place: dict[tuple[int, int], int]) -> np.ndarray:
    """To which row each node leads: a leaf to its own."""
    to = numbers(site, name, np.int64)
    demand(len(to) == len(modes), f"attribute {name!r} does not fit its {len(modes)} nodes")
    found = np.arange(len(modes))
    for at in np.flatnonzero(modes != LEAF).tolist():
        row = place.get((int(trees[at]), int(to[at])))
        if row is None:
            raise Unsupported(f"a branch of node {at} leads nowhere", AGAIN)
        found[at] = row
    return found


def _weights(
    site: Site, what: str, targets: int, moved: int, place: dict[tuple[int, int], int], given: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What each node adds to each target, and whether it says anything of it."""
    count = len(given)
    columns = [_column(site, f"{what}_{name}", count).tolist() for name in ("treeids", "nodeids", "ids")]
    demand(targets > 0, f"it has {targets} targets")
    weights = np.zeros((len(place), targets), given.dtype)
    has = np.zeros(weights.shape, bool)
    for tree, node, target, weight in zip(*columns, given.tolist(), strict=True):
        row = place.get((tree, node))
        if row is None or not 0 <= target - moved < targets:
            raise Unsupported(f"a weight is that of no {what}", AGAIN)
        weights[row, target - moved] += weight
        has[row, target - moved] = True
    return weights, has
