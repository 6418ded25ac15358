from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler.frontend.one_node import agree, computed, refusal

ML = "ai.onnx.ml"
X = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def nodes(modes: tuple[str, str] = ("BRANCH_LEQ", "BRANCH_LEQ"), values: tuple[float, float] = (0.1, -0.4)) -> Any:
    """Two trees: one of two levels with three leaves (2, 3, 4), and one of a level with leaves 1 and 2."""
    first, second = modes
    return {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 2, 0, 0, 0, 1, 0, 0],
        "nodes_modes": [first, second, "LEAF", "LEAF", "LEAF", first, "LEAF", "LEAF"],
        "nodes_values": [values[0], values[1], 0.0, 0.0, 0.0, 0.3, 0.0, 0.0],
        "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0, 0, 0],
    }


def targets(weights: list[float], ids: list[int] | None = None, what: str = "target") -> dict[str, Any]:
    return {
        f"{what}_treeids": [0, 0, 0, 1, 1],
        f"{what}_nodeids": [2, 3, 4, 1, 2],
        f"{what}_ids": ids or [0] * 5,
        f"{what}_weights": weights,
    }


WEIGHTS = [1.0, -2.0, 3.5, 0.25, -0.5]


@pytest.mark.parametrize("mode", MODES)
def test_a_branch_compares_as_its_mode_says(mode: str) -> None:
    x = np.array([[0.1, 0.3, -0.4], [0.2, 0.2, -0.5], [0.0, 0.4, -0.3]], np.float32)
    attrs = {**nodes((mode, mode)), **targets(WEIGHTS), "n_targets": 1}
    (y,) = agree("TreeEnsembleRegressor", [x], attrs, domain=ML)
    assert len(set(y.ravel().tolist())) > 1


def test_branches_of_different_modes_in_one_ensemble() -> None:
    attrs = {**nodes(("BRANCH_LEQ", "BRANCH_GT")), **targets(WEIGHTS), "n_targets": 1}
    agree("TreeEnsembleRegressor", [X], attrs, domain=ML)


def test_a_missing_value_takes_the_branch_that_the_node_says() -> None:
    x = X.copy()
    x[::2, 0] = np.nan
    x[1::2, 2] = np.nan
    agree("TreeEnsembleRegressor", [x], {**nodes(), **targets(WEIGHTS), "n_targets": 1}, domain=ML)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_the_trees_are_aggregated(aggregate: str) -> None:
    attrs = {**nodes(), **targets(WEIGHTS), "n_targets": 1, "aggregate_function": aggregate, "base_values": [0.5]}
    agree("TreeEnsembleRegressor", [X], attrs, domain=ML)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_a_classifier_of_three_classes(post: str) -> None:
    classes = targets([0.5, 0.2, 0.9, 0.4, 0.1], [0, 1, 2, 1, 0], "class")
    attrs = {**nodes(), **classes, "classlabels_int64s": [10, 20, 30], "post_transform": post}
    labels, _ = agree("TreeEnsembleClassifier", [X], attrs, 2, domain=ML)
    assert len(set(labels.tolist())) > 1


@pytest.mark.parametrize("weights", [[0.4, 0.1, 0.3, 0.3, 0.05], [0.5, -0.6, 0.3, 0.4, -0.1]])
@pytest.mark.parametrize("post", ["NONE", "LOGISTIC"])
def test_a_classifier_of_two_classes_whose_leaves_vote_for_one(weights: list[float], post: str) -> None:
    attrs = {**nodes(), **targets(weights, what="class"), "classlabels_int64s": [5, 8], "post_transform": post}
    labels, _ = agree("TreeEnsembleClassifier", [X], attrs, 2, domain=ML)
    assert len(set(labels.tolist())) == 2


def test_integers_are_compared_as_numbers() -> None:
    x = np.arange(-3, 3, dtype=np.int64).reshape(2, 3)
    attrs = {**nodes(), **targets(WEIGHTS), "n_targets": 1}
    (whole,) = computed("TreeEnsembleRegressor", [x], attrs, domain=ML)
    (real,) = computed("TreeEnsembleRegressor", [x.astype(np.float32)], attrs, domain=ML)
    np.testing.assert_array_equal(whole, real)


@pytest.mark.parametrize(
    ("attrs", "said"),
    [
        ({"nodes_truenodeids": [1, 9, 0, 0, 0, 1, 0, 0]}, "leads nowhere"),
        ({"nodes_truenodeids": [1, 0, 0, 0, 0, 1, 0, 0]}, "not all reached"),
        ({"nodes_truenodeids": [1, 2, 0, 0, 0, 1, 0, 0]}, "one root each"),
        ({"nodes_featureids": [7, 2, 0, 0, 0, 1, 0, 0]}, "a feature that"),
        ({"nodes_modes": ["BRANCH_LEQ"]}, "does not fit its 1 nodes"),
        ({"nodes_values": [0.5]}, "one value each"),
        ({"nodes_nodeids": [0, 0, 2, 3, 4, 0, 1, 2]}, "one number"),
        ({"target_nodeids": [7, 3, 4, 1, 2]}, "that of no target"),
        ({"base_values": [1.0, 2.0]}, "2 base values"),
    ],
)
def test_tables_that_are_no_trees_are_refused(attrs: dict[str, Any], said: str) -> None:
    whole = {**nodes(), **targets(WEIGHTS), "n_targets": 1, **attrs}
    assert said in refusal("TreeEnsembleRegressor", [X], whole, domain=ML).reason


def test_a_chain_past_the_deepest_tree_is_refused() -> None:
    count = 70
    inner = list(range(count))
    attrs = {
        "nodes_treeids": [0] * (2 * count + 1),
        "nodes_nodeids": list(range(2 * count + 1)),
        "nodes_featureids": [0] * (2 * count + 1),
        "nodes_modes": ["BRANCH_LEQ"] * count + ["LEAF"] * (count + 1),
        "nodes_values": [float(at) for at in range(2 * count + 1)],
        "nodes_truenodeids": [count + at for at in inner] + [0] * (count + 1),
        "nodes_falsenodeids": [at + 1 for at in inner[:-1]] + [2 * count] + [0] * (count + 1),
        "target_treeids": [0] * (count + 1),
        "target_nodeids": list(range(count, 2 * count + 1)),
        "target_ids": [0] * (count + 1),
        "target_weights": [1.0] * (count + 1),
    }
    assert "deeper than 64 levels" in refusal("TreeEnsembleRegressor", [X], attrs, domain=ML).reason
