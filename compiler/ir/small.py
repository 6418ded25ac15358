"""Element types of 8 bits and less that only store numbers: their formats, and the codes that they are in memory.

    float8 e4m3fn, e4m3fnuz, e5m2, e5m2fnuz, e8m0      float6 e2m3, e3m2      float4 e2m1      int4, uint4, int2, uint2

Nothing is computed in them: a value is brought to the type that it is computed in (`wide`) and rounded back. In memory
an element is one byte, its code in the lowest bits, as ml_dtypes has it; `packed` and `unpacked` are ONNX's form of
those below 8 bits, in which bytes hold as many codes as fit, the first in the lowest bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from compiler.ir.tensor import DType


@dataclass(frozen=True)
class SmallFloat:
    """A format: `mantissa` bits behind an exponent of `bias`.

    `most` is the code of the greatest finite value. What is beyond it becomes the code `beyond` where nothing
    saturates, and NaN the code `nan`; both are without sign. `unsigned_zero`: there is no -0, of which the code is the
    only NaN. e8m0 has no mantissa, no sign and no zero: code n is 2^(n - 127).
    """

    bits: int
    mantissa: int
    bias: int
    most: int
    beyond: int
    nan: int
    unsigned_zero: bool = False

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.bits - 1)


FLOATS: Mapping[DType, SmallFloat] = {
    DType.F8E4M3FN: SmallFloat(8, 3, 7, most=0x7E, beyond=0x7F, nan=0x7F),
    DType.F8E4M3FNUZ: SmallFloat(8, 3, 8, most=0x7F, beyond=0x80, nan=0x80, unsigned_zero=True),
    DType.F8E5M2: SmallFloat(8, 2, 15, most=0x7B, beyond=0x7C, nan=0x7E),
    DType.F8E5M2FNUZ: SmallFloat(8, 2, 16, most=0x7F, beyond=0x80, nan=0x80, unsigned_zero=True),
    DType.F8E8M0: SmallFloat(8, 0, 127, most=0xFE, beyond=0xFF, nan=0xFF),
    DType.F6E2M3: SmallFloat(6, 3, 1, most=0x1F, beyond=0x1F, nan=0x20),
    DType.F6E3M2: SmallFloat(6, 2, 3, most=0x1F, beyond=0x1F, nan=0x20),
    DType.F4E2M1: SmallFloat(4, 1, 1, most=0x7, beyond=0x7, nan=0x8),
}
"""Floats of 4 and 6 bits have no infinity and no NaN: what is beyond them is the greatest, and NaN a zero (whose sign
is, as in ml_dtypes, the one that NaN has not)."""

BITS: Mapping[DType, int] = {
    **{dtype: form.bits for dtype, form in FLOATS.items()},
    **{DType.I4: 4, DType.U4: 4, DType.I2: 2, DType.U2: 2},
}
"""Of an element, by small type."""

BITWISE = "bits"
"""How a conversion is called that keeps the bits and not the number."""
ROUNDINGS = ("nearest", "up", "down")
"""Of numbers that become e8m0: to the nearest power of two, of which two the greater; to the next greater; to the next
less. All other types round to the nearest, half to even."""


def wide(dtype: DType) -> DType:
    """The type that a small one is computed in, which holds all of its values; of e8m0 too. Any other is its own."""
    if dtype in FLOATS:
        return DType.F32
    if dtype in BITS:
        return DType.I8 if dtype.is_signed else DType.U8
    return dtype


def unpacked(octets: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """The first `count` elements of ONNX's packed bytes."""
    bits = BITS[dtype]
    if bits == 8:
        return octets[:count].view(dtype.numpy)
    if bits == 6:
        flags = np.unpackbits(octets, bitorder="little")[: 6 * count].reshape(count, 6)
        codes = np.packbits(flags, axis=1, bitorder="little").reshape(count)
    else:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        codes = np.bitwise_and(octets[:, None] >> shifts, (1 << bits) - 1, dtype=np.uint8).reshape(-1)[:count]
    return np.ascontiguousarray(codes).view(dtype.numpy)


def packed_bytes(dtype: DType, count: int) -> int:
    """Of `count` elements as ONNX stores them; those of other types are not packed."""
    return -(-count * BITS[dtype] // 8) if dtype in BITS else count * dtype.bytes


def places(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Where each element stands among the values of its type, in order: neighbours differ by 1, -0 is 0.

    int64; NaN has a place of its own far from all others.
    """
    codes = array.view(np.uint8).astype(np.int64)
    form = FLOATS.get(dtype)
    if form is None:
        return array.astype(np.int64)
    if dtype is DType.F8E8M0:
        found = codes
    else:
        codes &= (1 << form.bits) - 1
        magnitude = codes & (form.sign - 1)
        found = np.where(codes & form.sign, -magnitude, magnitude)
    nothing = np.isnan(array.astype(np.float32))
    return np.where(nothing, 1 << 32, found)
