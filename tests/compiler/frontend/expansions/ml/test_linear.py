from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler.frontend.one_node import agree, refusal

ML = "ai.onnx.ml"
X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=6).astype(np.float32).tolist()


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_LinearRegressor_of_two_targets(post: str) -> None:
    attrs = {"coefficients": WEIGHTS, "intercepts": [0.5, -1.0], "targets": 2, "post_transform": post}
    agree("LinearRegressor", [X], attrs, domain=ML)


def test_LinearRegressor_without_intercepts() -> None:
    agree("LinearRegressor", [X], {"coefficients": WEIGHTS[:3]}, domain=ML)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_LinearClassifier_gives_labels_and_scores(post: str) -> None:
    attrs = {
        "coefficients": WEIGHTS + WEIGHTS[:3],
        "intercepts": [0.1, -0.2, 0.0],
        "classlabels_ints": [7, 3, 5],
        "post_transform": post,
    }
    labels, _ = agree("LinearClassifier", [X], attrs, 2, domain=ML)
    assert len(set(labels.tolist())) > 1


@pytest.mark.parametrize(
    ("op", "attrs", "said"),
    [
        ("LinearRegressor", {"coefficients": WEIGHTS[:4]}, "4 coefficients"),
        ("LinearRegressor", {"coefficients": WEIGHTS[:3], "post_transform": "PROBIT"}, "'PROBIT'"),
        ("LinearClassifier", {"coefficients": WEIGHTS[:3], "classlabels_strings": ["a"]}, "1 labels"),
        ("LinearClassifier", {"coefficients": WEIGHTS[:3], "classlabels_ints": [1]}, "1 labels"),
    ],
)
def test_what_does_not_fit_is_refused(op: str, attrs: dict[str, Any], said: str) -> None:
    assert said in refusal(op, [X], attrs, domain=ML).reason
