"""How TFLite's int8 operators round, in integers of numpy: the rules that its reference kernels share.

A real multiplier r is brought to 31 bits once: `quantised(r)` gives (m, s) with r = m 2^(s - 31), m rounded half up. An
accumulator x, in int32, is then multiplied by one of these rules:

double   (x << max(s, 0)) m / 2^31, half up in magnitude as gemmlowp has it, then >> max(-s, 0), half away from zero
single   (x m + 2^(30 - s)) >> (31 - s): one rounding, half up

Source: `MultiplyByQuantizedMultiplier` and `SaturatingRoundingDoublingHighMul` of TensorFlow Lite and gemmlowp, held
against LiteRT's reference kernels in `tests/compiler/accelerate/tflite/test_reference.py`. How Ethos-U itself rounds
was not compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LOW, HIGH = -128, 127


def quantised(real: Any) -> tuple[np.ndarray, np.ndarray]:
    """31-bit multipliers and shifts (int64) of real multipliers, of any shape, 0 or above."""
    mantissa, shift = np.frexp(np.asarray(real, np.float64))
    multiplier = np.floor(mantissa * 2.0**31 + 0.5).astype(np.int64)
    full = multiplier == 1 << 31
    multiplier, shift = np.where(full, multiplier // 2, multiplier), shift.astype(np.int64) + full
    lost = (shift < -31) | (multiplier == 0)
    return np.where(lost, 0, multiplier), np.where(lost, 0, shift)


def high_product(a: Any, b: Any) -> np.ndarray:
    """a b / 2^31, half away from zero but for a half below zero, which goes up."""
    product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    return np.where(nudged >= 0, nudged >> 31, -((-nudged) >> 31))


def shifted(x: np.ndarray, bits: Any) -> np.ndarray:
    """x / 2^bits, half away from zero."""
    mask = (np.int64(1) << np.asarray(bits, np.int64)) - 1
    return np.asarray((x >> bits) + ((x & mask) > (mask >> 1) + (x < 0)))


def scaled(x: Any, multiplier: Any, shift: Any) -> np.ndarray:
    """x times a multiplier of 31 bits, by the rule `double`."""
    left, right = np.maximum(shift, 0), np.maximum(np.negative(shift), 0)
    return shifted(high_product(np.asarray(x, np.int64) << left, multiplier), right)


def double(x: Any, real: Any) -> np.ndarray:
    """x times real multipliers that broadcast with it, by the rule `double`."""
    return scaled(x, *quantised(real))


def single(x: Any, real: Any) -> np.ndarray:
    """x times real multipliers that broadcast with it, by the rule `single`."""
    multiplier, shift = quantised(real)
    return np.asarray((np.asarray(x, np.int64) * multiplier + (np.int64(1) << (30 - shift))) >> (31 - shift))


def away(real: Any) -> np.ndarray:
    """Real numbers to integers, half away from zero."""
    return np.asarray(np.sign(real) * np.floor(np.abs(real) + np.float32(0.5))).astype(np.int64)


def stored(x: Any, zero: int, low: int = LOW, high: int = HIGH) -> np.ndarray:
    """Numbers of steps as bytes: with the zero point, between `low` and `high`."""
    return np.asarray(np.clip(np.asarray(x) + zero, low, high), np.int8)
