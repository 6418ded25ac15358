"""Mean and variance of a tensor's elements, propagated through layers as if the elements were independent Gaussians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy.typing as npt


class Moments(NamedTuple):
    """Mean and variance over all elements of a tensor."""

    mean: float
    var: float

    @property
    def power(self) -> float:
        """Mean of the squares."""
        return self.mean**2 + self.var


UNIT = Moments(0.0, 1.0)
GATE = Moments(0.5, 0.04)
"""Of a sigmoid-like gate over inputs near 0."""
AFTER_NORM = Moments(0.0, 1.15)
"""Of a batch norm whose scale is U(0.5, 1.5) and whose shift and centring error are N(0, 0.2^2)."""


def of_array(array: npt.NDArray[Any]) -> Moments:
    """Measured moments; (0, 0) of an empty array."""
    return Moments(float(array.mean()), float(array.var())) if array.size else Moments(0.0, 0.0)


def relu(x: Moments) -> Moments:
    """Of max(z, 0) for z ~ N(mean, var), in closed form."""
    return leaky_relu(x, 0.0)


def leaky_relu(x: Moments, alpha: float) -> Moments:
    """Of z or alpha z by sign for z ~ N(mean, var), in closed form."""
    std = math.sqrt(max(x.var, 1e-12))
    t = x.mean / std
    above = 0.5 * (1.0 + math.erf(t / math.sqrt(2.0)))
    density = math.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)
    mean_above = x.mean * above + std * density
    power_above = x.power * above + x.mean * std * density
    mean = mean_above + alpha * (x.mean - mean_above)
    power = power_above + alpha**2 * (x.power - power_above)
    return Moments(mean, max(power - mean**2, 1e-12))


def swish(x: Moments) -> Moments:
    """Of z sigmoid(z), GELU and their like: a ReLU whose values around zero are shrunk."""
    rectified = relu(x)
    return Moments(0.6 * rectified.mean, 0.85 * rectified.var)


def add(a: Moments, b: Moments) -> Moments:
    """Of the sum of independent values."""
    return Moments(a.mean + b.mean, a.var + b.var)


def mul(a: Moments, b: Moments) -> Moments:
    """Of the product of independent values."""
    mean = a.mean * b.mean
    return Moments(mean, max(a.power * b.power - mean**2, 1e-12))


def max_pool(x: Moments) -> Moments:
    """Of the largest of a 3x3 window of partly correlated neighbours."""
    return Moments(x.mean + 0.9 * math.sqrt(x.var), 0.7 * x.var)


def avg_pool(x: Moments, kernel: int) -> Moments:
    """Of the mean of a kernel x kernel window: half of the variance is between channels and survives."""
    return Moments(x.mean, x.var * (0.5 + 0.5 / kernel**2))


def mixture(parts: Sequence[tuple[int, Moments]]) -> Moments:
    """Of tensors laid side by side, each weighted by its size."""
    total = sum(size for size, _ in parts)
    mean = sum(size * m.mean for size, m in parts) / total
    power = sum(size * m.power for size, m in parts) / total
    return Moments(mean, max(power - mean**2, 1e-12))
