from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler.frontend.one_node import computed, refusal

TRAINING = "ai.onnx.preview.training"


def normal(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(2, 3)).astype(np.float32)


RATE, FIRST, LATER = np.array(0.1, np.float32), np.array(0, np.int64), np.array(3, np.int64)
X, GRADIENT, STATE = normal(0), normal(1), np.abs(normal(2))


@pytest.mark.parametrize("step", [FIRST, LATER])
def test_Adagrad_slows_down_by_all_squares_so_far(step: np.ndarray) -> None:
    attrs = {"norm_coefficient": 0.01, "epsilon": 1e-4, "decay_factor": 0.2}
    x, squares = computed("Adagrad", [RATE, step, X, GRADIENT, STATE], attrs, 2, domain=TRAINING)
    gradient = GRADIENT + 0.01 * X
    np.testing.assert_allclose(squares, STATE + gradient**2, rtol=1e-5)
    rate = 0.1 / (1 + int(step) * 0.2)
    np.testing.assert_allclose(x, X - rate * gradient / (np.sqrt(STATE + gradient**2) + 1e-4), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("step", [FIRST, LATER])
def test_Adam_corrects_its_means_for_the_steps_taken(step: np.ndarray) -> None:
    attrs = {"alpha": 0.8, "beta": 0.95, "epsilon": 1e-4, "norm_coefficient": 0.01, "norm_coefficient_post": 0.1}
    given = [RATE, step, X, GRADIENT, normal(3), STATE]
    x, mean, squares = computed("Adam", given, attrs, 3, domain=TRAINING)
    gradient = GRADIENT + 0.01 * X
    right_mean, right_squares = 0.8 * normal(3) + 0.2 * gradient, 0.95 * STATE + 0.05 * gradient**2
    np.testing.assert_allclose(mean, right_mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(squares, right_squares, rtol=1e-4, atol=1e-6)
    count = int(step)
    rate = 0.1 * np.sqrt(1 - 0.95**count) / (1 - 0.8**count) if count else 0.1
    right = 0.9 * (X - rate * right_mean / (np.sqrt(right_squares) + 1e-4))
    np.testing.assert_allclose(x, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["standard", "nesterov"])
@pytest.mark.parametrize("step", [FIRST, LATER])
def test_Momentum_of_two_tensors(mode: str, step: np.ndarray) -> None:
    attrs = {"alpha": 0.9, "beta": 0.5, "norm_coefficient": 0.1, "mode": mode}
    given = [RATE, step, X, -X, GRADIENT, 2 * GRADIENT, STATE, 3 * STATE]
    found = computed("Momentum", given, attrs, 4, domain=TRAINING)
    share = 0.5 if int(step) else 1.0
    for at, (x, gradient, speed) in enumerate([(X, GRADIENT, STATE), (-X, 2 * GRADIENT, 3 * STATE)]):
        regular = gradient + 0.1 * x
        faster = 0.9 * speed + share * regular
        way = regular + 0.9 * faster if mode == "nesterov" else faster
        np.testing.assert_allclose(found[at], x - 0.1 * way, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found[2 + at], faster, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "attrs", "said"),
    [
        ("Adam", {}, "5 inputs, not 2 and 4 for each tensor"),
        ("Momentum", {"alpha": 0.9, "beta": 0.5, "norm_coefficient": 0.1, "mode": "slow"}, "mode is 'slow'"),
        ("Momentum", {"beta": 0.5, "norm_coefficient": 0.1, "mode": "standard"}, "'alpha' is no number"),
    ],
)
def test_what_does_not_fit_is_refused(op: str, attrs: dict[str, Any], said: str) -> None:
    assert said in refusal(op, [RATE, FIRST, X, GRADIENT, STATE], attrs, domain=TRAINING).reason
