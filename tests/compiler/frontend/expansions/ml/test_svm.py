from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler.frontend.one_node import agree, computed, refusal

ML = "ai.onnx.ml"
X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
SUPPORTS = np.random.default_rng(1).normal(size=12).astype(np.float32).tolist()
ATTRS: dict[str, Any] = {
    "support_vectors": SUPPORTS,
    "coefficients": [1.0, -0.5, 0.25, 2.0],
    "rho": [0.3],
    "n_supports": 4,
}


@pytest.mark.parametrize(
    ("kernel", "params"),
    [("LINEAR", [0.0, 0.0, 3.0]), ("POLY", [0.5, 1.0, 2.0]), ("RBF", [0.7, 0.0, 3.0]), ("SIGMOID", [0.5, 0.1, 3.0])],
)
def test_SVMRegressor_of_each_kernel(kernel: str, params: list[float]) -> None:
    agree("SVMRegressor", [X], {**ATTRS, "kernel_type": kernel, "kernel_params": params}, domain=ML)


def test_SVMRegressor_of_one_class_tells_a_side() -> None:
    attrs = {**ATTRS, "kernel_type": "RBF", "kernel_params": [0.7, 0.0, 3.0], "one_class": 1, "rho": [0.0]}
    (sides,) = agree("SVMRegressor", [X], attrs, domain=ML)
    assert set(sides.ravel().tolist()) == {1.0, -1.0}


def test_SVMRegressor_without_support_vectors_is_linear() -> None:
    (y,) = computed("SVMRegressor", [X], {"coefficients": [1.0, 2.0, 3.0], "rho": [0.5], "n_supports": 0}, domain=ML)
    np.testing.assert_allclose(y, X @ np.array([[1.0], [2.0], [3.0]], np.float32) + 0.5, rtol=1e-6)


@pytest.mark.parametrize(
    ("attrs", "said"),
    [
        ({"n_supports": 3}, "no 3 support vectors"),
        ({"rho": [1.0, 2.0]}, "2 offsets"),
        ({"kernel_type": "COSINE"}, "'COSINE'"),
    ],
)
def test_what_does_not_fit_is_refused(attrs: dict[str, Any], said: str) -> None:
    assert said in refusal("SVMRegressor", [X], {**ATTRS, **attrs}, domain=ML).reason


def votes(classes: int, **more: Any) -> dict[str, Any]:
    """Attributes of an SVMClassifier with a classifier for each pair of classes."""
    random = np.random.default_rng(2)
    per_class = [2 + at % 2 for at in range(classes)]
    count, pairs = sum(per_class), classes * (classes - 1) // 2
    found: dict[str, Any] = {
        "support_vectors": random.normal(size=3 * count).tolist(),
        "coefficients": random.normal(size=count * (classes - 1)).tolist(),
        "rho": (0.3 * random.normal(size=pairs)).tolist(),
        "vectors_per_class": per_class,
        "classlabels_ints": list(range(10, 10 + classes)),
        "kernel_type": "RBF",
        "kernel_params": [0.5, 0.0, 3.0],
    }
    return {**found, **more}


def chances(classes: int) -> dict[str, list[float]]:
    random = np.random.default_rng(classes)
    pairs = classes * (classes - 1) // 2
    return {"prob_a": (-1 - random.random(pairs)).tolist(), "prob_b": (0.2 * random.normal(size=pairs)).tolist()}


ROWS = np.random.default_rng(4).normal(size=(40, 3)).astype(np.float32)


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_SVMClassifier_votes_by_pairs(classes: int, post: str) -> None:
    found, _ = agree("SVMClassifier", [ROWS], votes(classes, post_transform=post), 2, ML)
    assert len(np.unique(found)) > 1


@pytest.mark.parametrize(
    ("kernel", "params"), [("LINEAR", [0.0, 0.0, 3.0]), ("POLY", [0.5, 1.0, 2.0]), ("SIGMOID", [0.5, 0.1, 3.0])]
)
def test_SVMClassifier_of_each_kernel(kernel: str, params: list[float]) -> None:
    found, _ = agree("SVMClassifier", [ROWS], votes(3, kernel_type=kernel, kernel_params=params), 2, ML)
    assert len(np.unique(found)) > 1


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_SVMClassifier_couples_probabilities_as_libsvm_does(classes: int, post: str) -> None:
    attrs = {**votes(classes, post_transform=post), **chances(classes)}
    _, found = agree("SVMClassifier", [ROWS], attrs, 2, ML)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_SVMClassifier_without_support_vectors_is_linear(classes: int, positive: bool) -> None:
    weights = np.random.default_rng(classes).normal(size=3 * classes)
    attrs = {
        "coefficients": (np.abs(weights) if positive else weights).tolist(),
        "rho": [0.25],
        "classlabels_ints": list(range(classes)),
        "kernel_params": [0.0, 0.0, 3.0],
    }
    found, _ = agree("SVMClassifier", [ROWS], attrs, 2, ML)
    assert len(np.unique(found)) > 1


@pytest.mark.parametrize(
    ("attrs", "said"),
    [
        ({"rho": [1.0]}, "no 7 support vectors of 3 classes"),
        ({"classlabels_ints": [1, 2]}, "it has 3 classes"),
        ({"prob_a": [1.0], "prob_b": [1.0]}, "parameters of sigmoids"),
        ({"post_transform": "PROBIT"}, "'PROBIT'"),
    ],
)
def test_a_classifier_that_does_not_fit_is_refused(attrs: dict[str, Any], said: str) -> None:
    assert said in refusal("SVMClassifier", [ROWS], {**votes(3), **attrs}, 2, ML).reason
