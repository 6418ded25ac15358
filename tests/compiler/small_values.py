"""Numbers at which conversions to and from small types may go wrong."""

from __future__ import annotations

import numpy as np

from compiler.ir.arithmetic import bounds
from compiler.ir.small import BITS, FLOATS
from compiler.ir.tensor import DType

SOURCES = (
    *(DType.BOOL, DType.I8, DType.I16, DType.I32, DType.I64, DType.U8, DType.U16, DType.U32, DType.U64),
    *(DType.F16, DType.BF16, DType.F32, DType.F64),
)
"""Types that are computed in."""


def codes(dtype: DType) -> np.ndarray:
    """Every element of a small type."""
    return np.arange(1 << BITS[dtype], dtype=np.uint8).view(dtype.numpy)


def around(target: DType) -> np.ndarray:
    """Floats, in float64, that lie on the elements of a small float, in the middle between two, and just beside."""
    held = np.unique(codes(target).astype(np.float32).astype(np.float64))
    held = held[np.isfinite(held)]
    greatest = held[-1]
    beyond = greatest * np.array([1.0001, 1.03125, 1.0625, 1.125, 1.25, 1.5, 2.0, 1e6])
    points = np.concatenate([held, (held[1:] + held[:-1]) / 2, beyond, -beyond, [held[held > 0][0] / 2]])
    single = points.astype(np.float32)
    near = [np.nextafter(single, np.float32(end)).astype(np.float64) for end in (-np.inf, np.inf)]
    closer = [np.nextafter(points, end) for end in (-np.inf, np.inf)]
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, -3e38])
    return np.concatenate([points, *near, *closer, special])


def given(source: DType, target: DType) -> np.ndarray:
    """Elements of a type that is computed in, to convert to a small one: those that the conversion is defined for."""
    if source is DType.BOOL:
        return np.array([False, True])
    if source.is_integer:
        low, high = bounds(source)
        some = [*range(-20, 300), 448, 464, 465, 57344, 61439, 61440, 61441, 2**24 + 1, 2**30 + 2**29 - 1, low, high]
        return np.array([number for number in some if low <= number <= high], source.numpy)
    if target in FLOATS:
        with np.errstate(all="ignore"):
            return around(target).astype(source.numpy)
    low, high = bounds(target)
    whole = np.arange(low, high + 1, dtype=np.float64)
    return np.concatenate([whole, whole + 0.25, whole - 0.25, whole + 0.9375, [-0.0]]).astype(source.numpy)


def beyond_integers(source: DType) -> np.ndarray:
    """Floats that no small integer holds: only saturation gives them a meaning."""
    with np.errstate(all="ignore"):
        return np.array([1e4, -1e4, 15.5, 16, -8.5, -9, np.inf, -np.inf, np.nan, 3e38], np.float64).astype(source.numpy)


def read_as(source: DType) -> tuple[DType, ...]:
    """Types to which every element of a small one converts."""
    floats = (DType.F16, DType.BF16, DType.F32, DType.F64, DType.BOOL)
    return floats if source in FLOATS else (*floats, DType.I8, DType.I32, DType.I64, DType.U8, DType.U64)


def same_bits(got: np.ndarray, want: np.ndarray) -> bool:
    """Whether two arrays hold the same elements, every bit of them; any NaN is one where there are many."""
    kind = DType.of(want.dtype)
    if kind.is_small or not kind.is_float:
        return np.array_equal(got.view(np.uint8), want.view(np.uint8))
    alike = np.isnan(got) & np.isnan(want)
    return bool(np.all(alike | ((got == want) & (np.signbit(got) == np.signbit(want)))))
