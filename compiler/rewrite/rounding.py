"""Arithmetic on constants, in float64, rounded once to the type they are kept in."""

from __future__ import annotations

import numpy as np

from compiler.ir.tensor import DType
from compiler.rewrite.view import No

TOLERANCE = 2.0**-21
"""Relative distance within which a constant of a composed form is taken for the number it stands for: four units in the
last place of a float32, for exporters compute some of them in float32."""


def rounded(array: np.ndarray, dtype: DType) -> np.ndarray | No:
    """A float64 result in `dtype`; No if it does not fit, since the program would hold an infinity or a NaN."""
    with np.errstate(all="ignore"):
        result = np.asarray(array, np.float64).astype(dtype.numpy)
    if not bool(np.isfinite(result.astype(np.float64) if dtype is DType.BF16 or dtype.is_small else result).all()):
        return No(f"a constant would not be finite in {dtype}")
    return result


def wide(array: np.ndarray) -> np.ndarray:
    """The array in float64."""
    return array.astype(np.float64)


def near(number: float | None, wanted: float) -> bool:
    """Whether a constant stands for `wanted`."""
    return number is not None and abs(number - wanted) <= TOLERANCE * abs(wanted)
