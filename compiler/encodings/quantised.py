"""Weights that were quantised in blocks: numbers of few bits, and a scale and perhaps a zero point for each block.

Exporters write such weights as codes that a model makes floats (MatMulNBits, DequantizeLinear, Cast and Mul), or as
the floats themselves. Either way a weight is float32(scale * number), so the numbers are found in the values: in each
block the scale is the largest magnitude over a whole number. What is found gives every value back to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from compiler.encodings.encoding import Encoding, Use
from compiler.encodings.finding import MEGABYTE, Reported
from compiler.encodings.found import Found
from compiler.encodings.zeros import LEAST_ELEMENTS, MOST_AXES, pairs_of_axes

BITS = (2, 4, 8)
"""Of a number."""
SMALL_BLOCKS = (256, 128, 64, 32, 16)
"""Neighbours that share a scale, where not all of a line do."""
SAMPLE = 16
"""Blocks whose values are looked at first, with zeros and without: other weights do not fit a grid."""
ENOUGH = 64
"""Values of one block that are looked at before those: nearly all weights that fit no grid show it in them."""
AT_ONCE = 1 << 22
"""Values for which a grid is sought together."""
APART = 1e-5
"""Magnitudes of a block that differ by less than this share of the largest are the same number."""
ULPS = (0, 1, -1, 2, -2)
"""How far a scale may be from the quotient that is computed for it."""
USES = (Use.PRODUCT, Use.BF16_PRODUCT, Use.TENSOR_CORES)
FOUND: Found[tuple[Quantised, ...]] = Found()
READ_BY, READ_ROUNDED, READ_AS_FLOATS = "gemv_quantised", "gemv_quantised16", "gemm_quantised"
"""Algorithms whose kernels read codes: they multiply them by activations as they are, or rounded to 16 bits, or make
floats of them in the nearest cache. All names of such algorithms hold the word."""
WORTH_BYTES = 0.8
"""The share of their time for which it pays to keep several times the bytes of codes."""
SCALE_BITS = (16, 32)
"""Of a scale: fp16 where that has every one of them, else fp32. It has those of bf16 from 2^-17 on."""
LARGEST_HALF = np.float32(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Quantised(Encoding):
    """Numbers of so many bits, in blocks along an axis.

    axis     the constant's dimension along which the values of a block lie
    block    how many have one scale; the last block of a line may have fewer
    centred  whether all numbers are signed ones of as many bits; else each block has a zero point
    scale    bits of a scale, one of SCALE_BITS: 32 where a line has only one
    """

    begins = "quantised"
    bits: int
    axis: int
    block: int
    centred: bool
    scale: int = 32

    @classmethod
    def find(cls, constant: np.ndarray, use: Use) -> tuple[Quantised, ...]:
        """The one with the fewest bits and the largest blocks along each axis whose grids hold every value.

        GPUs read scales in fp32 alone.
        """
        if use not in USES or constant.dtype != np.float32 or constant.size < LEAST_ELEMENTS:
            return ()
        if not 2 <= constant.ndim <= MOST_AXES:
            return ()
        found = FOUND.of(constant, cls.begins, _every)
        if use is Use.TENSOR_CORES:
            return tuple(Quantised.of(one.bits, one.axis, one.block, centred=one.centred) for one in found)
        return found

    @staticmethod
    def of(bits: int, axis: int, block: int, *, centred: bool, scale: int = 32) -> Quantised:
        """The encoding with the word that stands for it in the text of workloads."""
        word = Quantised.words(bits, axis, block, int(centred), *([scale] if scale != 32 else []))
        return Quantised(word, word, bits, axis, block, centred, scale)

    @classmethod
    def read(cls, word: str) -> Quantised:
        """With bits, an axis, the size of a block, 1 where numbers are centred, and 16 where scales are of fp16."""
        numbers = cls.numbers(word)
        if len(numbers) not in (4, 5) or numbers[0] not in BITS or numbers[1] >= MOST_AXES or numbers[3] > 1:
            raise ValueError(f"`{word}` is no encoding of quantised blocks: bits, axis, block, 0 or 1")
        bits, axis, block, centred, scale = (*numbers, 32)[:5]
        if not block or numbers[4:] not in ([], [16]):
            raise ValueError(f"`{word}` is no encoding of quantised blocks: no such block or scales")
        return Quantised.of(bits, axis, block, centred=bool(centred), scale=scale)

    def fits(self, dims: tuple[int, ...]) -> bool:
        """Whether a constant of this shape has such blocks."""
        return self.axis < len(dims) and self.block <= dims[self.axis]

    def pruned(self, constant: np.ndarray) -> np.ndarray:
        """The constant with each element moved to the nearest number of its block's grid."""
        lines = blocks_of(constant, self.axis, self.block)
        least = 1 << (self.bits - 1)
        peak = np.abs(lines).max(1, keepdims=True)
        scales = scales_of(np.asarray(peak / np.float32(max(least - 1, 1))), self.scale)
        numbers = np.rint(lines / np.where(scales > 0, scales, np.float32(1))).clip(-least, least - 1)
        extent = constant.shape[self.axis]
        moved = np.moveaxis(constant, self.axis, -1).shape
        whole = np.asarray(numbers * scales, np.float32).reshape(*moved[:-1], -1)[..., :extent]
        return np.ascontiguousarray(np.moveaxis(whole, -1, self.axis))


@dataclass(frozen=True)
class Grid:
    """Of some blocks: float32(scales[b] * numbers[b, at]) is each value.

    scales   float32[blocks]; 0 for a block of zeros
    numbers  int16[blocks, values]; those of a block, and 0, are less than 2^bits apart
    """

    scales: np.ndarray
    numbers: np.ndarray

    def is_centred(self, bits: int) -> bool:
        """Whether every number is a signed one of as many bits."""
        least = -(1 << (bits - 1))
        return bool(self.numbers.min(initial=0) >= least and self.numbers.max(initial=0) < -least)

    def with_scales(self, scale: int, bits: int) -> Grid | None:
        """The same values with scales of so many bits; None where not all blocks have one.

        Numbers that are all multiples of one have a scale that is a multiple too, and may need more digits.
        """
        left = np.flatnonzero(scales_of(self.scales, scale) != self.scales)
        if not len(left):
            return self
        scales, numbers = self.scales.copy(), self.numbers.copy()
        reach = numbers.max(1, initial=0) - numbers.min(1, initial=0).astype(np.int64)
        for times in range(2, 1 << bits):
            if reach[left].max() * times >= 1 << bits:
                return None
            part = np.asarray(scales[left] / np.float32(times), np.float32)
            fits = (scales_of(part, scale) == part) & (part * np.float32(times) == scales[left])
            scales[left[fits]], numbers[left[fits]] = part[fits], numbers[left[fits]] * np.int16(times)
            left = left[~fits]
            if not len(left):
                return Grid(scales, numbers)
        return None

    def towards_zero(self, bits: int) -> Grid:
        """The same values, scales negated of blocks whose numbers are signed ones of so many bits only then."""
        half = 1 << (bits - 1)
        signs = np.where((self.numbers.max(1, initial=0) == half) & (self.numbers.min(1, initial=0) > -half), -1, 1)
        return Grid(np.asarray(self.scales * signs, np.float32), np.asarray(self.numbers * signs[:, None], np.int16))


@dataclass(frozen=True)
class QuantisedWeights(Reported):
    """That a weight tensor was quantised in blocks."""

    key = "quantised"
    computed = True
    title = "Weights of few bits"

    shape: tuple[int, ...]
    encoding: Quantised

    @classmethod
    def of(cls, constant: np.ndarray, use: Use = Use.PRODUCT) -> QuantisedWeights | None:
        """The blocks that take the fewest bytes; None where there are none."""
        found = [cls(constant.shape, one) for one in Quantised.find(constant, Use.PRODUCT)]
        return min(found, key=lambda one: one.bytes, default=None)

    def to_json(self) -> dict[str, Any]:
        """`bits` of a code, `block` values along `axis` with one scale, `zero_points`, and bytes saved beside fp32."""
        return {
            "bits": self.encoding.bits,
            "block": self.encoding.block,
            "axis": self.encoding.axis,
            "zero_points": not self.encoding.centred,
            "saved_bytes": self.gain,
        }

    @property
    def elements(self) -> int:
        """How many there are."""
        return int(np.prod(self.shape))

    @property
    def bytes(self) -> int:
        """Of codes, scales and zero points."""
        one, extent = self.encoding, self.shape[self.encoding.axis]
        blocks = self.elements // extent * -(-extent // one.block)
        return self.elements * one.bits // 8 + blocks * (one.scale // 8 + (not one.centred))

    @property
    def words(self) -> str:
        """How codes are kept."""
        one = self.encoding
        zeros = "" if one.centred else " and a zero point"
        scale = "a scale of fp16" if one.scale == 16 else "a scale"
        return f"codes of {one.bits} bits, {scale}{zeros} for each {one.block} along axis {one.axis}"

    @property
    def gain(self) -> int:
        """Bytes."""
        return 4 * self.elements - self.bytes

    @classmethod
    def summary(cls, each: Sequence[Self]) -> str:
        """What is saved of tensors together."""
        dense, stored = (sum(of) / MEGABYTE for of in ([4 * one.elements for one in each], [one.bytes for one in each]))
        return f"{stored:.2f} MB for {dense:.2f} MB in fp32"

    @staticmethod
    def is_used_by(algorithm: str) -> bool:
        """Whether codes are read."""
        return Quantised.begins in algorithm

    @staticmethod
    def note(used: bool) -> str:
        """Whether codes are kept."""
        if used:
            return "kept as codes"
        return "made dense, which is faster here or all there is for this kernel"


def blocks_of(constant: np.ndarray, axis: int, block: int) -> np.ndarray:
    """The values along an axis, float32[blocks, block]; zeros fill each line's last block."""
    lines = np.moveaxis(constant, axis, -1)
    lines = lines.reshape(-1, lines.shape[-1])
    if short := -lines.shape[1] % block:
        lines = np.pad(lines, ((0, 0), (0, short)))
    return np.ascontiguousarray(lines).reshape(-1, block)


def scales_of(scales: np.ndarray, bits: int) -> np.ndarray:
    """The nearest to scales that so many bits have, as float32; none becomes infinite."""
    if bits == 16:
        scales = scales.clip(-LARGEST_HALF, LARGEST_HALF)
    return scales.astype(f"f{bits // 8}").astype(np.float32)


def grid_of(blocks: np.ndarray, bits: int, scale: int = 32) -> Grid | None:
    """A grid of numbers of so many bits for float32[blocks, values]; None where a block's values are on no such grid.

    None too where not all have a scale of so many bits.

    A scale may be negative: that of a block whose numbers reach from -(2^(bits - 1) - 1) to 2^(bits - 1).
    """
    each = max(AT_ONCE // max(blocks.shape[1], 1), 1)
    parts = [_fitted(blocks[at : at + each], bits) for at in range(0, len(blocks), each)]
    whole = [part for part in parts if part is not None]
    if len(whole) < len(parts):
        return None
    grid = Grid(np.concatenate([one.scales for one in whole]), np.concatenate([one.numbers for one in whole]))
    held = grid.with_scales(scale, bits)
    return held.towards_zero(bits) if held else None


def _every(constant: np.ndarray) -> tuple[Quantised, ...]:
    """For each axis of a matrix that has such blocks."""
    found = (_along(constant, axis) for _, axis in pairs_of_axes(constant))
    return tuple(one for one in found if one is not None)


def _along(constant: np.ndarray, axis: int) -> Quantised | None:
    """The fewest bits, then the largest block, for which there are grids along an axis."""
    extent = constant.shape[axis]
    lines = np.moveaxis(constant, axis, -1).reshape(-1, extent)[:: -(-constant.size // extent // SAMPLE)]
    if not bool(np.isfinite(lines).all() and lines.any()):
        return None
    possible = (extent, *(size for size in SMALL_BLOCKS if size < extent))
    sizes = [size for size in possible if may_fit(lines, size, BITS[-1])]
    for bits, block in ((bits, block) for bits in BITS for block in sizes):
        if not may_fit(lines, block, bits):
            continue
        found = _held(constant, axis, block, bits)
        if found:
            scale = min(found) if block < extent else 32
            return Quantised.of(bits, axis, block, centred=found[scale], scale=scale)
    return None


def _held(constant: np.ndarray, axis: int, block: int, bits: int) -> dict[int, bool]:
    """Bits that the scales of all blocks along an axis may have, and whether numbers are then signed ones.

    Empty where some block's are on no grid. Lines are looked at some at a time, so that no second copy of a large
    matrix is held.
    """
    lines = np.moveaxis(constant, axis, -1)
    lines = lines.reshape(-1, lines.shape[-1])
    each, centred = max(AT_ONCE // lines.shape[1], 1), dict.fromkeys(SCALE_BITS, True)
    for at in range(0, len(lines), each):
        grid = _fitted(blocks_of(lines[at : at + each], 1, block), bits)
        if grid is None:
            return {}
        held = {scale: grid.with_scales(scale, bits) for scale in centred}
        centred = {
            scale: centred[scale] and part.towards_zero(bits).is_centred(bits) for scale, part in held.items() if part
        }
    return centred


def may_fit(lines: np.ndarray, block: int, bits: int) -> bool:
    """Whether about half of the first blocks of some lines are on grids that two of their magnitudes show."""
    first = np.ascontiguousarray(lines[:, :block])
    fits = _on(first, np.abs(first).max(1), _number_of_peak(first, bits), bits)[2]
    return bool(2 * np.count_nonzero(fits) >= len(first))


def _fitted(blocks: np.ndarray, bits: int) -> Grid | None:
    """`grid_of` blocks that are few enough to be looked at together."""
    peak = np.abs(blocks).max(1, initial=0.0)
    if not bool(np.isfinite(peak).all()):
        return None
    left = np.flatnonzero(peak)
    if len(left) and not _may_lie(blocks[left[0], :ENOUGH], peak[left[0]], bits):
        return None
    if len(left) > SAMPLE and _fitted(blocks[left[:: -(-len(left) // SAMPLE)]], bits) is None:
        return None
    scales, numbers = np.zeros(len(blocks), np.float32), np.zeros(blocks.shape, np.int16)
    for most in (_number_of_peak(blocks[left], bits), *range(1, 1 << bits)):
        scale, number, fits = _on(blocks[left], peak[left], most, bits)
        scales[left[fits]], numbers[left[fits]] = scale[fits], number[fits]
        left = left[~fits]
        if not len(left):
            break
    else:
        return None
    return Grid(scales, numbers)


def _may_lie(some: np.ndarray, peak: np.floating, bits: int) -> bool:
    """Whether some values of a block are on any grid that its largest magnitude can be on, all tried at once."""
    each = np.arange(1, 1 << bits)
    return bool(_on(np.tile(some, (len(each), 1)), np.full(len(each), peak), each, bits)[2].any())


def _number_of_peak(blocks: np.ndarray, bits: int) -> np.ndarray:
    """What the number of each block's largest magnitude is if two magnitudes are neighbours on its grid."""
    magnitudes = np.sort(np.abs(blocks), axis=1)
    peak = magnitudes[:, -1:]
    apart = np.diff(magnitudes, axis=1, prepend=np.float32(0))
    step = np.where(apart > APART * peak, apart, np.float32(np.inf)).min(1)
    return np.asarray(np.rint(peak[:, 0] / step).clip(1, (1 << bits) - 1))


def _on(
    blocks: np.ndarray, peak: np.ndarray, most: np.ndarray | int, bits: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scales, numbers and whether they give every value, of blocks whose largest magnitude is so many steps."""
    about = np.asarray(np.where(peak > 0, peak, 1) / np.asarray(most, np.float32), np.float32)
    numbers = np.rint(blocks / about[:, None])
    possible = numbers.max(1, initial=0.0) - numbers.min(1, initial=0.0) < 1 << bits
    scales, fits = about.copy(), np.zeros(len(blocks), bool)
    for ulps in ULPS:
        scale = (about.view(np.int32) + np.int32(ulps)).view(np.float32)
        found = possible & ~fits & (numbers * scale[:, None] == blocks).all(1)
        scales[found], fits = scale[found], fits | found
        if not bool((possible & ~fits).any()):
            break
    return scales, numbers, fits
