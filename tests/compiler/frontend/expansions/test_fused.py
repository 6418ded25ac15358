"""Operators that ONNX Runtime's optimiser writes, node by node beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.compiler.frontend.one_node import agree, refusal

MS = "com.microsoft"
Arrays = list[np.ndarray | None]


def normal(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def ints(high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng((5, *shape)).integers(0, high, shape).astype(np.int32)


X, ROW = normal(2, 5, 8), normal(8)
GAMMA, BETA = 1 + 0.1 * normal(8, seed=4), normal(8, seed=5)
IMAGE, FILTERS = normal(1, 4, 6, 6), normal(3, 4, 3, 3)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
SPLIT, BIAS = normal(8, 24), normal(24)
PAST = normal(2, 2, 2, 3, 4)
COS, SIN = np.cos(normal(9, 2)), np.sin(normal(9, 2))

CASES: tuple[tuple[str, Arrays, Mapping[str, Any], int], ...] = (
    ("FusedMatMul", [normal(2, 5, 3), normal(2, 4, 5)], {"transA": 1, "transB": 1, "alpha": 0.25}, 1),
    ("TransposeMatMul", [normal(3, 5), normal(4, 5)], {"transB": 1}, 1),
    ("FusedGemm", [normal(3, 5), normal(5, 4), normal(4)], {"activation": "LeakyRelu", "activation_alpha": 0.3}, 1),
    ("FusedConv", [IMAGE, FILTERS, normal(3)], {"activation": "Relu", "pads": [1, 1, 1, 1]}, 1),
    ("FusedConv", [IMAGE, FILTERS, normal(3)], {"activation": "Clip", "activation_params": [-0.5, 0.5]}, 1),
    ("FusedConv", [IMAGE, FILTERS], {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}, 1),
    ("FusedConv", [IMAGE, FILTERS, normal(3), normal(1, 3, 4, 4)], {"activation": "Relu"}, 1),
    ("BiasGelu", [X, ROW], {}, 1),
    ("FastGelu", [X, ROW], {}, 1),
    ("FastGelu", [X], {}, 1),
    ("QuickGelu", [X], {"alpha": 1.5}, 1),
    ("SkipLayerNormalization", [X, normal(2, 5, 8, seed=9), GAMMA, BETA, ROW], {"epsilon": 1e-5}, 1),
    ("SkipLayerNormalization", [X, normal(1, 5, 8), GAMMA, BETA], {}, 1),
    ("SkipSimplifiedLayerNormalization", [X, normal(2, 5, 8, seed=9), GAMMA], {"epsilon": 1e-6}, 1),
    ("Attention", [X, SPLIT, BIAS], {"num_heads": 2}, 1),
    ("Attention", [X, SPLIT, BIAS, MASK], {"num_heads": 2}, 1),
    ("Attention", [X, SPLIT, BIAS, np.array([3, 5], np.int32)], {"num_heads": 2, "scale": 0.3}, 1),
    ("Attention", [X, SPLIT, BIAS, None, PAST], {"num_heads": 2, "unidirectional": 1}, 2),
    ("Attention", [X, SPLIT, BIAS, None, None, normal(1, 2, 5, 5)], {"num_heads": 2}, 1),
    ("Attention", [X, normal(8, 20), normal(20)], {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]}, 1),
    ("MultiHeadAttention", [X, normal(2, 6, 8), normal(2, 6, 8, seed=7), BIAS], {"num_heads": 2}, 1),
    ("MultiHeadAttention", [X, normal(2, 5, 8, seed=6), normal(2, 5, 8, seed=7), None, MASK], {"num_heads": 4}, 1),
    ("MultiHeadAttention", [X, normal(2, 2, 6, 4), normal(2, 2, 6, 4, seed=7)], {"num_heads": 2}, 1),
    (
        "MultiHeadAttention",
        [X, X + 1, X - 1, None, None, normal(2, 2, 5, 8), PAST[0], PAST[1]],
        {"num_heads": 2, "unidirectional": 1},
        3,
    ),
    ("RotaryEmbedding", [normal(2, 5, 8), np.array([3]), COS, SIN], {}, 1),
    ("RotaryEmbedding", [normal(2, 2, 5, 4), np.arange(10).reshape(2, 5) % 9, COS, SIN], {"interleaved": 1}, 1),
    ("NhwcMaxPool", [ints(200, 1, 6, 6, 3).astype(np.uint8)], {"kernel_shape": [2, 2], "strides": [2, 2]}, 1),
)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case[0] for case in CASES])
def test_it_is_what_onnxruntime_computes(number: int) -> None:
    op, arrays, attrs, outputs = CASES[number]
    agree(op, arrays, attrs, outputs, MS)


def test_embeddings_are_added_and_normalised() -> None:
    tables: Arrays = [normal(11, 8), normal(7, 8), normal(2, 8), GAMMA, BETA]
    ids, segments = ints(11, 2, 5), ints(2, 2, 5)
    agree("EmbedLayerNormalization", [ids, segments, *tables, MASK], {"epsilon": 1e-5}, 2, MS)
    agree("EmbedLayerNormalization", [ids, None, tables[0], tables[1], None, GAMMA, BETA], {}, 2, MS)
    places = np.arange(4, 9, dtype=np.int32)[None].repeat(2, 0) % 7
    agree("EmbedLayerNormalization", [ids, segments, *tables, None, places], {}, 2, MS)


def test_the_simplified_norm_has_no_domain() -> None:
    agree("SimplifiedLayerNormalization", [X, GAMMA], {"axis": -1, "epsilon": 1e-6}, opset=17)


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "reason"),
    [
        ("FusedConv", [IMAGE, FILTERS], {"activation": "Mystery"}, "Mystery"),
        ("Attention", [X, SPLIT, BIAS], {"num_heads": 3}, "24 columns do not make"),
        ("Attention", [X, SPLIT, BIAS, np.zeros(4, np.int32)], {"num_heads": 2}, "no length for each row"),
        ("FusedMatMul", [normal(2, 3), normal(3, 2)], {"transBatchA": 1}, "exchanges batch axes"),
        ("MultiHeadAttention", [normal(2, 5, 2, 3, 4)], {"num_heads": 2}, "lie in one tensor"),
    ],
)
def test_what_is_not_understood_is_refused(op: str, arrays: Arrays, attrs: Mapping[str, Any], reason: str) -> None:
    assert reason in refusal(op, arrays, attrs, 1, MS).reason
