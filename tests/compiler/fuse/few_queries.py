"""Attention over shared heads as decoders write it, in the forms that masks have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from compiler.fuse import fuse
from compiler.fuse.joins import Join, joins
from compiler.ir.buffers import KernelGraph
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType, TensorType
from tests.compiler.rewrite.sketch import Sketch

PLACED = ("past", "window", "reversed", "infinite", "infinities", "added_lowest", "triangle", "added_triangle")
"""Masks that are comparisons with the place of a key."""
LOWEST = -3e38


@dataclass(frozen=True)
class Form:
    """Sizes, and what stands between the products.

    new      queries of each head; `groups` heads of queries share one of keys
    mask     none; a size from which on scores are -infinity and weights 0; a comparison of places with the last one of
             each query, as it is, with a window, or with its sides exchanged; zeros and -infinity, or LOWEST, by such
             comparisons, which are added; constants that are triangular; a given condition of each score; a number
             that is added
    dropped  rows of the softmax are made 0 by a given condition
    sink     before the first key there is one of zeros, with a given score and a value of zeros
    across   keys lie beside each other in memory, not the elements of one
    held     what keys and values lie in memory as; bytes have a scale for each key
    lowest   what scores become that the mask leaves out
    """

    batch: int = 1
    heads: int = 2
    groups: int = 2
    new: int = 1
    keys: int = 40
    depth: int = 16
    columns: int = 16
    mask: str = "past"
    across: bool = False
    held: DType = DType.F32
    softcap: bool = False
    biased: bool = False
    lowest: float = LOWEST
    dropped: bool = False
    sink: bool = False

    @property
    def rows(self) -> int:
        return self.groups * self.new

    def graph(self) -> Graph:
        """The network: results are [batch, new, heads, groups, columns]."""
        s = Sketch(0, DType.F32)
        lead = (self.batch, self.heads)
        caches: list[int] = []
        q = s.x(*lead, self.groups, self.new, self.depth)
        if self.across:
            keys = self._cache(s, caches, (*lead, 1, self.depth, self.keys - self.sink), 3)
        else:
            keys = self._cache(s, caches, (*lead, 1, self.keys - self.sink, self.depth), 4)
            keys = s("Transpose", keys, perm=(0, 1, 2, 4, 3))
        values = self._cache(s, caches, (*lead, 1, self.keys - self.sink, self.columns), 4)
        if self.sink:
            keys = s("Pad", keys, None, pads=(0, 0, 0, 0, 1, 0, 0, 0, 0, 0), mode="constant")
            values = s("Pad", values, None, pads=(0, 0, 0, 1, 0, 0, 0, 0, 0, 0), mode="constant")
        scores = s("Mul", s("MatMul", q, keys), s.c(0.3))
        if self.softcap:
            scores = s("Mul", s("Tanh", s("Div", scores, s.c(2.0))), s.c(2.0))
        if self.biased:
            scores = s("Add", scores, s.x(1, self.heads, self.groups, self.new, self.keys))
        if self.sink:
            first = s.c(np.arange(self.keys) == 0, DType.BOOL)
            scores = s("Where", first, s.x(1, self.heads, self.groups, 1, 1), scores)
        size = s.x(dtype=DType.I64) if self.mask == "sized" else None
        if size is not None:
            scores = s("PadBeyond", scores, size, axis=4, value=float("-inf"))
        weights = s("Softmax", self._masked(s, scores), axis=-1)
        if size is not None:
            weights = s("PadBeyond", weights, size, axis=4)
        if self.dropped:
            rows = s.x(self.batch, 1, 1, self.new, 1, dtype=DType.BOOL)
            weights = s("Where", rows, *((s.c(0.0), weights) if self.new % 2 else (weights, s.c(0.0))))
        mixed = s("MatMul", weights, values)
        return s.graph(s("Transpose", mixed, perm=(0, 3, 1, 2, 4)), *caches)

    def _cache(self, s: Sketch, caches: list[int], dims: tuple[int, ...], axis: int) -> int:
        """Keys or values of which the elements of one lie along an axis; what holds them is a result, too."""
        if self.held is DType.F32:
            return s.x(*dims)
        caches.append(s.x(*dims, dtype=self.held))
        if self.held is DType.BF16:
            return s("Cast", caches[-1], to=1)
        scales = s.x(*dims[:axis], 1, *dims[axis + 1 :])
        return s("DequantizeLinear", caches[-1], scales, axis=axis, block_size=dims[axis])

    def _masked(self, s: Sketch, scores: int) -> int:
        lowest = s.c(self.lowest)
        if self.mask == "given":
            return s("Where", s.x(self.batch, 1, 1, self.new, self.keys, dtype=DType.BOOL), scores, lowest)
        if self.mask == "added":
            return s("Add", s.x(self.batch, 1, 1, self.new, self.keys), scores)
        if self.mask in ("none", "sized"):
            return scores
        if "triangle" in self.mask:
            inside = np.tri(self.new, self.keys, self.keys // 3, dtype=np.bool_)
            if self.mask == "triangle":
                return s("Where", s.c(inside, DType.BOOL), scores, lowest)
            return s("Add", scores, s.c(np.where(inside, 0, np.float32(LOWEST)).reshape(1, 1, self.new, self.keys)))
        places = s.c(np.arange(self.keys), DType.I64)
        last = s.x(self.batch, 1, 1, self.new, 1, dtype=DType.I64)
        if self.mask == "reversed":
            before = s.c(np.arange(self.keys) - 1, DType.I64)
            return s("Where", s("Greater", last, before), scores, lowest)
        seen = s("LessOrEqual", places, last)
        if self.mask == "infinite":
            return s("Add", scores, s("Where", seen, s.c(0.0), s.c(-np.inf)))
        if self.mask == "added_lowest":
            return s("Add", scores, s("Where", seen, s.c(0.0), s.c(LOWEST)))
        if self.mask == "infinities":
            early = s("Less", places, s.c(3, DType.I64))
            later = s("Where", s("Less", last, places), s.c(-np.inf), s.c(0.0))
            return s("Add", s("Add", later, s("Where", early, s.c(-np.inf), s.c(0.0))), scores)
        if self.mask == "window":
            seen = s("And", seen, s("Greater", places, s("Sub", last, s.c(5, DType.I64))))
        return s("Where", seen, scores, lowest)

    def array(self, type: TensorType, random: np.random.Generator) -> np.ndarray:
        """Of an operand: places lie inside, at the ends and far beyond them."""
        if type == TensorType(DType.I64, ()):
            return np.array(random.integers(0, self.keys + 1))
        if type.dtype is DType.I64:
            ends = [0, 1, self.keys // 2, self.keys - 1, self.keys, -1, -(2**63), 2**63 - 1]
            near = random.integers(0, self.keys, type.dims)
            return np.where(random.random(type.dims) < 0.7, near, random.choice(np.array(ends), type.dims))
        if type.dtype is DType.BOOL:
            return random.random(type.dims) < 0.6
        if type.dtype is DType.I8:
            return random.integers(-127, 128, type.dims, np.int8)
        return random.normal(size=type.dims).astype(type.dtype.numpy)


def forms(
    most: int = 16, new: tuple[int, ...] = (1, 1, 2, 3, 4, 5), keys: tuple[int, ...] = (3, 7, 16, 40, 65, 130)
) -> st.SearchStrategy[Form]:
    """Of so many rows at most."""
    return st.builds(
        Form,
        batch=st.sampled_from([1, 1, 2]),
        heads=st.integers(1, 3),
        groups=st.sampled_from([1, 1, 2, 3, 4, 7]),
        new=st.sampled_from(new),
        keys=st.sampled_from(keys),
        depth=st.sampled_from([2, 8, 16, 20, 33, 128]),
        columns=st.sampled_from([2, 8, 16, 20, 65, 128]),
        mask=st.sampled_from(["none", "given", "added", "sized", *PLACED, *PLACED]),
        across=st.booleans(),
        held=st.sampled_from([DType.F32, DType.F32, DType.BF16, DType.I8]),
        softcap=st.booleans(),
        biased=st.booleans(),
        lowest=st.sampled_from([LOWEST, LOWEST, -np.inf, -65504.0, -10.0]),
        dropped=st.sampled_from([False, False, True]),
        sink=st.sampled_from([False, False, True]),
    ).filter(lambda form: form.rows <= most and not (form.dropped and form.mask == "sized"))


def join_of(form: Form) -> tuple[KernelGraph, Join | None]:
    """A network's kernels, and the join that there is."""
    kernels = fuse(form.graph()).kernels
    found = joins(kernels, frozenset({"few_queries", "key_ends"}))
    assert len(found) <= 1, f"{form}\n{kernels}"
    return kernels, found[0] if found else None
