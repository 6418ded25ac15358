"""Weights with zeros, of few values or of few bits, as pruning, clustering and quantising leave them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.compress.forms import mask_of

BLOCKS: Mapping[str, tuple[int, int]] = {
    "anywhere": (1, 1),
    "1x4": (4, 1),
    "1x16": (16, 1),
    "4x16": (16, 4),
    "vectors of 8": (8, 1),
    "vectors of 32": (32, 1),
    "vectors of 32 by 8": (32, 8),
}
"""Neighbouring results and inputs that are zero together."""
FORMS = (*BLOCKS, "2:4", "combined")
BITS = (1, 2, 4, 8)
"""Of the indices of weights that share values."""


def pruned(random: np.random.Generator, shape: tuple[int, ...], form: str, share: float) -> np.ndarray:
    """Float32 of a shape, results first, of which about a share is zero."""
    results, inputs = shape[0], int(np.prod(shape[1:]))
    weights = random.standard_normal((results, inputs), dtype=np.float32)
    if form == "dense":
        kept = np.ones(weights.shape, bool)
    elif form in ("2:4", "combined"):
        kept = mask_of(np.abs(weights), "2:4" if form == "2:4" else "combined", share)
    else:
        tall, wide = BLOCKS[form]
        blocks = random.random((-(-results // tall), -(-inputs // wide))) >= share
        kept = blocks.repeat(tall, 0).repeat(wide, 1)[:results, :inputs]
    return (weights * kept / np.float32(inputs**0.5)).reshape(shape)


def clustered(random: np.random.Generator, shape: tuple[int, ...], bits: int, by_result: bool) -> np.ndarray:
    """Float32 of a shape whose elements are one of 2^bits values, of the whole or of each result."""
    values = random.standard_normal((shape[0] if by_result else 1, 2**bits), dtype=np.float32)
    places = random.integers(0, 2**bits, (shape[0], int(np.prod(shape[1:]))))
    return np.take_along_axis(np.broadcast_to(values, (shape[0], 2**bits)), places, 1).reshape(shape)


def quantised(random: np.random.Generator, shape: tuple[int, int], bits: int, block: int, centred: bool) -> np.ndarray:
    """Float32 of [results, inputs], inputs in blocks with a scale each, and a zero point where they are not centred."""
    results, blocks = shape[0], -(-shape[1] // block)
    codes = random.integers(0, 1 << bits, (results, blocks, block))
    zeros = 1 << (bits - 1) if centred else random.integers(0, 1 << bits, (results, blocks, 1))
    scales = (0.5 + random.random((results, blocks, 1), dtype=np.float32)) / np.float32((1 << bits) * shape[1] ** 0.5)
    return np.asarray((codes - zeros) * scales, np.float32).reshape(results, -1)[:, : shape[1]]
