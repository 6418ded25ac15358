"""TfIdfVectorizer beside ONNX Runtime, over numbers and over strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler.frontend.one_node import agree, computed, refusal

POOL = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]
ATTRS: dict[str, Any] = {
    "mode": "TF",
    "min_gram_length": 1,
    "max_gram_length": 2,
    "max_skip_count": 1,
    "ngram_counts": [0, 4],
    "ngram_indexes": [0, 1, 2, 3, 6, 5, 4],
    "pool_int64s": POOL,
}
X = np.random.default_rng(0).integers(2, 9, (3, 12))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"max_skip_count": 0},
        {"max_skip_count": 5, "min_gram_length": 2},
        {"max_gram_length": 1},
        {"mode": "IDF"},
        {"mode": "IDF", "weights": [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], "ngram_indexes": list(range(7))},
        {"mode": "TFIDF", "weights": [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], "ngram_indexes": list(range(7))},
    ],
)
def test_it_is_what_onnxruntime_computes(more: dict[str, Any]) -> None:
    (found,) = agree("TfIdfVectorizer", [X], {**ATTRS, **more})
    assert found.any()
    agree("TfIdfVectorizer", [X[0].astype(np.int32)], {**ATTRS, **more})


def test_a_weight_belongs_to_its_ngram_and_not_to_a_column() -> None:
    weights = np.array([0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], np.float32)
    (counts,) = computed("TfIdfVectorizer", [X], ATTRS)
    (found,) = computed("TfIdfVectorizer", [X], {**ATTRS, "mode": "TFIDF", "weights": weights.tolist()})
    for at, column in enumerate(ATTRS["ngram_indexes"]):
        np.testing.assert_allclose(found[:, column], counts[:, column] * weights[at])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"mode": "BM25"}, "'BM25'"),
        ({"ngram_indexes": [0, 1]}, "2 columns do not fit 7 n-grams"),
        ({"ngram_indexes": [0, 1, 2, 3, 3, 5, 4]}, "two n-grams have one column"),
        ({"pool_strings": ["a"]}, "not both strings"),
        ({"ngram_counts": [0]}, "lengths of n-grams"),
        ({"ngram_counts": [0, 3]}, "not cut into n-grams"),
        ({"weights": [1.0]}, "1 weights"),
    ],
)
def test_what_does_not_fit_is_refused(more: dict[str, Any], said: str) -> None:
    assert said in refusal("TfIdfVectorizer", [X], {**ATTRS, **more}).reason
