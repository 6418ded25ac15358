"""Values of registers: bits in arrays of unsigned integers, seen as what an instruction's type says.

Source: "PTX ISA", "Fundamental Types", "Alternate Floating-Point Data Formats" and "Data Movement and Conversion
Instructions: cvt".
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from tests.ptx.fault import Fault
from tests.ptx.parse import BYTES

UNSIGNED: Mapping[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
SIGNED: Mapping[int, np.dtype[Any]] = {
    1: np.dtype(np.int8),
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}
FLOATS: Mapping[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
INTEGRAL: Mapping[str, np.ufunc] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
"""Rounding to an integral value: nearest even, toward zero, down, up."""


def literal(text: str, kind: str) -> np.ndarray:
    """The bits of a constant as a value of a type: integers, `0f` and `0d` with the bits of a float."""
    width = BYTES[kind]
    if text[:2] in ("0f", "0F"):
        number = struct.unpack("<f", struct.pack("<I", int(text[2:], 16)))[0]
        return np.array(number, np.float32 if width == 4 else np.float64).view(UNSIGNED[width])
    if text[:2] in ("0d", "0D"):
        number = struct.unpack("<d", struct.pack("<Q", int(text[2:], 16)))[0]
        return np.array(number, np.float32 if width == 4 else np.float64).view(UNSIGNED[width])
    return np.array(int(text.rstrip("U"), 0) & ((1 << 8 * width) - 1), UNSIGNED[width])


def resized(bits: np.ndarray, width: int) -> np.ndarray:
    """The lower bytes, or zeros above."""
    return bits if bits.dtype == UNSIGNED[width] else bits.astype(UNSIGNED[width])


def typed(bits: np.ndarray, kind: str) -> np.ndarray:
    """Bits as numbers of a type; 16-bit floats that numpy lacks, as float32."""
    width = BYTES[kind]
    bits = np.asarray(resized(bits, width))
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind in FLOATS:
        return bits.view(FLOATS[kind])
    return bits.view(SIGNED[width]) if kind[0] == "s" else bits


def bits_of(numbers: np.ndarray, kind: str) -> np.ndarray:
    """Numbers of a type as bits; integers of other widths wrap around."""
    numbers = np.asarray(numbers)
    if kind in FLOATS:
        return numbers.astype(FLOATS[kind], copy=False).view(UNSIGNED[BYTES[kind]])
    if numbers.dtype.kind == "i":
        return numbers.astype(SIGNED[BYTES[kind]], copy=False).view(UNSIGNED[BYTES[kind]])
    return numbers.astype(UNSIGNED[BYTES[kind]], copy=False)


def flushed(numbers: np.ndarray) -> np.ndarray:
    """Subnormal float32 become zeros of their sign (`.ftz`)."""
    return np.where(np.abs(numbers) < np.float32(2.0**-126), np.copysign(np.float32(0), numbers), numbers)


def to_bf16(numbers: np.ndarray) -> np.ndarray:
    """Bits of bfloat16, rounded to nearest, ties to even; any NaN is 0x7fff."""
    bits = np.asarray(numbers, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(numbers), np.uint16(0x7FFF), rounded.astype(np.uint16))


def to_tf32(numbers: np.ndarray) -> np.ndarray:
    """Bits of tf32 in 32: 10 of mantissa, rounded to nearest, ties away from zero (`.rna`)."""
    bits = np.asarray(numbers, np.float32).view(np.uint32)
    finite = (bits & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
    return np.where(finite, bits + np.uint32(0x1000), bits) & np.uint32(0xFFFFE000)


def convert(bits: np.ndarray, to: str, kind: str, words: Collection[str]) -> np.ndarray:
    """`cvt.words.to.kind`: the bits in the width of `to`. Raises Fault for a rounding that is not known here."""
    numbers = typed(bits, kind)
    is_float = kind in FLOATS or kind == "bf16"
    if "ftz" in words and kind == "f32":
        numbers = flushed(numbers)
    if to in FLOATS or to in ("bf16", "tf32"):
        return _to_float(numbers, to, words, same=to == kind)
    if is_float:
        (rounding,) = (word for word in words if word in INTEGRAL)
        return _to_integer(INTEGRAL[rounding](numbers.astype(np.float64)), to, kind)
    if "sat" in words:
        limits = np.iinfo((SIGNED if to[0] == "s" else UNSIGNED)[BYTES[to]])
        numbers = np.clip(numbers.astype(object), limits.min, limits.max).astype(np.int64)
    return bits_of(numbers, to)


def _to_float(numbers: np.ndarray, to: str, words: Collection[str], *, same: bool) -> np.ndarray:
    if "rz" in words or "rm" in words or "rp" in words:
        raise Fault("unknown", f"rounding of cvt.{'.'.join(words)}")
    if same and (rounding := [word for word in words if word in INTEGRAL]):
        numbers = INTEGRAL[rounding[0]](numbers)
    if "sat" in words:
        numbers = np.where(np.isnan(numbers), 0, np.clip(numbers, 0, 1)).astype(numbers.dtype)
    if "relu" in words:
        numbers = np.where(np.isnan(numbers), numbers, np.maximum(numbers, 0))
    if to == "bf16":
        return to_bf16(numbers)
    if to == "tf32":
        if "rna" not in words:
            raise Fault("unknown", f"rounding of cvt.{'.'.join(words)}")
        return to_tf32(numbers)
    return bits_of(numbers.astype(FLOATS[to]), to)


def _to_integer(numbers: np.ndarray, to: str, kind: str) -> np.ndarray:
    """Of float64 that are integral: beyond the type its nearest value, of NaN 0, or its highest bit alone."""
    width = BYTES[to]
    limits = np.iinfo((SIGNED if to[0] == "s" else UNSIGNED)[width])
    below, above, nan = numbers < float(limits.min), numbers >= float(limits.max) + 1, np.isnan(numbers)
    inside = np.where(below | above | nan, 0.0, numbers)
    found = np.where(above, limits.max, np.where(below, limits.min, inside.astype(limits.dtype))).astype(limits.dtype)
    wide = kind == "f64" or width == 8
    return np.where(nan, UNSIGNED[width].type(1 << 8 * width - 1 if wide else 0), bits_of(found, to))
