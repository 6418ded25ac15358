"""Pipelines as scikit-learn's exporters write them, built by hand: categories that are strings, trees, ZipMap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

CITIES, PLANS, LABELS = ("Bern", "Genf", "Zürich"), ("basic", "plus", "pro"), ("churn", "maybe", "stay")
ML = "ai.onnx.ml"


def forest(random: np.random.Generator, trees: int, depth: int, features: int, classes: int) -> dict[str, Any]:
    """Attributes of a TreeEnsembleClassifier: complete trees, each leaf with a vote for the class of its tree."""
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            *("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes"),
            *("nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true"),
            *("class_treeids", "class_nodeids", "class_ids", "class_weights"),
        )
    }
    inner = 2**depth - 1
    for tree in range(trees):
        for node in range(2 * inner + 1):
            is_leaf = node >= inner
            row = (tree, node, int(random.integers(features)), float(random.normal()), "BRANCH_LEQ")
            nexts = (0, 0, 0) if is_leaf else (2 * node + 1, 2 * node + 2, 0)
            row = (tree, node, 0, 0.0, "LEAF") if is_leaf else row
            for name, value in zip(list(columns)[:8], (*row, *nexts), strict=True):
                columns[name].append(value)
            if is_leaf:
                vote = (tree, node, tree % classes, float(random.normal()))
                for name, vote_part in zip(list(columns)[8:], vote, strict=True):
                    columns[name].append(vote_part)
    return columns


def boosting(rows: int | str, seed: int = 0, zipped: bool = True, labels: Sequence[str] = LABELS) -> onnx.ModelProto:
    """Gradient boosting over a city (one-hot), a plan (ordinal) and three scaled numbers; results label and scores."""
    random = np.random.default_rng(seed)
    inputs = [
        helper.make_tensor_value_info("city", TensorProto.STRING, [rows, 1]),
        helper.make_tensor_value_info("plan", TensorProto.STRING, [rows, 1]),
        helper.make_tensor_value_info("numbers", TensorProto.FLOAT, [rows, 3]),
    ]
    width = len(CITIES) + 4
    scores = "scores" if zipped else "probabilities"
    trees = forest(random, 4 * len(labels), 3, width, len(labels))
    nodes = [
        helper.make_node("OneHotEncoder", ["city"], ["hot"], domain=ML, cats_strings=list(CITIES), zeros=1),
        helper.make_node("Reshape", ["hot", "flat"], ["cities"]),
        helper.make_node(
            "LabelEncoder", ["plan"], ["rank"], domain=ML,
            keys_strings=list(PLANS), values_floats=[0.0, 1.0, 2.0], default_float=-1.0,
        ),
        helper.make_node(
            "Scaler", ["numbers"], ["scaled"], domain=ML, offset=[0.1, -0.2, 0.3], scale=[1.0, 0.5, 2.0]
        ),
        helper.make_node("Concat", ["cities", "rank", "scaled"], ["features"], axis=1),
        helper.make_node(
            "TreeEnsembleClassifier", ["features"], ["label", scores], domain=ML,
            classlabels_strings=list(labels), post_transform="SOFTMAX", **trees,
        ),
    ]  # fmt: skip
    if zipped:
        zip_map = helper.make_node("ZipMap", ["scores"], ["probabilities"], domain=ML, classlabels_strings=list(labels))
        nodes.append(zip_map)
    outputs = [onnx.ValueInfoProto(name=name) for name in ("label", "probabilities")]
    flat = onnx.numpy_helper.from_array(np.array([-1, len(CITIES)], np.int64), "flat")
    graph = helper.make_graph(nodes, "pipeline", inputs, outputs, [flat])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def people(rows: int, seed: int = 1) -> dict[str, np.ndarray]:
    """Inputs of `boosting`, of which some categories are none of the model's."""
    random = np.random.default_rng(seed)
    return {
        "city": np.array(random.choice([*CITIES, "Chur", ""], (rows, 1)), object),
        "plan": np.array(random.choice([*PLANS, "gold"], (rows, 1)), object),
        "numbers": random.standard_normal((rows, 3)).astype(np.float32),
    }
