"""What the samples say of a layer's inputs: the Gram matrix X X^T, half the Hessian of its squared output error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from compiler.compress import recurrent
from compiler.compress.layers import Layer
from compiler.ops.window import windows

MOST_POSITIONS = 4096
"""Of one sample, at most: equally spaced ones of all."""


def inputs_of(layer: Layer, x: np.ndarray) -> np.ndarray:
    """The columns that a layer's weights are multiplied by: float64[positions, products], in the order of `rows`."""
    if layer.node.op_type != "Conv":
        return _thinned(x.reshape(-1, x.shape[-1]).astype(np.float64))
    placed = windows(layer.inner, x.shape[2:], layer.weights.shape[2:])
    rank = len(placed)
    padded = np.pad(x, ((0, 0), (0, 0), *((max(one.before, 0), max(one.after, 0)) for one in placed)))
    strides, dilations = ([getattr(one, name) for one in placed] for name in ("stride", "dilation"))
    wide = tuple(one.reach for one in placed)
    axes = tuple(range(2, 2 + rank))
    views = np.lib.stride_tricks.sliding_window_view(padded, wide, axis=axes)
    outputs = zip(placed, strides, strict=True)
    taken = (slice(None, (one.outputs - 1) * step + 1, step) for one, step in outputs)
    views = views[(slice(None), slice(None), *taken)]
    inner = (slice(None, None, step) for step in dilations)
    views = views[(slice(None),) * (2 + rank) + tuple(inner)]
    # batch, channels, positions, taps -> batch, positions, taps, channels
    order = np.moveaxis(views, 1, -1)
    places = np.indices((order.shape[0], *order.shape[1 : 1 + rank])).reshape(1 + rank, -1)
    step = max(1, -(-places.shape[1] // MOST_POSITIONS))
    picked = order[tuple(places[:, ::step])]
    return np.asarray(picked.reshape(len(picked), -1), np.float64)


def _thinned(columns: np.ndarray) -> np.ndarray:
    return columns[:: max(1, -(-len(columns) // MOST_POSITIONS))]


def gram(layer: Layer, inputs: list[np.ndarray]) -> np.ndarray:
    """X X^T over all samples' inputs, by the number of positions: float64[products, products]."""
    return _mean(layer, (inputs_of(layer, x) for x in inputs))


def grams(layer: Layer, around: Iterable[tuple[Sequence[np.ndarray | None], np.ndarray]]) -> list[np.ndarray]:
    """The same for each direction of a recurrent layer, by what it reads and makes on each sample."""
    each = [[*recurrent.inputs_of(layer.inner, read, y)] for read, y in around]
    return [_mean(layer, map(_thinned, columns)) for columns in zip(*each, strict=True)]


def _mean(layer: Layer, each: Iterable[np.ndarray]) -> np.ndarray:
    columns = layer.rows(layer.weights).shape[1]
    total = np.zeros((columns, columns))
    count = 0
    for found in each:
        total += found.T @ found
        count += len(found)
    return total / max(count, 1)
