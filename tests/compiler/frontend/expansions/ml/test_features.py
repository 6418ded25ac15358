from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler.frontend.one_node import agree, computed, refusal

ML = "ai.onnx.ml"
X = np.array([[1, -2, 3, 0.5], [0, 0, 0, 0], [4, np.nan, -1, 2]], np.float32)
WHOLE = np.array([[1, -2, 3], [0, 5, 7]], np.int64)


def test_ArrayFeatureExtractor_takes_columns_in_any_order() -> None:
    agree("ArrayFeatureExtractor", [X, np.array([3, 0, 0], np.int64)], domain=ML)
    agree("ArrayFeatureExtractor", [X[0], np.array([3, 1], np.int64)], domain=ML)


def test_Binarizer_tells_what_is_above_the_threshold() -> None:
    agree("Binarizer", [X[:2]], {"threshold": 0.5}, domain=ML)
    assert computed("Binarizer", [WHOLE], {"threshold": 0.5}, domain=ML)[0].tolist() == [[1, 0, 1], [0, 1, 1]]
    assert computed("Binarizer", [WHOLE], {"threshold": -2.5}, domain=ML)[0].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_FeatureVectorizer_puts_rows_side_by_side() -> None:
    agree("FeatureVectorizer", [X[:2], X[1:, :1]], {"inputdimensions": [4, 1]}, domain=ML)
    (mixed,) = computed("FeatureVectorizer", [WHOLE, X[:2]], domain=ML)
    np.testing.assert_array_equal(mixed, np.concatenate([WHOLE, X[:2]], 1).astype(np.float32))


@pytest.mark.parametrize(
    "attrs",
    [
        {"imputed_value_floats": [7.0], "replaced_value_float": 0.0},
        {"imputed_value_floats": [7.0, 8.0, 9.0, 10.0], "replaced_value_float": float("nan")},
    ],
)
def test_Imputer_fills_in_what_is_missing(attrs: dict[str, Any]) -> None:
    agree("Imputer", [X], attrs, domain=ML)


def test_Imputer_fills_in_integers() -> None:
    agree("Imputer", [WHOLE], {"imputed_value_int64s": [1, 2, 3], "replaced_value_int64": 0}, domain=ML)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_Normalizer_divides_rows_and_leaves_one_of_zeros(norm: str) -> None:
    agree("Normalizer", [np.abs(X[:2])], {"norm": norm}, domain=ML)
    assert computed("Normalizer", [X[1:2]], {"norm": norm}, domain=ML)[0].tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_Normalizer_counts_magnitudes(norm: str) -> None:
    agree("Normalizer", [X[:1]], {"norm": norm}, domain=ML)


def test_Scaler_moves_and_scales_columns() -> None:
    agree("Scaler", [X[:2]], {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [0.5, 1.0, 2.0, 4.0]}, domain=ML)
    agree("Scaler", [WHOLE], {"offset": [1.5], "scale": [0.25]}, domain=ML)


@pytest.mark.parametrize(
    ("op", "attrs", "said"),
    [
        ("Scaler", {"offset": [1.0, 2.0], "scale": [1.0]}, "2 offsets and 1 scales"),
        ("Scaler", {"offset": ["a"], "scale": [1.0]}, "'offset' holds no numbers"),
        ("Normalizer", {"norm": "L7"}, "'norm' is 'L7'"),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0]}, "2 imputed values"),
        ("FeatureVectorizer", {"inputdimensions": [5]}, "do not fit"),
        ("DictVectorizer", {}, "it reads a map"),
    ],
)
def test_what_does_not_fit_is_refused(op: str, attrs: dict[str, Any], said: str) -> None:
    assert said in refusal(op, [X], attrs, domain=ML).reason
