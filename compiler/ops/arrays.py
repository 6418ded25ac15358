"""What references ask of arrays that may be numpy's or another module's.

References call numpy's functions. Of the arrays of a module that follows numpy's protocols (NEP 13 and 18), CuPy for
one, numpy has these functions carried out by that module, so that a reference runs where its operands lie. What makes
an array out of nothing names one of the operands: `np.zeros_like(x, shape=...)`, `np.arange(n, like=x)`. What a module
lacks it refuses, and whoever evaluates the reference gives it numpy's arrays instead (`compiler.prove.reference`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def is_numpy(array: object) -> bool:
    """Whether an array is numpy's own."""
    return isinstance(array, np.ndarray)


def as_array(value: Any) -> np.ndarray:
    """An array of any module as it is; a number, which numpy makes of an array without axes, as numpy's array."""
    found: np.ndarray = value if hasattr(value, "__array_function__") else np.asarray(value)
    return found


def alike(array: np.ndarray, like: np.ndarray) -> np.ndarray:
    """One of numpy's arrays, as an array of the module of `like`."""
    return np.asarray(array, like=like)


def largest(x: np.ndarray, axis: int | tuple[int, ...], of_none: float) -> np.ndarray:
    """The largest elements along axes, which stay with one element; `of_none` where there are no elements."""
    return as_array(np.max(x, axis=axis, keepdims=True)) if _count(x, axis) else _kept(x, axis, of_none)


def smallest(x: np.ndarray, axis: int | tuple[int, ...], of_none: float) -> np.ndarray:
    """As `largest`."""
    return as_array(np.min(x, axis=axis, keepdims=True)) if _count(x, axis) else _kept(x, axis, of_none)


def checked_indices(indices: np.ndarray, extent: int) -> np.ndarray:
    """Indices along an axis of `extent`, negative ones from its end. Raises IndexError where one lies outside.

    numpy does so itself; other modules read the element that lies so far around.
    """
    if indices.size and not is_numpy(indices):
        for index in (int(indices.min()), int(indices.max())):
            if not -extent <= index < extent:
                raise IndexError(f"index {index} is out of bounds for an axis with size {extent}")
    return indices


def _axes(x: np.ndarray, axis: int | tuple[int, ...]) -> list[int]:
    return [one % x.ndim for one in ((axis,) if isinstance(axis, int) else axis)]


def _count(x: np.ndarray, axis: int | tuple[int, ...]) -> int:
    return math.prod(x.shape[one] for one in _axes(x, axis))


def _kept(x: np.ndarray, axis: int | tuple[int, ...], value: float) -> np.ndarray:
    over = _axes(x, axis)
    return np.full_like(x, value, shape=tuple(1 if place in over else extent for place, extent in enumerate(x.shape)))
