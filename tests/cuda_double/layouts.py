"""Where the PTX ISA places elements: fragments in the registers of lanes, swizzled lines, operands of wgmma."""

from __future__ import annotations

import numpy as np

LANES = np.arange(32)
G, T = LANES // 4, LANES % 4
"""Group and thread of a lane: row and column pair in a fragment."""
SWIZZLE_CODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""Of a matrix descriptor, by the bytes of a line."""
BOXES = (
    ("float16", (40, 9), (32, 4), (8, 7), 64),
    ("float16", (72, 20), (64, 16), (-3, -2), 128),
    ("float16", (24, 5), (16, 8), (8, 0), 32),
    ("float32", (20, 6), (8, 4), (15, -1), 0),
    ("int8", (48, 7, 3), (32, 2, 2), (16, 6, 1), 32),
    ("float32", (12, 5, 4, 3), (8, 2, 3, 2), (4, -1, 2, 1), 0),
    ("float16", (16, 3, 4, 3, 2), (8, 2, 2, 2, 2), (8, 2, -1, 1, 0), 0),
)
"""Tensor maps: dtype, sizes and box innermost first, where the box begins, swizzle in bytes."""


def packed(values: np.ndarray) -> np.ndarray:
    """Neighbours along the last axis as 32-bit registers."""
    registers: np.ndarray = np.ascontiguousarray(values).view(np.uint32)
    return registers[..., 0]


def fragments(a: np.ndarray, b: np.ndarray, per: int) -> tuple[np.ndarray, np.ndarray]:
    """Registers of a (16 x k) and b (k x 8): `per` elements each, as the tables of mma.m16n8k* place them."""
    half = a.shape[1] // 2
    columns = T[:, None] * per + np.arange(per)
    registers_a = [packed(a[(G + row)[:, None], columns + column]) for column in (0, half) for row in (0, 8)]
    registers_b = [packed(b[columns + row, G[:, None]]) for row in (0, half)]
    return np.stack(registers_a), np.stack(registers_b)


def sparse_fragments(a: np.ndarray, b: np.ndarray, selector: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Registers of a (16 x 32), b (32 x 8) and the metadata as mma.sp.m16n8k32 has them for 16 bits, row by row.

    Two of each four neighbours in a row of a are not zero. "Matrix Fragments for sparse mma.m16n8k32 with .f16 and
    .bf16 types": of a, a register holds the two of four columns from `firstcol` on; the metadata's bits of a chunk of
    four columns are those that the figure's cell names, thread by thread. Lanes whose metadata is not asked for have
    all bits set, which are no indices.
    """
    given = np.zeros((16, 16), a.dtype)
    metadata = np.full(32, 0xFFFFFFFF, np.uint32)
    holders = {0: (0, 1), 1: (2, 3)}[selector]
    for lane in range(32):
        if lane % 4 in holders:
            metadata[lane] = 0
    for row in range(16):
        for firstcol in range(0, 32, 4):
            first, second = (int(place) for place in np.flatnonzero(a[row, firstcol : firstcol + 4]))
            given[row, firstcol // 2 : firstcol // 2 + 2] = a[row, firstcol + first], a[row, firstcol + second]
            lane = row % 8 * 4 + holders[firstcol // 16]
            lowest = (16 if row >= 8 else 0) + firstcol % 16
            metadata[lane] |= np.uint32((first | second << 2) << lowest)
    registers_a, _ = fragments(given, b[:16], 2)
    registers_b = [packed(b[T[:, None] * 2 + np.arange(2) + row, G[:, None]]) for row in (0, 8, 16, 24)]
    return registers_a, np.stack(registers_b), metadata


def sparse_byte_fragments(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Registers of a (16 x 64), b (64 x 8) and the metadata as mma.sp.m16n8k64 has them for 8 bits, row by row.

    Two of each four neighbours in a row of a are not zero. "Matrix Fragments for sparse mma.m16n8k64 with .u8 / .s8":
    of a, a register holds four of eight columns; of the metadata, threads 0 and 1 of a group have
    columns 0 to 31 of its two rows, threads 2 and 3 the others, which is the order of CUTLASS's `host_reorder.h` too.
    """
    given, metadata = np.zeros((16, 32), a.dtype), np.zeros(32, np.uint32)
    for row in range(16):
        for firstcol in range(0, 64, 4):
            first, second = (int(place) for place in np.flatnonzero(a[row, firstcol : firstcol + 4]))
            given[row, firstcol // 2 : firstcol // 2 + 2] = a[row, firstcol + first], a[row, firstcol + second]
            lane = row % 8 * 4 + (2 if firstcol >= 32 else 0) + (1 if row >= 8 else 0)
            metadata[lane] |= np.uint32((first | second << 2) << firstcol % 32)
    registers_a, _ = fragments(given, b[:32], 4)
    registers_b = [packed(b[T[:, None] * 4 + np.arange(4) + row, G[:, None]]) for row in (0, 16, 32, 48)]
    return registers_a, np.stack(registers_b), metadata


def sparse_rows(a: np.ndarray, selector: int) -> tuple[np.ndarray, np.ndarray]:
    """What wgmma.sp is given of a (64 x 32), of which two of each four neighbours are not zero, and uint32[128].

    "Each warp in the warpgroup provides sparsity information for 16 rows of matrix A", as the figures of mma.m16n8k32
    have it; what is given is 64 x 16.
    """
    given = np.stack([row[row != 0] for row in a])
    none = np.zeros((a.shape[1], 8), a.dtype)
    return given, np.concatenate([sparse_fragments(a[at : at + 16], none, selector)[2] for at in range(0, 64, 16)])


def sparse_byte_rows(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same of bytes: a is 64 x 64, and words are those of mma.sp.m16n8k64; what is given is 64 x 32."""
    given = np.stack([row[row != 0] for row in a])
    none = np.zeros((a.shape[1], 8), a.dtype)
    return given, np.concatenate([sparse_byte_fragments(a[at : at + 16], none)[2] for at in range(0, 64, 16)])


def swizzle(offsets: np.ndarray, width: int) -> np.ndarray:
    """Where a dense byte offset lies.

    16-byte pieces of a line of 128 are exchanged by the line's number ("Swizzling Modes").
    """
    pieces, lines = offsets // 16 % 8, offsets // 128 % 8
    # by all three bits of the line's number, by the lower two, or by the lowest
    moved: np.ndarray = pieces ^ (lines & {0: 0, 32: 1, 64: 3, 128: 7}[width])
    return np.asarray(offsets + 16 * (moved - pieces))


def k_major(x: np.ndarray, width: int) -> tuple[np.ndarray, int, int]:
    """Rows (mn x k) as a descriptor without transposition reads them: bytes, leading and stride in bytes.

    Swizzled: 8 rows of `width` bytes are one atom, the next 8 rows follow. Else 8 rows of 16 bytes, then the next 16
    bytes.
    """
    rows, row_bytes = x.shape[0], x.shape[1] * x.itemsize
    data = np.ascontiguousarray(x).view(np.uint8)
    if not width:
        pieces = data.reshape(rows // 8, 8, row_bytes // 16, 16)
        return np.ascontiguousarray(pieces.transpose(0, 2, 1, 3)).reshape(-1), 128, 128 * (row_bytes // 16)
    wide = np.zeros((rows, width), np.uint8)
    wide[:, :row_bytes] = data
    out = np.zeros(rows * width, np.uint8)
    out[swizzle(np.arange(rows * width), width)] = wide.reshape(-1)
    return out, 16, 8 * width


def mn_major(x: np.ndarray, width: int) -> tuple[np.ndarray, int, int]:
    """The same for a transposed operand: lines run along mn, `width` bytes and 8 of k are one atom."""
    mn, k = x.shape
    elements = width // x.itemsize
    atoms = np.ascontiguousarray(x.T).reshape(k // 8, 8, mn // elements, elements).transpose(2, 0, 1, 3)
    dense = np.ascontiguousarray(atoms).view(np.uint8).reshape(-1)
    out = np.zeros(dense.size, np.uint8)
    out[swizzle(np.arange(dense.size), width)] = dense
    return out, k * width, 8 * width
