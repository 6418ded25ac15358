"""Products of matrices on tensor cores: mma, mma.sp, wgmma, wgmma.sp.

Which elements of a matrix a lane has in its registers, and where they lie behind a descriptor in shared memory, is
written here from the manual's text alone: positions are computed element by element from (row, column).

Source: "PTX ISA", "Matrix Fragments for mma.m16n8k16" and its like, "Sparse matrix storage", "Metadata",
"Asynchronous Warpgroup Level Matrix Instructions", "Shared Memory Matrix Layout", "Matrix Descriptor Format".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tests.ptx.copies import swizzled
from tests.ptx.decode import Controlled, Decoder, Operands, Read, Write, spread
from tests.ptx.fault import Fault
from tests.ptx.gang import Gang, Lanes, Step
from tests.ptx.values import typed
from tests.ptx.warps import aligned

ELEMENT_BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1}
KEPT, GROUP = 2, 4
"""Of a sparse operand two of each four neighbours in a row are given."""


@dataclass(frozen=True)
class Shape:
    """Of a product: rows of A, columns of B, what is summed over, and the types of the operands and of sums."""

    rows: int
    columns: int
    depth: int
    kind_a: str
    kind_b: str
    kind_d: str
    sparse: bool

    @property
    def given(self) -> int:
        """Elements in a row of A as it is given."""
        return self.depth * KEPT // GROUP if self.sparse else self.depth


def shape_of(words: tuple[str, ...]) -> Shape:
    """What an instruction's name says. Raises Fault for a shape that is not known here."""
    found = next(match for word in words if (match := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", word)))
    kinds = [word for word in words if word in ELEMENT_BYTES or word in ("f32", "s32")]
    rows, columns, depth = map(int, found.groups())
    sparse = any(word.startswith("sp") for word in words[1:3])
    one = Shape(rows, columns, depth, kinds[1], kinds[2], kinds[0], sparse)
    if kinds[0] == "f16" or ("satfinite" in words) or one.given * ELEMENT_BYTES[one.kind_a] != 32:
        raise Fault("unknown", ".".join(words))
    return one


def numbers(octets: np.ndarray, kind: str) -> np.ndarray:
    """Elements that bytes hold, as float64; of tf32 the lower 13 bits are not read."""
    octets = np.ascontiguousarray(octets)
    if kind == "tf32":
        return typed(octets.view(np.uint32) & np.uint32(0xFFFFE000), "f32").astype(np.float64)
    return typed(octets.view(f"u{ELEMENT_BYTES[kind]}"), kind).astype(np.float64)


# ---- in registers


def positions_of_a(depth: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each (row, column) of A with 16 rows: the lane, its register, and the element in the register.

    A register has 4 / size neighbours of a row. Lane 4 g + t has in registers 0 and 1 rows g and g + 8, of the first
    half of columns those at t; in registers 2 and 3 the same of the second half.
    """
    row, column = np.indices((16, depth))
    each, half = 4 // size, depth // 2
    lane = 4 * (row % 8) + column % half // each
    return lane, row // 8 + 2 * (column // half), column % each


def positions_of_b(depth: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same for each (row, column) of B with 8 columns: column g, and rows at t, a register every 4 lanes' rows."""
    row, column = np.indices((depth, 8))
    each = 4 // size
    return 4 * column + row // each % 4, row // (4 * each), row % each


def positions_of_d(columns: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """For each (row, column) of D with 16 rows: the lane, and its register."""
    row, column = np.indices((16, columns))
    return 4 * (row % 8) + column % 8 // 2, 4 * (column // 8) + 2 * (row // 8) + column % 2


def from_registers(registers: np.ndarray, where: tuple[np.ndarray, np.ndarray, np.ndarray], kind: str) -> np.ndarray:
    """Matrices of warps: `registers` are uint32[warps, registers, lanes]."""
    lane, register, element = where
    size = ELEMENT_BYTES[kind]
    octets = np.ascontiguousarray(registers[:, register, lane])[..., None].view(np.uint8)
    at = element[None, :, :, None] * size + np.arange(size)
    return numbers(np.take_along_axis(octets, np.broadcast_to(at, (len(octets), *at.shape[1:])), axis=3), kind)[..., 0]


def expanded(given: np.ndarray, metadata: np.ndarray, selector: int, size: int) -> np.ndarray:
    """Rows of A with their zeros: `given` is [warps, 16, kept], `metadata` uint32[warps, lanes].

    Four bits say where the two given of each four neighbours lie, two bits each, the lower place first. Of 16-bit
    elements (k = 32) lane 4 g + 2 s + h, s the selector, has those of columns 16 h to 16 h + 15: of row g in the lower
    half of the word, of row g + 8 in the upper. Of bytes (k = 64) lane 4 g + 2 h + r has those of row g + 8 r, columns
    32 h to 32 h + 31. Raises Fault where the places are not in order.
    """
    depth = given.shape[2] * GROUP // KEPT
    row, group = np.indices((16, depth // GROUP))
    first = GROUP * group
    if size == 2:
        lane, bit = 4 * (row % 8) + 2 * selector + first // 16, 16 * (row // 8) + first % 16
    elif size == 1:
        lane, bit = 4 * (row % 8) + 2 * (first // 32) + row // 8, first % 32
    else:
        raise Fault("unknown", f"metadata of elements of {size} bytes")
    fours = metadata[:, lane].astype(np.int64) >> bit & 15
    low, high = fours & 3, fours >> 2
    if (low >= high).any():
        raise Fault("metadata", "places of what is given are not in order")
    full = np.zeros((len(given), 16, depth))
    np.put_along_axis(full, first + low, given[:, :, 0::2], axis=2)
    np.put_along_axis(full, first + high, given[:, :, 1::2], axis=2)
    return full


def added(shape: Shape, product: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Bits of sums: of floats rounded once, of integers wrapped around."""
    if shape.kind_d == "f32":
        result: np.ndarray = (typed(before, "f32").astype(np.float64) + product).astype(np.float32).view(np.uint32)
        return result
    return (typed(before, "s32").astype(np.int64) + product.astype(np.int64)).astype(np.uint64).astype(np.uint32)


def stacked(gang: Gang, ids: np.ndarray, reads: list[Read]) -> np.ndarray:
    """uint32[rows of ids, registers, lanes]."""
    return np.stack([spread(gang, ids, read(gang, ids)) for read in reads], axis=1)


def multiply(operands: Operands) -> Controlled:
    """mma.sync and mma.sp, of m16n8."""
    shape, texts = shape_of(operands.words), operands.texts
    if (shape.rows, shape.columns) != (16, 8) or tuple(word for word in operands.words if word in ("row", "col")) != (
        "row",
        "col",
    ):
        raise Fault("unknown", operands.instruction.text)
    a, b, c = ([operands.read(name, "b32") for name in operands.many(texts[at])] for at in (1, 2, 3))
    writes = [operands.write(name) for name in operands.many(texts[0])]
    metadata = operands.read(texts[4], "b32") if shape.sparse else None
    selector = int(texts[5], 0) if shape.sparse else 0
    size = ELEMENT_BYTES[shape.kind_a]
    where_a, where_b, (lane, register) = (
        positions_of_a(shape.given, size),
        positions_of_b(shape.depth, size),
        positions_of_d(),
    )
    if (len(a), len(b), len(writes)) != (4, shape.depth * size // 16, 4):
        raise Fault("syntax", operands.instruction.text)

    def together(gang: Gang, ids: np.ndarray) -> None:
        left = from_registers(stacked(gang, ids, a), where_a, shape.kind_a)
        if metadata is not None:
            left = expanded(left, spread(gang, ids, metadata(gang, ids)), selector, size)
        product = left @ from_registers(stacked(gang, ids, b), where_b, shape.kind_b)
        before = stacked(gang, ids, c)
        after = before.copy()
        after[:, register, lane] = added(shape, product, before[:, register, lane])
        for at, write in enumerate(writes):
            write(gang, ids, after[:, at])

    return aligned(operands, together)


# ---- behind descriptors


@dataclass(frozen=True)
class Descriptor:
    """Where a matrix lies in shared memory, in bytes: begin, the two distances, and the width of the swizzle."""

    begin: int
    leading: int
    stride: int
    width: int

    @staticmethod
    def of(bits: int) -> Descriptor:
        """Bits 0-13, 16-29, 32-45 are addresses and distances over 16; 49-51 the base offset; 62-63 the swizzle."""
        if bits >> 49 & 7:
            raise Fault("unknown", "a descriptor with a base offset")
        begin, leading, stride = ((bits >> at & 0x3FFF) << 4 for at in (0, 16, 32))
        return Descriptor(begin, leading, stride, {0: 0, 1: 128, 2: 64, 3: 32}[bits >> 62 & 3])

    def k_major(self, rows: int, octets: int) -> np.ndarray:
        """Where each of `octets` bytes along k of each row lies.

        Eight rows are a core matrix of the swizzle's width; without one of 16 bytes, the next 16 `leading` further.
        """
        row, at = np.indices((rows, octets))
        base = self.begin + row // 8 * self.stride
        if self.width:
            return swizzled(base + row % 8 * self.width + at, self.width)
        return base + row % 8 * 16 + at // 16 * self.leading + at % 16

    def mn_major(self, rows: int, depth: int, size: int) -> np.ndarray:
        """The same where neighbours along the rows lie next to each other: [rows, depth, size].

        Eight k's are a core matrix; the next row of them along m or n is `leading` further, along k `stride`.
        """
        row, k, octet = np.indices((rows, depth, size))
        if not self.width:
            raise Fault("unknown", "an MN-major matrix without a swizzle")
        each = self.width // size
        place = self.begin + row // each * self.leading + k // 8 * self.stride
        return swizzled(place + k % 8 * self.width + row % each * size + octet, self.width)


def in_shared(
    gang: Gang, ids: np.ndarray, bits: np.ndarray, shape: tuple[int, int], kind: str, transposed: bool
) -> np.ndarray:
    """The matrix [rows, depth] behind a descriptor that all threads of a warpgroup agree on. Raises Fault."""
    if (bits != bits[0]).any():
        raise Fault("divergence", "threads of a warpgroup have different descriptors")
    descriptor, size = Descriptor.of(int(bits[0])), ELEMENT_BYTES[kind]
    rows, depth = shape
    if transposed:
        offsets = descriptor.mn_major(rows, depth, size).reshape(rows, depth * size)
    else:
        offsets = descriptor.k_major(rows, depth * size)
    if (offsets + 1 > gang.shared.size).any():
        raise Fault("out-of-bounds", f"wgmma reads at {int(offsets.max())} of {gang.shared.size} shared bytes")
    places = int(gang.block[ids[0]]) * gang.shared.size + offsets
    gang.groups.read_by_product(ids, places)
    return numbers(gang.shared.octets[places], kind)


@dataclass(frozen=True)
class _WgmmaOperands:
    """Of one wgmma.mma_async: registers, descriptors, metadata, whether to accumulate, which operands are MN-major."""

    reads: list[Read]
    writes: list[Write]
    a: Read
    b: Read
    metadata: Read | None
    selector: int
    accumulate: Read
    transposed: tuple[bool, bool]

    @staticmethod
    def of(operands: Operands, shape: Shape) -> _WgmmaOperands:
        names, rest = operands.many(operands.texts[0]), list(operands.texts[3:])
        metadata, selector = (operands.read(rest.pop(0), "b32"), int(rest.pop(0))) if shape.sparse else (None, 0)
        accumulate = operands.read(rest.pop(0), "pred")
        immediate = [int(text, 0) for text in rest]
        if shape.kind_d == "f32" and immediate[:2] != [1, 1]:
            raise Fault("unknown", f"negated operands: {operands.instruction.text}")
        if len(names) != shape.columns // 2 or operands.texts[1].startswith("{"):
            raise Fault("unknown", operands.instruction.text)
        a, b = operands.read(operands.texts[1], "u64"), operands.read(operands.texts[2], "u64")
        flags = (bool(immediate[2]), bool(immediate[3])) if len(immediate) == 4 else (False, False)
        reads, writes = [operands.read(name, "b32") for name in names], [operands.write(name) for name in names]
        return _WgmmaOperands(reads, writes, a, b, metadata, selector, accumulate, flags)


def multiply_by_warpgroup(operands: Operands) -> Controlled:
    """wgmma.mma_async and its sparse form: each warp has 16 of the 64 rows of D."""
    shape = shape_of(operands.words)
    given = _WgmmaOperands.of(operands, shape)
    lane, register = positions_of_d(shape.columns)
    size = ELEMENT_BYTES[shape.kind_a]

    def one(gang: Gang, ids: np.ndarray) -> None:
        truth = spread(gang, ids, given.accumulate(gang, ids))
        if (truth != truth[0]).any():
            raise Fault("divergence", "threads of a warpgroup do not agree whether to accumulate")
        bits = [spread(gang, ids, read(gang, ids)) for read in (given.a, given.b)]
        left = in_shared(gang, ids, bits[0], (64, shape.given), shape.kind_a, given.transposed[0])
        right = in_shared(gang, ids, bits[1], (shape.columns, shape.depth), shape.kind_b, given.transposed[1])
        left = left.reshape(4, 16, shape.given)
        if given.metadata is not None:
            words = spread(gang, ids, given.metadata(gang, ids)).reshape(4, 32)
            left = expanded(left, words, given.selector, size)
        before = stacked(gang, ids.reshape(4, 32), given.reads)
        before = before if truth[0] else np.zeros_like(before)
        after = before.copy()
        after[:, register, lane] = added(shape, left @ right.T, before[:, register, lane])
        for at, write in enumerate(given.writes):
            write(gang, ids, after[:, at].ravel())

    def together(gang: Gang, groups: np.ndarray) -> None:
        for ids in groups:
            one(gang, ids)

    return aligned(operands, together, 128)


def of_warpgroup(operands: Operands) -> Controlled | Step:
    """wgmma: products, fences, groups."""
    words = operands.words
    if words[1] == "mma_async":
        return multiply_by_warpgroup(operands)
    pending = int(operands.texts[0]) if words[1] == "wait_group" else 0

    def together(gang: Gang, groups: np.ndarray) -> None:
        for ids in groups:
            if words[1] == "commit_group":
                gang.groups.product_group[ids] += 1
            elif words[1] == "wait_group":
                gang.groups.wait_products(ids, pending)

    return aligned(operands, together, 128)


def set_registers(operands: Operands) -> Step:
    """setmaxnreg: how many registers a thread has changes no result."""

    def run(gang: Gang, lanes: Lanes) -> None:
        return None

    return run


DECODERS: Mapping[str, Decoder] = {"mma": multiply, "wgmma": of_warpgroup, "setmaxnreg": set_registers}
