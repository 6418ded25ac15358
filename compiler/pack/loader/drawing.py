"""Random inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.pack.loader.specs import _SMALL, Array, TensorSpec


def _codes(spec: TensorSpec, random: np.random.Generator) -> Array:
    """Elements of a small type, as their codes."""
    first, end, sign = _SMALL[spec.dtype]
    codes = np.asarray(random.integers(first, end, spec.shape))
    return np.asarray(np.where(random.integers(0, 2, spec.shape) & (codes != 0), codes | sign, codes)).astype(np.uint8)


def _in_range(spec: TensorSpec, ends: Sequence[float | None], random: np.random.Generator) -> Array:
    """Numbers between two ends, both included, None where there is no bound; whole ones where there are two."""
    low, high = ends
    if spec.dtype in _SMALL and "int" not in spec.dtype:
        return np.zeros(spec.shape, np.uint8)  # the code of 0, the one number that is known without a table
    if spec.dtype in _SMALL:
        _, codes, _ = _SMALL[spec.dtype]
        first, last = (-codes if low is None else math.ceil(low)), (codes if high is None else math.floor(high))
        return np.asarray(random.integers(first, last, spec.shape, endpoint=True) % codes).astype(np.uint8)
    if spec.dtype != "bfloat16" and spec.numpy.kind != "f":
        first, last = _whole_ends(spec, low, high)
        return np.asarray(random.integers(first, last, spec.shape, endpoint=True)).astype(spec.numpy)
    if low is None or high is None:
        away = np.abs(np.asarray(random.standard_normal(spec.shape))) + 0.1
        drawn = away + low if low is not None else (high or 0) - away
    elif math.ceil(low) < math.floor(high):
        drawn = np.asarray(random.integers(math.ceil(low), math.floor(high), spec.shape, endpoint=True))
    else:
        drawn = np.asarray(random.uniform(low, high, spec.shape))
    if spec.dtype == "bfloat16":
        return (drawn.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return drawn.astype(spec.numpy)


def _whole_ends(spec: TensorSpec, low: float | None, high: float | None) -> tuple[int, int]:
    """The least and the greatest integer; a byte's worth of them, not negative if possible, where an end is missing."""
    most = 1 if spec.dtype == "bool" else int(np.iinfo(spec.numpy).max)
    if low is None:
        low = 0 if high is None or high >= 0 else high - 255
    if high is None:
        low = max(low, 0)
        high = max(low, 0) + 255
    return math.ceil(low), math.floor(min(high, most, 2**63 - 1))
