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
