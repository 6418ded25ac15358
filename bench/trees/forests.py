"""Ensembles as gradient boosting and random forests give them, seeded, as ONNX models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

ML = "ai.onnx.ml"
FEATURES = 30


@dataclass(frozen=True)
class Ensemble:
    """How an ensemble is grown.

    leaves   of each tree; 0: complete trees of `depth`. Otherwise a leaf drawn at random is split time after time, as
             by learners that grow leaf by leaf, no deeper than `depth`
    classes  1: a regressor; else a classifier of which each tree votes for one class, or (`dense`) each leaf for all
    missing  whether nodes say where missing values go
    """

    trees: int
    depth: int
    leaves: int = 0
    classes: int = 1
    dense: bool = False
    missing: bool = False


ENSEMBLES: Mapping[str, Ensemble] = {
    "100 trees, depth 3": Ensemble(100, 3),
    "100 trees, depth 6": Ensemble(100, 6),
    "500 trees, depth 6": Ensemble(500, 6),
    "300 trees of 31 leaves": Ensemble(300, 12, leaves=31),
    "300 trees, depth 6, missing values": Ensemble(300, 6, missing=True),
    "boosting, 5 classes, 100 trees each": Ensemble(500, 5, classes=5),
    "random forest, 10 classes, 100 trees": Ensemble(100, 10, leaves=300, classes=10, dense=True),
}


def model_of(ensemble: Ensemble, rows: int, seed: int = 0) -> bytes:
    """x [rows, FEATURES] to y, or to labels and scores."""
    random = np.random.default_rng(seed)
    what = "target" if ensemble.classes == 1 else "class"
    columns: dict[str, Any] = {
        name: []
        for name in (
            *(f"nodes_{part}" for part in ("treeids", "nodeids", "featureids", "values", "modes")),
            *(f"nodes_{part}" for part in ("truenodeids", "falsenodeids", "missing_value_tracks_true")),
            *(f"{what}_{part}" for part in ("treeids", "nodeids", "ids", "weights")),
        )
    }
    for tree in range(ensemble.trees):
        _grow(columns, ensemble, tree, what, random)
    names = ["y"] if ensemble.classes == 1 else ["label", "scores"]
    attrs: dict[str, Any] = {"n_targets": 1} if ensemble.classes == 1 else {}
    if ensemble.classes > 1:
        attrs = {"classlabels_int64s": list(range(ensemble.classes)), "post_transform": "SOFTMAX"}
    kind = "TreeEnsembleRegressor" if ensemble.classes == 1 else "TreeEnsembleClassifier"
    node = helper.make_node(kind, ["x"], names, domain=ML, **columns, **attrs)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, FEATURES])
    graph = helper.make_graph([node], "trees", [x], [onnx.ValueInfoProto(name=name) for name in names])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    return data


def _grow(
    columns: Mapping[str, list[object]], ensemble: Ensemble, tree: int, what: str, random: np.random.Generator
) -> None:
    """One tree's nodes and leaves, onto the columns."""
    branches: dict[int, tuple[int, int]] = {}
    levels = {0: 0}
    open_ = [0]
    most = ensemble.leaves or 2**ensemble.depth
    while open_ and len(branches) + 1 < most:
        at = open_.pop(int(random.integers(len(open_))) if ensemble.leaves else 0)
        branches[at] = (len(levels), len(levels) + 1)
        for child in branches[at]:
            levels[child] = levels[at] + 1
            if levels[child] < ensemble.depth:
                open_.append(child)
    for at in range(len(levels)):
        yes, no = branches.get(at, (0, 0))
        asked = at in branches
        row = {
            "treeids": tree,
            "nodeids": at,
            "featureids": int(random.integers(FEATURES)) if asked else 0,
            "values": float(np.float32(random.normal() / 2)) if asked else 0.0,
            "modes": "BRANCH_LEQ" if asked else "LEAF",
            "truenodeids": yes,
            "falsenodeids": no,
            "missing_value_tracks_true": int(ensemble.missing and asked and random.random() < 0.5),
        }
        for name, value in row.items():
            columns[f"nodes_{name}"].append(value)
        if not asked:
            for target in range(ensemble.classes) if ensemble.dense else (tree % ensemble.classes,):
                vote = {"treeids": tree, "nodeids": at, "ids": target, "weights": float(random.random())}
                for name, value in vote.items():
                    columns[f"{what}_{name}"].append(value)
