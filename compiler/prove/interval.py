"""Intervals of numbers: what the elements of a tensor may be, or what a reader demands of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from compiler.ir import arithmetic
from compiler.ir.small import wide
from compiler.ir.tensor import DType

SHORT_BITS = 16
"""Integers up to this width may be anything that they can hold; wider ones count, index or mask, and have no bounds
until a reader states some."""


@dataclass(frozen=True)
class Interval:
    """All numbers from `low` to `high`, both included; whole bounds are ints, so that they stay exact.

    Without bounds an end is infinite; without any number `low` is above `high`.
    """

    low: float
    high: float

    @property
    def is_empty(self) -> bool:
        """Whether no number is in it."""
        return self.low > self.high

    @property
    def is_finite(self) -> bool:
        """Whether both ends are finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def is_one(self) -> bool:
        """Whether it holds a single number."""
        return self.low == self.high

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """None for an end without a bound."""
        return self.low if self.low > -math.inf else None, self.high if self.high < math.inf else None

    def __contains__(self, other: Interval) -> bool:
        return self.low <= other.low and other.high <= self.high

    def meet(self, other: Interval) -> Interval:
        """What both hold."""
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __mul__(self, other: Interval) -> Interval:
        ends = [_times(one, two) for one in (self.low, self.high) for two in (other.low, other.high)]
        return Interval(min(ends), max(ends))

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"


EVERYTHING = Interval(-math.inf, math.inf)
TRUTH = Interval(0, 1)


def hull(intervals: Iterable[Interval]) -> Interval:
    """The least interval that holds all of them, of which there is one at least."""
    every = list(intervals)
    return Interval(min(one.low for one in every), max(one.high for one in every))


def whole(dtype: DType) -> Interval:
    """What elements of a type may be where nothing else is known."""
    if dtype is DType.BOOL:
        return TRUTH
    if dtype.is_float:
        return EVERYTHING
    least, greatest = arithmetic.bounds(dtype)
    if 8 * dtype.bytes <= SHORT_BITS:
        return Interval(least, greatest)
    return Interval(0, math.inf) if least == 0 else EVERYTHING


def held(interval: Interval, dtype: DType) -> Interval:
    """What becomes of results in a type: integers past its limits wrap around, and may be anything."""
    if dtype.is_float:
        return interval
    if dtype is DType.BOOL:
        return interval if interval in TRUTH else TRUTH
    least, greatest = arithmetic.bounds(dtype)
    fits = (interval.low >= least or interval.low == -math.inf) and (
        interval.high <= greatest or interval.high == math.inf
    )
    return interval if fits and interval in whole(dtype) else whole(dtype)


def of_array(array: np.ndarray) -> Interval:
    """What a constant holds; everything where it has a NaN, zero where it has no elements."""
    if not array.size:
        return Interval(0, 0)
    if DType.of(array.dtype).is_small:
        array = array.astype(wide(DType.of(array.dtype)).numpy)
    with np.errstate(all="ignore"):
        low, high = array.min().item(), array.max().item()
    if low != low or high != high:
        return EVERYTHING
    return Interval(low, high) if array.dtype.kind not in "b" else Interval(int(low), int(high))


def rounded_up(number: float) -> float:
    """The next whole number, an int where it is finite."""
    return math.ceil(number) if math.isfinite(number) else number


def rounded_down(number: float) -> float:
    """The whole number before, an int where it is finite."""
    return math.floor(number) if math.isfinite(number) else number


def truncated(number: float) -> float:
    """The next whole number towards zero, an int where it is finite."""
    return math.trunc(number) if math.isfinite(number) else number


def _times(one: float, two: float) -> float:
    """A product in which zero times infinity is zero: bounds are never reached there."""
    return 0 if 0 in (one, two) else one * two
