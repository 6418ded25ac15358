from __future__ import annotations

from fractions import Fraction

import numpy as np

from compiler.quantize.scheme import (
    affine,
    quantised_bias,
    quantised_weights,
    scales_beside_bias,
    weight_scales,
)


def nearest(value: np.float32, scale: np.float32) -> int:
    """round(value / scale) by exact fractions, half to even; the quotient is rounded to float32 first, as ONNX does."""
    quotient = np.float32(float(Fraction(float(value)) / Fraction(float(scale))))
    whole = Fraction(float(quotient))
    return round(whole)  # Python rounds half to even


def test_weights_are_rounded_to_the_nearest_step_of_their_channel() -> None:
    random = np.random.default_rng(0)
    weights = (random.normal(size=(5, 3, 2)) * np.array([1e-6, 1, 3, 1e4, 0])[:, None, None]).astype(np.float32)
    scales = weight_scales(weights, 0)
    q = quantised_weights(weights, np.where(scales > 0, scales, np.float32(1)), 0)
    assert scales[4] == 0
    assert not q[4].any()
    for channel in range(4):
        assert scales[channel] == np.float32(float(Fraction(float(np.abs(weights[channel]).max())) / 127))
        for value, found in zip(weights[channel].ravel(), q[channel].ravel(), strict=True):
            assert found == max(-127, min(127, nearest(value, scales[channel])))
        assert np.abs(q[channel]).max() == 127


def test_ties_go_to_the_even_step() -> None:
    weights = np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 127.0]], np.float32)
    assert quantised_weights(weights, np.ones(1, np.float32), 0).tolist() == [[0, 2, 2, 0, -2, 127]]


def test_zero_is_exact_and_both_ends_are_reached() -> None:
    for low, high in ((0.0, 6.0), (-1.0, 0.0), (-0.3, 2.0), (-5.0, 1e-3), (2.0, 4.0), (-4.0, -2.0)):
        for dtype in (np.uint8, np.int8):
            scheme = affine(low, high, dtype)
            assert scheme.rounded(np.zeros(1)) == 0
            low_end, high_end = min(low, 0.0), max(high, 0.0)
            ends = scheme.rounded(np.array([low_end, high_end]))
            assert np.abs(ends - [low_end, high_end]).max() <= scheme.scale / 2 * 1.001
            assert scheme.zero.dtype == dtype


def test_the_bytes_of_a_tensor_of_zeros_reach_to_one() -> None:
    for low, high in ((0.0, 0.0), (0.0, 1e-38)):
        scheme = affine(low, high, np.uint8)
        assert scheme.scale == np.float32(1 / 255)
        assert scheme.zero == 0


def test_what_a_byte_stands_for_is_within_half_a_step() -> None:
    scheme = affine(-1.0, 3.0, np.int8)
    values = np.linspace(-1, 3, 1001)
    assert np.abs(scheme.rounded(values) - values).max() <= float(scheme.scale) * 0.5001
    beyond = scheme.rounded(np.array([100.0, -100.0])) / float(scheme.scale) + float(scheme.zero)
    assert np.round(beyond).tolist() == [127, -128]


def test_a_bias_keeps_its_value_beside_large_and_absent_weights() -> None:
    x_scale = np.float32(0.01)
    weights = np.array([[1.0, -2.0], [1e-9, 0.0], [0.0, 0.0], [0.0, 0.0]], np.float32)
    bias = np.array([0.25, 1000.0, -3.5, 0.0])
    scales = scales_beside_bias(weight_scales(weights, 0), x_scale, bias)
    q, products = quantised_bias(bias, x_scale, scales)
    assert np.abs(q.astype(np.int64)).max() <= 2**30
    assert np.abs(q * products.astype(np.float64) - bias).max() <= 1e-3 * 0.5
    assert abs(q[2] * float(products[2]) + 3.5) < 1e-6
    assert scales[0] == weight_scales(weights, 0)[0]
    assert scales[3] == 1
    assert q[3] == 0
    assert q.dtype == np.int32
