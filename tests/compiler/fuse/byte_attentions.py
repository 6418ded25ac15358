"""Attention as quantised models have it: bytes, two products of them, and the softmax between them rounded to bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from compiler.fuse import fuse
from compiler.fuse.joins import Join, joins
from compiler.ir.buffers import KernelGraph
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.sketch import Sketch

F32, I32 = DType.F32, DType.I32
BYTES = (DType.U8, DType.I8)
SCALE, ROUNDED, LAST, FLOAT = np.float32(2e-4), np.float32(0.031), np.float32(0.37), np.float32(0.5)
"""Of the scores, of scores that are rounded, of results that are, and of operands that are."""
NEAR = 2e-5
"""How near to a tie, beside its size, a weight may be rounded to the other side."""


@dataclass(frozen=True)
class Form:
    """Sizes, dtypes and zero points of the four operands, and what stands between and behind the products.

    dtypes  of queries, keys, weights and values; `zeros` likewise
    step    of the weights
    mask    none, one number for each key, or one for each query and key of which some rows hide everything
    scored  whether scores are rounded to bytes and back
    last    whether results are rounded to bytes
    split   whether operands are [batch, tokens, heads * depth], split and transposed, and so is the result
    floats  whether operands are floats, rounded where they are read
    """

    batch: int = 1
    heads: int = 2
    queries: int = 9
    keys: int = 20
    depth: int = 8
    columns: int = 8
    dtypes: tuple[DType, DType, DType, DType] = (DType.U8, DType.U8, DType.U8, DType.U8)
    zeros: tuple[int, int, int, int] = (130, 128, 0, 130)
    step: float = 0.004
    mask: str = "none"
    scored: bool = False
    last: bool = False
    split: bool = False
    floats: bool = False

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of queries, keys and values, [batch, heads, tokens, width]."""
        sizes = (self.queries, self.depth), (self.keys, self.depth), (self.keys, self.columns)
        return tuple((self.batch, self.heads, *size) for size in sizes)

    @property
    def mask_shape(self) -> tuple[int, ...]:
        return (self.batch, 1, 1, self.keys) if self.mask == "keys" else (self.queries, self.keys)

    def graph(self) -> Graph:
        """Products of bytes as `MatMulInteger`, their results scaled."""
        s = Sketch(0, F32)
        q, k, v = (
            self._operand(s, shape, dtype)
            for shape, dtype in zip(self.shapes, (*self.dtypes[:2], self.dtypes[3]), strict=True)
        )
        turned = s("Transpose", k, perm=(0, 1, 3, 2))
        q, turned, v = (self._rounded(s, x, at) for x, at in zip((q, turned, v), (0, 1, 3), strict=True))
        x = self._product(s, q, turned, 0, SCALE)
        if self.mask != "none":
            x = s("Add", x, s.x(*self.mask_shape))
        if self.scored:
            x = s("QuantizeLinear", x, s.c(ROUNDED), s.c(120, DType.U8))
            x = s("DequantizeLinear", x, s.c(ROUNDED), s.c(120, DType.U8))
        w = s("QuantizeLinear", s("Softmax", x, axis=-1), s.c(self.step), s.c(self.zeros[2], self.dtypes[2]))
        y = self._product(s, w, v, 2, np.float32(self.step))
        if self.last:
            y = s("QuantizeLinear", y, s.c(LAST), s.c(7, DType.U8))
        return s.graph(s("Transpose", y, perm=(0, 2, 1, 3)) if self.split else y)

    def _operand(self, s: Sketch, shape: tuple[int, ...], dtype: DType) -> int:
        given = F32 if self.floats else dtype
        if not self.split:
            return s.x(*shape, dtype=given)
        batch, heads, tokens, width = shape
        x = s.x(batch, tokens, heads * width, dtype=given)
        return s("Transpose", s("Reshape", x, None, shape=(batch, tokens, heads, width)), perm=(0, 2, 1, 3))

    def _rounded(self, s: Sketch, x: int, at: int) -> int:
        return s("QuantizeLinear", x, s.c(FLOAT), s.c(self.zeros[at], self.dtypes[at])) if self.floats else x

    def _product(self, s: Sketch, a: int, b: int, at: int, scale: np.float32) -> int:
        zeros = [s.c(self.zeros[at + side], self.dtypes[at + side]) for side in (0, 1)]
        sums = s("MatMulInteger", a, b, *zeros)
        return s("Mul", s("Cast", sums, to=1), s.c(scale))

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        """Bytes of which a third are the least or the greatest, and the mask."""
        random, found = np.random.default_rng(seed), []
        for shape, dtype in zip(self.shapes, (*self.dtypes[:2], self.dtypes[3]), strict=True):
            limits = np.iinfo(dtype.numpy)
            plain = random.integers(limits.min, limits.max + 1, shape)
            ends = random.choice([limits.min, limits.max], shape)
            found.append(np.where(random.random(shape) < 0.3, ends, plain).astype(dtype.numpy))
        if self.mask == "keys":
            found.append(random.normal(size=self.mask_shape).astype(np.float32))
        if self.mask == "hidden":
            hidden = np.where(random.random(self.mask_shape) < 0.4, -np.inf, 0).astype(np.float32)
            hidden[::3] = -np.inf
            found.append(hidden)
        return found

    def laid_out(self, found: list[np.ndarray]) -> list[np.ndarray]:
        """The same as the graph takes them."""
        operands = found[:3]
        if self.floats:
            zeros = (*self.zeros[:2], self.zeros[3])
            operands = [(x.astype(np.float32) - zero) * FLOAT for x, zero in zip(operands, zeros, strict=True)]
        if self.split:
            operands = [x.transpose(0, 2, 1, 3).reshape(len(x), x.shape[2], -1) for x in operands]
        return [*operands, *found[3:]]

    def wanted(self, found: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """What comes out, and by how much each element may differ since weights near to a tie may fall either way.

        Both are [batch, heads, tokens, width]. Sums are of whole numbers, scores in fp32, the softmax in float64.
        """
        q, k, v = (
            array.astype(np.int64) - zero
            for array, zero in zip(found[:3], (*self.zeros[:2], self.zeros[3]), strict=True)
        )
        x = (q @ k.swapaxes(-1, -2)).astype(np.float32) * SCALE
        if self.mask != "none":
            x = x + found[3]
        if self.scored:
            x = (np.clip(np.rint(x / ROUNDED) + np.float32(120), 0, 255) - np.float32(120)) * ROUNDED
        wide = x.astype(np.float64)
        with np.errstate(invalid="ignore"):
            powers = np.exp(wide - wide.max(-1, keepdims=True))
            quotients = powers / powers.sum(-1, keepdims=True) / np.float32(self.step)
        limits = np.iinfo(self.dtypes[2].numpy)
        bytes_ = np.nan_to_num(np.clip(np.rint(quotients) + self.zeros[2], limits.min, limits.max), nan=0.0)
        near = np.abs(quotients - np.floor(quotients) - 0.5) < NEAR * (1 + quotients)
        sums = (bytes_.astype(np.int64) - self.zeros[2]) @ v
        y = sums.astype(np.float32) * np.float32(self.step)
        slack = (near.astype(np.int64) @ np.abs(v)) * float(np.float32(self.step))
        if self.last:
            y = np.clip(np.rint(y / LAST) + 7, 0, 255)
            slack = np.where(slack > 0, np.ceil(slack / LAST), 0)
        return y, slack


@st.composite
def forms(draw: st.DrawFn) -> Form:
    """Of all sizes that blocks, panels, groups and vectors leave a rest of, and zero points at both ends."""

    def size(*sizes: int) -> int:
        return draw(st.sampled_from(sizes))

    dtypes = tuple(draw(st.sampled_from(BYTES)) for _ in range(4))
    zeros: list[Any] = []
    for dtype in dtypes:
        limits = np.iinfo(dtype.numpy)
        middle = 0 if dtype is DType.I8 else 128
        zeros.append(draw(st.sampled_from([limits.min, middle, middle, middle + 3, limits.max])))
    return Form(
        size(1, 1, 2),
        size(1, 2, 3),
        size(4, 5, 16, 29, 33, 58),
        size(2, 7, 16, 40, 65, 100, 197),
        size(2, 3, 8, 16, 20, 33, 64, 70),
        size(2, 8, 16, 20, 65),
        dtypes,  # type: ignore[arg-type]
        tuple(zeros),
        draw(st.sampled_from([0.004, 0.0009])),
        draw(st.sampled_from(["none", "keys", "hidden"])),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from([False, False, True])),
    )


def join_of(form: Form) -> tuple[KernelGraph, Join]:
    """The kernels of a form's graph, and the one join of attention of bytes."""
    kernels = fuse(form.graph()).kernels
    (found,) = joins(kernels, frozenset({"byte_attention"}))
    return kernels, found
