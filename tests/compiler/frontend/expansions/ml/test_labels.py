from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler.frontend.one_node import agree, computed, refusal

ML = "ai.onnx.ml"
KEYS = np.array([[1, 2], [9, 3]], np.int64)
REALS = np.array([0.5, 2.0, np.nan, -1.0], np.float32)


@pytest.mark.parametrize(
    ("x", "attrs"),
    [
        (KEYS, {"keys_int64s": [1, 2, 3], "values_floats": [0.5, 1.5, 2.5], "default_float": -7.0}),
        (KEYS, {"keys_int64s": [1, 2, 3], "values_floats": [0.5, 1.5, 2.5]}),
        (KEYS, {"keys_int64s": [3, 2, 1], "values_int64s": [30, 20, 10]}),
        (REALS, {"keys_floats": [0.5, 2.0], "values_int64s": [3, 4], "default_int64": 5}),
    ],
)
def test_LabelEncoder_gives_the_value_beside_a_key(x: np.ndarray, attrs: dict[str, Any]) -> None:
    agree("LabelEncoder", [x], attrs, domain=ML)


def test_a_key_that_is_NaN_is_that_of_every_NaN() -> None:
    attrs = {"keys_floats": [0.5, float("nan")], "values_int64s": [3, 4], "default_int64": 5}
    assert computed("LabelEncoder", [REALS], attrs, domain=ML)[0].tolist() == [3, 5, 4, 5]


def test_OneHotEncoder_gives_nothing_for_an_unknown_category() -> None:
    agree("OneHotEncoder", [KEYS], {"cats_int64s": [3, 1]}, domain=ML)
    assert computed("OneHotEncoder", [KEYS], {"cats_int64s": [3, 1]}, domain=ML)[0][1, 0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("op", "attrs", "said"),
    [
        ("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]}, "its keys are strings"),
        ("LabelEncoder", {"keys_int64s": [1, 2], "values_int64s": [1]}, "2 keys and 1 values"),
        ("LabelEncoder", {"keys_floats": [1.0], "values_int64s": [1]}, "its keys are float32"),
        ("LabelEncoder", {}, "0 keys"),
        ("OneHotEncoder", {"cats_int64s": [1], "zeros": 0}, "stops at an unknown category"),
        ("OneHotEncoder", {"cats_strings": ["a"]}, "0 categories"),
        ("DictVectorizer", {"int64_vocabulary": [1, 2]}, "it reads a map"),
        ("CastMap", {"cast_to": "TO_FLOAT"}, "it reads a map"),
    ],
)
def test_what_cannot_be_computed_is_refused(op: str, attrs: dict[str, Any], said: str) -> None:
    assert said in refusal(op, [KEYS], attrs, domain=ML).reason
