"""Random filters that keep a signal at its size."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from bench.zoo.moments import Moments

CENTRED_FROM = 16
"""Filters of at least this many taps are centred; a depthwise 3x3, centred, would be a mere edge detector."""


def he_filters(
    rng: np.random.Generator, shape: tuple[int, ...], gain: float, x: Moments
) -> tuple[npt.NDArray[np.float32], float]:
    """Filters [K, C/groups, *kernel] from N(0, gain / fan_in), He-normal at gain 2, and the power of what they give.

    Large ones are centred (weight standardisation, Qiao et al. 2019, arXiv 1903.10520) and rescaled by what that takes
    away: otherwise the positive mean of ReLU outputs adds up and drowns, layer by layer, what depends on the image.
    """
    fan_in = math.prod(shape[1:])
    array = rng.standard_normal(shape, dtype=np.float32)
    power = x.power
    if fan_in >= CENTRED_FROM:
        # The mean in double precision: its rounding to single is then the same whatever the vector width.
        taps = tuple(range(1, len(shape)))
        array -= array.mean(axis=taps, keepdims=True, dtype=np.float64).astype(np.float32)
        gain *= x.power / max(x.var, 0.1 * x.power)
        power = x.var
    array *= np.float32(math.sqrt(gain / fan_in))
    return array, gain * power
