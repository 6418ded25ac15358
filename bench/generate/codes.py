"""Weights as the codes that a model holds them in, and the numbers that these stand for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 32
"""Weights of one scale, where a coding has blocks."""


class Coding(StrEnum):
    """How exporters write the matrices of a decoder.

    NBITS4  MatMulNBits of 4 bits, blocks of 32 with zero points; the head of 8 bits
    HALVES  the same, its scales numbers of fp16, as GPTQ, AWQ, GGUF and models in fp16 have them
    INT4    DequantizeLinear of int4 in blocks of 32; the head of int8, a scale for each column
    INT8    DequantizeLinear of int8, a scale for each column
    FP16    plain matrices in fp16, which a Cast makes fp32
    FP32    plain matrices
    """

    NBITS4 = "nbits4"
    HALVES = "nbits4-fp16"
    INT4 = "int4"
    INT8 = "int8"
    FP16 = "fp16"
    FP32 = "fp32"


@dataclass(frozen=True)
class Codes:
    """A matrix of N outputs and K inputs: (code - zero) * scale, in blocks along the inputs.

    codes   [N, blocks, block], uint8 or int8; of fp32 and fp16 the matrix itself, [N, 1, K]
    scales  [N, blocks], fp32
    zeros   [N, blocks], of the codes' type
    bits    of a code; 32 for fp32, 16 for fp16
    """

    codes: NDArray[np.generic]
    scales: NDArray[np.float32]
    zeros: NDArray[np.generic]
    bits: int

    @property
    def size(self) -> tuple[int, int]:
        """N and K."""
        outputs, blocks, block = self.codes.shape
        return outputs, blocks * block

    def values(self) -> NDArray[np.float64]:
        """[N, K] in float64, without a rounding."""
        whole = self.codes.astype(np.float64) - self.zeros.astype(np.float64)[..., None]
        return (whole * self.scales.astype(np.float64)[..., None]).reshape(self.size)


def coded(matrix: NDArray[np.float32], coding: Coding, *, is_head: bool = False) -> Codes:
    """The codes of a matrix [N, K], rounded to nearest. Raises ValueError where K is no multiple of a block."""
    if coding in (Coding.FP32, Coding.FP16):
        outputs, bits = matrix.shape[0], 32 if coding is Coding.FP32 else 16
        held = matrix.astype(np.float32 if bits == 32 else np.float16)[:, None]
        return Codes(held, np.ones((outputs, 1), np.float32), np.zeros((outputs, 1), np.float32), bits)
    if coding in (Coding.NBITS4, Coding.HALVES):
        return _between(matrix, 8 if is_head else 4, np.float16 if coding is Coding.HALVES else np.float32)
    if coding is Coding.INT4 and not is_head:
        return _around_zero(matrix, BLOCK, 4)
    return _around_zero(matrix, matrix.shape[1], 8)


def _between(matrix: NDArray[np.float32], bits: int, scale: type[np.floating[Any]]) -> Codes:
    """Codes from 0, between the least and the greatest weight of each block."""
    blocks, top = _blocks(matrix, BLOCK), 2**bits - 1
    low, high = np.minimum(blocks.min(2), 0), np.maximum(blocks.max(2), 0)
    scales = np.where(high > low, (high - low) / top, 1).astype(scale).astype(np.float32)
    zeros = np.clip(np.rint(-low / scales), 0, top)
    codes = np.clip(np.rint(blocks / scales[..., None] + zeros[..., None]), 0, top)
    return Codes(codes.astype(np.uint8), scales, zeros.astype(np.uint8), bits)


def _around_zero(matrix: NDArray[np.float32], block: int, bits: int) -> Codes:
    """Codes of both signs, without a zero point."""
    blocks, top = _blocks(matrix, block), 2 ** (bits - 1) - 1
    largest = np.abs(blocks).max(2)
    scales = np.where(largest > 0, largest / top, 1).astype(np.float32)
    codes = np.clip(np.rint(blocks / scales[..., None]), -top, top).astype(np.int8)
    return Codes(codes, scales, np.zeros(scales.shape, np.int8), bits)


def _blocks(matrix: NDArray[np.float32], block: int) -> NDArray[np.float32]:
    outputs, inputs = matrix.shape
    if inputs % block:
        raise ValueError(f"{inputs} inputs are no multiple of a block of {block}")
    return matrix.reshape(outputs, inputs // block, block)


def packed(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes of 4 bits, two to a byte along the last axis, the first in the lower bits; an odd one has a zero beside."""
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], 1), np.uint8)], -1)
    return codes[..., 0::2] | (codes[..., 1::2] << np.uint8(4))
