"""BERT base (Devlin et al. 2018, arXiv 1810.04805) and GPT-2 small (Radford et al. 2019)."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from bench.zoo.attention import attend, heads_of, scaled_scores
from bench.zoo.builder import GraphBuilder, Value

BERT_VOCABULARY = 30522
GPT2_VOCABULARY = 50257
POSITIONS = 512
LOWEST = float(np.finfo(np.float32).min)


def bert_base(
    g: GraphBuilder, *, seq: int = 128, blocks: int = 12, width: int = 768, vocabulary: int = BERT_VOCABULARY
) -> None:
    """Post-norm encoder with an attention mask; outputs the last hidden state and the pooled first token."""
    ids = g.input("input_ids", (1, seq), TensorProto.INT64)
    mask = g.input("attention_mask", (1, seq), TensorProto.INT64)
    types = g.input("token_type_ids", (1, seq), TensorProto.INT64)
    words = g.gather(g.normal((vocabulary, width), 1.0, "words"), ids)
    kinds = g.gather(g.normal((2, width), 0.5, "token_types"), types)
    places = g.slice(g.normal((1, max(POSITIONS, seq), width), 0.5, "positions"), (1,), (0,), (seq,))
    x = g.layer_norm(g.add(g.add(words, kinds), places), 1e-12)
    bias = _mask_bias(g, mask)
    for _ in range(blocks):
        x = g.layer_norm(g.add(_bert_attention(g, x, bias, width // 64), x), 1e-12)
        hidden = g.gelu(g.dense(x, 4 * width))
        x = g.layer_norm(g.add(g.dense(hidden, width, gain=2.0), x), 1e-12)
    g.output("last_hidden_state", x)
    first = g.gather_axis(x, 0, axis=1)
    g.output("pooler_output", g.tanh(g.gemm(first, width)))


def gpt2_small(
    g: GraphBuilder, *, seq: int = 128, blocks: int = 12, width: int = 768, vocabulary: int = GPT2_VOCABULARY
) -> None:
    """Pre-norm decoder over a whole prompt, no cache; the embedding table is the output projection too."""
    ids = g.input("input_ids", (1, seq), TensorProto.INT64)
    table = g.normal((vocabulary, width), 1.0, "words")
    x = g.add(g.gather(table, ids), g.normal((1, seq, width), 0.3, "positions"))
    causal = g.constant(np.tril(np.ones((1, 1, seq, seq), np.bool_)), "causal")
    lowest = g.scalar(LOWEST, "lowest")
    for _ in range(blocks):
        x = g.add(x, _gpt2_attention(g, g.layer_norm(x), causal, lowest, width // 64))
        hidden = g.gelu_tanh(_conv1d(g, g.layer_norm(x), 4 * width))
        x = g.add(x, _conv1d(g, hidden, width, gain=2.0))
    x = g.layer_norm(x)
    g.output("logits", g.matmul(g.scale(x, width**-0.5), g.transpose(table, (1, 0))))


def _mask_bias(g: GraphBuilder, mask: Value) -> Value:
    """[1, T] of 0 and 1 -> [1, 1, 1, T] of the lowest float and 0."""
    wide = g.cast(g.unsqueeze(g.unsqueeze(mask, 1), 2), TensorProto.FLOAT)
    hidden = g.node("Sub", [g.scalar(1.0), wide], wide.shape)
    return g.node("Mul", [hidden, g.scalar(LOWEST)], wide.shape)


def _bert_attention(g: GraphBuilder, x: Value, bias: Value, heads: int) -> Value:
    """Three separate projections."""
    width = x.shape[-1]
    queries = heads_of(g, g.dense(x, width), heads)
    keys = heads_of(g, g.dense(x, width), heads, for_keys=True)
    values = heads_of(g, g.dense(x, width), heads)
    scores = g.add(scaled_scores(g, queries, keys), bias)
    return g.dense(attend(g, scores, values), width, gain=4.0)


def _gpt2_attention(g: GraphBuilder, x: Value, causal: Value, lowest: Value, heads: int) -> Value:
    """One joint projection split along the last axis; a causal Where."""
    width = x.shape[-1]
    q, k, v = g.split(_conv1d(g, x, 3 * width), 3, axis=-1)
    scores = scaled_scores(g, heads_of(g, q, heads), heads_of(g, k, heads, for_keys=True))
    scores = g.node("Where", [causal, scores, lowest], scores.shape)
    return _conv1d(g, attend(g, scores, heads_of(g, v, heads)), width, gain=4.0)


def _conv1d(g: GraphBuilder, x: Value, features: int, gain: float = 1.0) -> Value:
    """GPT-2's linear layer: Reshape to two axes, Gemm with an untransposed weight, Reshape back."""
    batch, tokens, width = x.shape
    flat = g.gemm(g.reshape(x, (batch * tokens, width)), features, gain, transposed=False)
    return g.reshape(flat, (batch, tokens, features))
