"""Quantisers of any width, beside what their definitions say in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.compiler.frontend.one_node import computed, graph_of, model_of, refusal

DOMAIN = "onnx.brevitas"
X = np.random.default_rng(8).normal(0, 2, (3, 4, 5)).astype(np.float32)
SCALE, ROWS = np.array(0.37, np.float32), np.array([0.3, 0.11, 0.7, 0.4], np.float32).reshape(1, 4, 1)
ROUNDED: Mapping[str, Any] = {
    "ROUND": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "ROUND_TO_ZERO": np.trunc,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - 0.5),
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
}


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def quant(scale: np.ndarray, zero: float, bits: float, **attrs: Any) -> np.ndarray:
    """By our references; scale, zero point and width are constants."""
    arrays = [X, scale, number(zero), number(bits)]
    return computed("Quant", arrays, attrs, 1, DOMAIN, constants=(1, 2, 3))[0]


@pytest.mark.parametrize("mode", ROUNDED)
@pytest.mark.parametrize(
    ("signed", "narrow", "zero", "bits"), [(1, 0, 0, 4), (1, 1, 0, 8), (0, 0, 3, 2), (0, 1, 0, 12)]
)
def test_numbers_are_rounded_and_kept_in_their_bits(
    mode: str, signed: int, narrow: int, zero: float, bits: int
) -> None:
    low = -(2 ** (bits - 1)) + narrow if signed else 0
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
    for scale in (SCALE, ROWS):
        codes = np.clip(ROUNDED[mode](X / scale + zero), low, high)
        found = quant(scale, zero, bits, signed=signed, narrow=narrow, rounding_mode=mode)
        np.testing.assert_allclose(found, (codes - zero) * scale, rtol=1e-6, atol=1e-7)


def test_up_to_eight_bits_are_what_other_quantised_models_have() -> None:
    def operators(bits: float, mode: str) -> set[str]:
        arrays = [X, ROWS, number(0), number(bits)]
        model = model_of("Quant", arrays, {"rounding_mode": mode}, 1, DOMAIN, constants=(1, 2, 3))
        return {node.op for node in graph_of(model).nodes}

    assert operators(4, "ROUND") == {"QuantizeLinear", "Clip", "DequantizeLinear"}
    assert operators(8, "ROUND") == {"QuantizeLinear", "DequantizeLinear"}
    assert "QuantizeLinear" not in operators(9, "ROUND") | operators(8, "FLOOR")


def test_one_bit_is_a_sign() -> None:
    (found,) = computed("BipolarQuant", [X, SCALE], None, 1, DOMAIN)
    np.testing.assert_array_equal(found, np.where(X >= 0, SCALE, -SCALE))


def test_the_highest_bits_are_kept() -> None:
    codes = np.arange(0, 256, 5, dtype=np.float32)
    arrays = [codes * SCALE, SCALE, number(0), number(8), number(4)]
    (found,) = computed("Trunc", arrays, {"rounding_mode": "FLOOR"}, 1, DOMAIN, constants=(3, 4))
    np.testing.assert_allclose(found, np.floor(codes / 16) * SCALE, rtol=1e-6)


@pytest.mark.parametrize(
    ("bits", "attrs", "reason"),
    [(0.5, {}, "no number of bits"), (2.5, {}, "no whole number"), (12, {"rounding_mode": "SIDEWAYS"}, "SIDEWAYS")],
)
def test_other_quantisers_are_refused(bits: float, attrs: Mapping[str, Any], reason: str) -> None:
    arrays = [X, SCALE, number(0), number(bits)]
    assert reason in refusal("Quant", arrays, attrs, 1, DOMAIN, constants=(1, 2, 3)).reason
