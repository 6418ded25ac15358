"""Numbers to bytes: scales and zero points, and what becomes of weights and biases.

An activation is `scale * (q - zero)`, one scale and zero point for the tensor; 0 is always exact, since padding and
Relu make it. A weight is `scale * q` with one scale for each output channel, q in -127 .. 127. A bias is
`scale_x * scale_w * q` in 32 bits, so that it is added to the sums of products as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEVELS = 255
LARGEST = 127
"""Of a weight: symmetric, so that a weight and its negative are equally exact."""
LARGEST_BIAS = 2**30
"""Of a bias, and of the sum of products beside it: both together fit into 32 bits."""
EXACT_BIAS = 2**24
"""What a bias of a channel without weights becomes: as exact as float32 has it."""
LEAST_SCALE = 2.0**-100
"""Products of two scales are still normal numbers of float32 near it; smaller ranges are taken for 0."""


@dataclass(frozen=True)
class Affine:
    """The scale (float32) and the zero point of a tensor of activations; `zero.dtype` is that of its bytes."""

    scale: np.float32
    zero: np.ndarray

    def rounded(self, array: np.ndarray) -> np.ndarray:
        """The values that the bytes of an array stand for, in float64."""
        limits = np.iinfo(self.zero.dtype)
        q = np.rint(array.astype(np.float32) / self.scale) + float(self.zero)
        return np.asarray((np.clip(q, limits.min, limits.max) - float(self.zero)) * np.float64(self.scale))


def affine(low: float, high: float, dtype: type[np.uint8] | type[np.int8]) -> Affine:
    """The scheme whose bytes reach from `low` to `high`, or to 0 where that lies outside; finite numbers.

    Of a tensor that is always 0 they reach to 1: its scale is part of that of a bias, which has to stay fine.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    least = np.iinfo(dtype).min
    scale = np.float32((high - low) / LEVELS)
    if scale < LEAST_SCALE:
        return Affine(np.float32(1 / LEVELS), np.asarray(0, dtype))
    zero = np.clip(np.rint(least - low / np.float64(scale)), least, least + LEVELS)
    return Affine(scale, np.asarray(zero, dtype))


def weight_scales(weights: np.ndarray, axis: int) -> np.ndarray:
    """For each index of `axis` the least scale that its weights fit in, in float32; 0 where all of them are 0."""
    others = tuple(at for at in range(weights.ndim) if at != axis)
    scales = (np.abs(weights).max(axis=others, initial=0.0) / np.float64(LARGEST)).astype(np.float32)
    return np.asarray(np.where(scales < LEAST_SCALE, 0, scales), np.float32)


def scales_beside_bias(scales: np.ndarray, x_scale: np.float32, bias: np.ndarray | None) -> np.ndarray:
    """The scales, widened where a bias would not fit into 32 bits, and found where a channel has no weights."""
    largest = np.zeros(len(scales)) if bias is None else np.abs(bias.astype(np.float64))
    exact = largest / (np.float64(x_scale) * EXACT_BIAS)
    alone = np.where(exact < LEAST_SCALE, 1.0, exact)
    widened = np.maximum(scales.astype(np.float64), largest / (np.float64(x_scale) * LARGEST_BIAS))
    return np.asarray(np.where(scales > 0, widened, alone), np.float32)


def quantised_weights(weights: np.ndarray, scales: np.ndarray, axis: int) -> np.ndarray:
    """round(weights / scale) in int8, half to even, as QuantizeLinear of float32 has it."""
    along = scales.reshape([-1 if at == axis else 1 for at in range(weights.ndim)])
    q = np.rint(weights.astype(np.float32) / along)
    return np.asarray(np.clip(q, -LARGEST, LARGEST), np.int8)


def dequantised_weights(weights: np.ndarray, axis: int) -> np.ndarray:
    """What the weights are worth after quantisation by `weight_scales`, in float64."""
    scales = weight_scales(weights, axis)
    scales = np.where(scales > 0, scales, np.float32(1))
    along = scales.reshape([-1 if at == axis else 1 for at in range(weights.ndim)]).astype(np.float64)
    return np.asarray(quantised_weights(weights, scales, axis) * along)


def quantised_bias(bias: np.ndarray, x_scale: np.float32, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bias in int32, and its scales: the products of the others in float32."""
    products = np.float32(x_scale) * scales.astype(np.float32)
    limits = np.iinfo(np.int32)
    q = np.clip(np.rint(bias.astype(np.float64) / products.astype(np.float64)), limits.min, limits.max)
    return q.astype(np.int32), products
