"""Attention as com.microsoft has it: Attention, MultiHeadAttention and QAttention over ai.onnx.

Source: ONNX Runtime's ContribOperators.md; for what becomes of scores that are masked, its CPU kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.fused import AGAIN, across, is_there, number, real
from compiler.frontend.expansions.grouped import grouped
from compiler.frontend.expansions.rotary import rotary
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Unsupported

LOWEST = float(np.finfo(np.float32).min)
"""What a score becomes that lies in the future."""


@dataclass(frozen=True)
class Heads:
    """The queries [B, N, S, h], keys [B, N, T, h] and values [B, N, T, v] of one call, and what says who sees whom."""

    site: Site
    composition: Composition
    dtype: DType
    q: str
    k: str
    v: str

    def result(self, scale: float, mask: str, bias: str, causal: bool) -> str:
        """[B, S, N v]: softmax(scale Q K^T + mask + bias) V."""
        call = self.composition.call
        scores = call("MatMul", self.q, across(self.composition, self.k, 4))
        scores = call("Mul", scores, number(self.composition, scale, self.dtype))
        for more in (mask, bias):
            scores = call("Add", scores, more) if more else scores
        if causal:
            scores = call("Where", self._past(), scores, number(self.composition, LOWEST, self.dtype))
        mixed = call("MatMul", call("Softmax", scores, axis=-1), self.v)
        flat = call("Transpose", mixed, perm=(0, 2, 1, 3))
        return call("Reshape", flat, self.composition.ints(0, 0, -1), allowzero=0)

    def _past(self) -> str:
        """[S, T]: whether a key does not lie behind its query; the last query sees all keys."""
        call = self.composition.call
        queries, keys = (_length(self.composition, name, 2) for name in (self.q, self.k))
        zero, one = (self.composition.constant(np.array(item, np.int64)) for item in (0, 1))
        rows = call("Add", call("Range", zero, queries, one), call("Sub", keys, queries))
        return call("LessOrEqual", call("Range", zero, keys, one), call("Unsqueeze", rows, self.composition.ints(1)))

    def mask(self, position: int) -> str:
        """[B, 1, S or 1, T], the filter's value for keys that a mask of 0 and 1, or a length of each row, leaves out.

        A mask is [B, T], [B, S, T] or [B, 1, S, T], lengths are [B]; the empty name where there is none.
        """
        if not is_there(self.site, position):
            return ""
        kind, name, call = self.site.given(position), f"x{position}", self.composition.call
        if kind.rank == 1:
            self._demand_lengths(kind)
            length = call("Cast", _length(self.composition, self.k, 2), to=7)
            zero, one = (self.composition.constant(np.array(item, np.int64)) for item in (0, 1))
            ends = call("Unsqueeze", call("Cast", name, to=7), self.composition.ints(1))
            seen = call("Less", call("Range", zero, length, one), ends)
        else:
            seen = call("Greater", name, number(self.composition, 0, kind.dtype))
        axes = {1: (1, 2), 2: (1, 2), 3: (1,), 4: ()}.get(kind.rank)
        if axes is None:
            raise Unsupported(f"its mask is {kind}", AGAIN)
        seen = call("Unsqueeze", seen, self.composition.ints(*axes)) if axes else seen
        filled = real(self.site, "mask_filter_value", -10000.0)
        return call("Where", seen, *(number(self.composition, item, self.dtype) for item in (0.0, filled)))

    def _demand_lengths(self, kind: TensorType) -> None:
        rows, batch = kind.shape[0], self.site.first.shape[0]
        if rows != batch:
            raise Unsupported(f"its mask is {kind}, which is no length for each row", "give a mask of 0 and 1")


def _length(composition: Composition, name: str, axis: int) -> str:
    """The size of an axis, a scalar."""
    size = composition.call("Shape", name, start=axis, end=axis + 1)
    return composition.call("Squeeze", size, composition.ints(0))


def _split(composition: Composition, name: str, heads: int) -> str:
    """[B, S, N h] as [B, N, S, h]."""
    apart = composition.call("Reshape", name, composition.ints(0, 0, heads, -1), allowzero=0)
    return composition.call("Transpose", apart, perm=(0, 2, 1, 3))


def _heads(site: Site) -> int:
    count = site.integer("num_heads", 0)
    if count < 1:
        raise Unsupported(f"num_heads is {count}", AGAIN)
    return count


def _plain(site: Site, *names: str) -> None:
    """Raises Unsupported where one of these attributes is set."""
    for name in names:
        if site.call.attrs.get(name):
            raise Unsupported(f"attribute {name!r} is set", AGAIN)


def _scale(site: Site, width: int) -> float:
    found = real(site, "scale", 0.0)
    return found or float(width) ** -0.5


def _known(kind: TensorType, axis: int) -> int:
    """An extent that must be known when compiling."""
    found = kind.shape[axis] if kind.rank else None
    if not isinstance(found, int):
        raise Unsupported(f"axis {axis} of {kind} is not known", "bind that dimension to a number")
    return found


def attention(site: Site) -> Expansion:
    """softmax(Q K^T) V of one input [B, S, D] by one matrix [D, 3 N h]; bias, mask, past, and a bias of scores."""
    composition = Composition(site)
    product = composition.call("MatMul", "x0", "x1")
    return _attention(site, composition, product, _known(site.given(1), 1), (2, 3, 4, 5, 6))


def of_bytes(site: Site) -> Expansion:
    """QAttention: as `attention`, of an input and weights that are quantised."""
    composition = Composition(site)
    zeros = [f"x{at}" if is_there(site, at) else "" for at in (6, 7)]
    x = composition.call("DequantizeLinear", "x0", "x3", zeros[0])
    w = composition.call("DequantizeLinear", "x1", "x4", zeros[1], axis=1)
    product = composition.call("MatMul", x, w)
    return _attention(site, composition, product, _known(site.given(1), 1), (2, 5, 8, 99, 99))


def _attention(site: Site, composition: Composition, product: str, width: int, places: Sequence[int]) -> Expansion:
    """Attention of what the input's product with the weights is.

    places   of bias, mask, past, a bias of scores, and how long the past is in a shared buffer
    """
    bias, mask, past, scores_bias, shared = places
    _plain(site, "do_rotary", "past_present_share_buffer")
    if is_there(site, shared):
        raise Unsupported("its past lies in a buffer that it shares", "export with past and present apart")
    heads = _heads(site)
    sizes = site.ints("qkv_hidden_sizes") or (width // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != width or any(size % heads for size in sizes):
        raise Unsupported(f"{width} columns do not make queries, keys and values of {heads} heads", AGAIN)
    if is_there(site, bias):
        product = composition.call("Add", product, f"x{bias}")
    ends = np.cumsum((0, *sizes)).tolist()
    parts = [
        composition.call("Slice", product, *(composition.ints(item) for item in (begin, end, 2)))
        for begin, end in pairwise(ends)
    ]
    q, k, v = (_split(composition, part, heads) for part in parts)
    if is_there(site, past):
        before = [
            composition.call("Gather", f"x{past}", composition.constant(np.array(at, np.int64)), axis=0)
            for at in (0, 1)
        ]
        k, v = (composition.call("Concat", old, new, axis=2) for old, new in zip(before, (k, v), strict=True))
    dtype = site.given(2).dtype if is_there(site, 2) else site.first.dtype
    each = Heads(site, composition, dtype, q, k, v)
    more = f"x{scores_bias}" if is_there(site, scores_bias) else ""
    y = each.result(_scale(site, sizes[0] // heads), each.mask(mask), more, bool(site.integer("unidirectional", 0)))
    if not site.call.outputs[1:2] or not site.call.outputs[1]:
        return composition.gives(y)
    rows = [composition.call("Unsqueeze", part, composition.ints(0)) for part in (k, v)]
    return composition.gives(y, composition.call("Concat", *rows, axis=0))


def multi_head(site: Site) -> Expansion:
    """MultiHeadAttention: query [B, S, N h], key and value [B, T, N h], or [B, N, T, h] of another sequence; a past.

    Inputs: query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value.
    """
    if not (is_there(site, 1) and is_there(site, 2)) or site.first.rank != 3:
        raise Unsupported("its queries, keys and values lie in one tensor", "export them apart")
    if any(is_there(site, at) for at in (8, 9)):
        raise Unsupported("its past lies in a buffer that it shares", "export with past and present apart")
    composition = Composition(site)
    heads, width = _heads(site), _known(site.first, 2)
    found = []
    begin = 0
    for at in range(3):
        kind, part = site.given(at), f"x{at}"
        if kind.rank == 4:
            found.append(part)
            continue
        size = _known(kind, 2)
        if is_there(site, 3):
            ends = (composition.ints(item) for item in (begin, begin + size, 0))
            part = composition.call("Add", part, composition.call("Slice", "x3", *ends))
        begin += size
        found.append(_split(composition, part, heads))
    q, k, v = found
    if is_there(site, 6) and is_there(site, 7):
        k, v = (composition.call("Concat", old, new, axis=2) for old, new in (("x6", k), ("x7", v)))
    each = Heads(site, composition, site.first.dtype, q, k, v)
    more = "x5" if is_there(site, 5) else ""
    causal = bool(site.integer("unidirectional", 0))
    return composition.gives(each.result(_scale(site, width // heads), each.mask(4), more, causal), k, v)


HEADS: dict[str, Callable[[Site], Expansion]] = {
    "Attention": attention,
    "GroupQueryAttention": grouped,
    "MultiHeadAttention": multi_head,
    "QAttention": of_bytes,
    "RotaryEmbedding": rotary,
}
