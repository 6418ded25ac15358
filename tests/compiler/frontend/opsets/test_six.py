from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler.frontend.one_node import computed, refusal


def six(op: str, *arrays: np.ndarray, outputs: int = 1, **attrs: Any) -> np.ndarray:
    return computed(op, arrays, attrs, outputs, opset=6)[0]


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


X = normal(0, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("shape", "axis", "wide"),
    [((4, 5), None, (4, 5)), ((3,), 1, (3, 1, 1)), ((3, 4), 1, (3, 4, 1)), ((2,), 0, (2, 1, 1, 1)), ((4,), -2, (4, 1))],
)
def test_an_operand_is_broadcast_from_the_axis_on(
    shape: tuple[int, ...], axis: int | None, wide: tuple[int, ...]
) -> None:
    y = normal(1, *shape)
    attrs = {"broadcast": 1} if axis is None else {"broadcast": 1, "axis": axis}
    np.testing.assert_array_equal(six("Add", X, y, **attrs), X + y.reshape(wide))
    np.testing.assert_array_equal(six("Greater", X, y, **attrs), y.reshape(wide) < X)


@pytest.mark.parametrize(
    ("shape", "attrs", "said"),
    [
        ((5,), {}, "broadcast is 0"),
        ((3,), {"broadcast": 1}, "does not fit"),
        ((4, 5), {"broadcast": 1, "axis": 3}, "does not fit"),
        ((3,), {"broadcast": 1, "axis": -7}, "does not fit"),
        ((1, 2, 3, 4, 5), {"broadcast": 1}, "does not fit"),
    ],
)
def test_an_operand_that_does_not_fit_is_refused(shape: tuple[int, ...], attrs: dict[str, Any], said: str) -> None:
    assert said in refusal("Mul", [X, normal(1, *shape)], attrs, opset=6).reason


@pytest.mark.parametrize("slope", [(3,), (1,)])
def test_the_slope_of_PRelu_is_that_of_a_channel(slope: tuple[int, ...]) -> None:
    wide = normal(1, *slope)
    right = np.where(X < 0, X * wide.reshape(-1, 1, 1), X)
    np.testing.assert_allclose(six("PRelu", X, wide), right, rtol=1e-6)


def test_BatchNormalization_and_Dropout_are_those_of_inference_where_they_say_so() -> None:
    scale, bias, mean, variance = normal(1, 3), normal(2, 3), normal(3, 3), np.abs(normal(4, 3))
    given = (X, scale, bias, mean, variance)
    new = computed("BatchNormalization", given)[0]
    np.testing.assert_array_equal(six("BatchNormalization", *given, is_test=1), new)
    assert "training form" in refusal("BatchNormalization", given, {}, opset=6).reason
    np.testing.assert_array_equal(six("Dropout", X, is_test=1), X)
    assert "training form" in refusal("Dropout", [X], {}, opset=6).reason


def test_Gemm_states_that_its_bias_is_broadcast() -> None:
    a, b, c = normal(0, 2, 3), normal(1, 3, 4), normal(2, 4)
    np.testing.assert_allclose(six("Gemm", a, b, c, broadcast=1), a @ b + c, rtol=1e-5, atol=1e-6)


def test_Upsample_scales_height_and_width() -> None:
    y = six("Upsample", X, height_scale=2.0, width_scale=3.0)
    np.testing.assert_array_equal(y, X.repeat(2, axis=2).repeat(3, axis=3))
    assert "it scales" in refusal("Upsample", [X[0]], {"height_scale": 2.0, "width_scale": 2.0}, opset=6).reason


@pytest.mark.parametrize("op", ["GRU", "LSTM", "RNN"])
def test_a_recurrent_layer_states_that_it_gives_its_sequence(op: str) -> None:
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op]
    given = (normal(0, 3, 2, 4), normal(1, 1, gates * 5, 4), normal(2, 1, gates * 5, 5))
    new = computed(op, given, {"hidden_size": 5})[0]
    np.testing.assert_array_equal(six(op, *given, hidden_size=5, output_sequence=1), new)


def test_rules_for_later_opsets_follow() -> None:
    x = normal(0, 2, 3, 4)
    flat = np.exp(x.reshape(2, 12))
    np.testing.assert_allclose(six("Softmax", x), (flat / flat.sum(1, keepdims=True)).reshape(x.shape), rtol=1e-5)
    np.testing.assert_allclose(six("ReduceSum", x, axes=[1], keepdims=0), x.sum(1), rtol=1e-6)
