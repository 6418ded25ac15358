"""What a decoder means, in float64 numpy and written for itself: no graph, no cache, all tokens of a text at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.generate.shapes import NEAR_BASE
from bench.generate.weights import Parts

Array = NDArray[np.float64]


def reference_logits(parts: Parts, ids: Sequence[int], first: int = 0) -> Array:
    """[tokens - first, words]: of each token from `first` on the logits of the one that follows it.

    The same codes as the model's, without a rounding; the embeddings and norms are those in fp32. Every token sees
    itself and those before it, so that the logits of a text's tokens are those of a decoder that was given them one
    after another.
    """
    shape = parts.shape
    turns = {is_near: _turns(parts, len(ids), NEAR_BASE if is_near else shape.base) for is_near in (False, True)}
    # The factor of embeddings is in fp32, and its rounding is part of what the model computes.
    state = parts.table[np.asarray(ids)].astype(np.float64) * float(np.float32(shape.scale))
    for at in range(shape.layers):
        own = f"blk.{at}."
        attended = _attended(parts, at, _normed(parts, state, own + "attn_norm"), turns[shape.is_near(at)])
        state = state + (_normed(parts, attended, own + "post_attention_norm") if shape.normed_sums else attended)
        normed = _normed(parts, state, own + "ffn_norm")
        gate = normed @ parts.matrices[own + "ffn_gate"].values().T
        active = _gelu(gate) if shape.gelu else gate / (1 + np.exp(-gate))
        wide = active * (normed @ parts.matrices[own + "ffn_up"].values().T)
        down = wide @ parts.matrices[own + "ffn_down"].values().T
        state = state + (_normed(parts, down, own + "post_ffw_norm") if shape.normed_sums else down)
    found: Array = _normed(parts, state[first:], "output_norm") @ parts.matrices["output"].values().T
    return found


def _turns(parts: Parts, count: int, base: float) -> tuple[Array, Array]:
    """Cosines and sines, as the model's tables have them in fp32."""
    half = parts.shape.head_width // 2
    angles = np.arange(count)[:, None] * base ** (-np.arange(half) / half)
    return np.cos(angles).astype(np.float32).astype(np.float64), np.sin(angles).astype(np.float32).astype(np.float64)


def _gelu(state: Array) -> Array:
    found: Array = 0.5 * state * (1 + np.tanh((2 / np.pi) ** 0.5 * (state + 0.044715 * state**3)))
    return found


def _normed(parts: Parts, state: Array, name: str) -> Array:
    mean = np.mean(state * state, -1, keepdims=True)
    found: Array = state / np.sqrt(mean + parts.shape.epsilon) * parts.vectors[name].astype(np.float64)
    return found


def _attended(parts: Parts, layer: int, normed: Array, turns: tuple[Array, Array]) -> Array:
    shape, count, own = parts.shape, len(normed), f"blk.{layer}."
    q, k, v = (
        (normed @ parts.matrices[own + f"attn_{part}"].values().T).reshape(count, -1, shape.head_width)
        for part in "qkv"
    )
    if shape.normed_heads:
        q, k = _normed(parts, q, own + "attn_q_norm"), _normed(parts, k, own + "attn_k_norm")
    q, k = _turned(q, turns), _turned(k, turns)
    mixed = np.empty_like(q)
    unseen = np.triu(np.ones((count, count), bool), 1)
    if shape.is_near(layer):
        unseen |= np.tri(count, count, -shape.window, dtype=bool)
    groups = shape.heads // shape.shared
    for head in range(shape.heads):
        scores = q[:, head] @ k[:, head // groups].T * shape.head_width**-0.5
        scores[unseen] = -np.inf
        shares = np.exp(scores - scores.max(1, keepdims=True))
        mixed[:, head] = shares / shares.sum(1, keepdims=True) @ v[:, head // groups]
    found: Array = mixed.reshape(count, -1) @ parts.matrices[own + "attn_output"].values().T
    return found


def _turned(state: Array, turns: tuple[Array, Array]) -> Array:
    half = state.shape[-1] // 2
    cos, sin = (turn[:, None] for turn in turns)
    first, second = state[..., :half], state[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)
