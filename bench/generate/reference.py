"""What a decoder means, in float64 numpy and written for itself: no graph, no cache, all tokens of a text at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.generate.weights import Parts

Array = NDArray[np.float64]


def reference_logits(parts: Parts, ids: Sequence[int], first: int = 0) -> Array:
    """[tokens - first, words]: of each token from `first` on the logits of the one that follows it.

    The same codes as the model's, without a rounding; the embeddings and norms are those in fp32. Every token sees
    itself and those before it, so that the logits of a text's tokens are those of a decoder that was given them one
    after another.
    """
    shape = parts.shape
    count = len(ids)
    angles = np.arange(count)[:, None] * shape.base ** (-np.arange(shape.head_width // 2) / (shape.head_width // 2))
    # The model's tables are in fp32, and rounded angles are part of what it computes.
    turns = np.cos(angles).astype(np.float32).astype(np.float64), np.sin(angles).astype(np.float32).astype(np.float64)
    state = parts.table[np.asarray(ids)].astype(np.float64)
    for at in range(shape.layers):
        own = f"blk.{at}."
        state = state + _attended(parts, own, _normed(parts, state, own + "attn_norm"), turns)
        normed = _normed(parts, state, own + "ffn_norm")
        gate = normed @ parts.matrices[own + "ffn_gate"].values().T
        wide = gate / (1 + np.exp(-gate)) * (normed @ parts.matrices[own + "ffn_up"].values().T)
        state = state + wide @ parts.matrices[own + "ffn_down"].values().T
    found: Array = _normed(parts, state[first:], "output_norm") @ parts.matrices["output"].values().T
    return found


def _normed(parts: Parts, state: Array, name: str) -> Array:
    mean = np.mean(state * state, -1, keepdims=True)
    found: Array = state / np.sqrt(mean + parts.shape.epsilon) * parts.vectors[name].astype(np.float64)
    return found


def _attended(parts: Parts, own: str, normed: Array, turns: tuple[Array, Array]) -> Array:
    shape, count = parts.shape, len(normed)
    q, k, v = (
        (normed @ parts.matrices[own + f"attn_{part}"].values().T).reshape(count, -1, shape.head_width)
        for part in "qkv"
    )
    if shape.normed_heads:
        q, k = _normed(parts, q, own + "attn_q_norm"), _normed(parts, k, own + "attn_k_norm")
    q, k = _turned(q, turns), _turned(k, turns)
    mixed = np.empty_like(q)
    later = np.triu(np.ones((count, count), bool), 1)
    groups = shape.heads // shape.shared
    for head in range(shape.heads):
        scores = q[:, head] @ k[:, head // groups].T * shape.head_width**-0.5
        scores[later] = -np.inf
        shares = np.exp(scores - scores.max(1, keepdims=True))
        mixed[:, head] = shares / shares.sum(1, keepdims=True) @ v[:, head // groups]
    found: Array = mixed.reshape(count, -1) @ parts.matrices[own + "attn_output"].values().T
    return found


def _turned(state: Array, turns: tuple[Array, Array]) -> Array:
    half = state.shape[-1] // 2
    cos, sin = (turn[:, None] for turn in turns)
    first, second = state[..., :half], state[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)
