"""Multi-head attention as exporters write it: MatMul, Add, Reshape, Transpose, Softmax."""

from __future__ import annotations

import math

from bench.zoo.builder import GraphBuilder, Value
from bench.zoo.moments import Moments


def heads_of(g: GraphBuilder, x: Value, heads: int, for_keys: bool = False) -> Value:
    """[1, T, D] -> [1, heads, T, D / heads], or its last two axes exchanged `for_keys`."""
    batch, tokens, width = x.shape
    split = g.reshape(x, (batch, tokens, heads, width // heads))
    return g.transpose(split, (0, 2, 3, 1) if for_keys else (0, 2, 1, 3))


def attend(g: GraphBuilder, scores: Value, values: Value) -> Value:
    """Softmax of [1, heads, T, T] times [1, heads, T, D / heads], put back to [1, T, D]."""
    mixed = g.matmul(g.softmax(scores), values, Moments(0.0, 0.1))
    batch, heads, tokens, width = mixed.shape
    return g.reshape(g.transpose(mixed, (0, 2, 1, 3)), (batch, tokens, heads * width))


def scaled_scores(g: GraphBuilder, queries: Value, keys: Value) -> Value:
    """Q K^T / sqrt(d), the division as a Div node by a constant."""
    scores = g.matmul(queries, keys)
    return g.node("Div", [scores, g.scalar(math.sqrt(queries.shape[-1]))], scores.shape)
