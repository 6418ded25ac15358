"""Operators of com.microsoft that belong to no group: distances, inverses, hashes, and older forms of ai.onnx's own.

Source: ONNX Runtime's ContribOperators.md, and its CPU kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.fused import AGAIN, is_there, named, number
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import AttrValue, Call, Expansion
from compiler.frontend.reading.tensors import CODES
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

LARGEST_INVERSE = 4
"""Rows of a matrix whose inverse is written out; cofactors of larger ones lose digits."""


def cdist(site: Site) -> Expansion:
    """Y [M, N]: the distances, or their squares, of the rows of A [M, K] to those of B [N, K]."""
    a, b, metric = site.first, site.given(1), site.call.attrs.get("metric", "sqeuclidean")
    if a.rank != 2 or b.rank != 2 or metric not in ("euclidean", "sqeuclidean"):
        raise Unsupported(f"{a}, {b} and metric {metric!r:.40} are not understood", AGAIN)
    composition = Composition(site)
    rows = [composition.call("Unsqueeze", f"x{at}", composition.ints(1 - at)) for at in (0, 1)]
    apart = composition.call("Sub", *rows)
    op = "ReduceL2" if metric == "euclidean" else "ReduceSumSquare"
    return composition.gives(composition.call(op, apart, composition.ints(2), keepdims=0))


def inverse(site: Site) -> Expansion:
    """The inverse of each matrix of at most LARGEST_INVERSE rows: the transposed cofactors over the determinant.

    Each cofactor is a sum over permutations of signed products, for all of them at once (the rule of Leibniz).
    """
    x = site.first
    rows = x.dims[-1] if x.rank >= 2 else 0
    if x.rank < 2 or x.dims[-2] != rows or not 1 <= rows <= LARGEST_INVERSE:
        raise Unsupported(f"{x} holds no square matrices of at most {LARGEST_INVERSE} rows", "compute it on the host")
    composition = Composition(site)
    call = composition.call
    kind = DType.F64 if x.dtype is DType.F64 else DType.F32
    flat = composition.cast(composition.reshape("x0", *x.dims[:-2], rows * rows), x.dtype, kind)
    others = [[at for at in range(rows) if at != left] for left in range(rows)]
    orders = list(permutations(range(rows - 1)))
    signs = np.array([round(float(np.linalg.det(np.eye(rows - 1)[list(order)]))) for order in orders])
    pairs = [(row, column) for column in range(rows) for row in range(rows)]  # transposed
    signed = np.array([[(-1) ** (row + column)] for row, column in pairs]) * signs  # [rows * rows, orders]
    total = composition.constant(signed.astype(kind.numpy))
    for step in range(rows - 1):
        read = [[others[row][step] * rows + others[column][order[step]] for order in orders] for row, column in pairs]
        factor = call("Gather", flat, composition.constant(np.array(read, np.int64)), axis=x.rank - 2)
        total = call("Mul", total, factor)
    if rows == 1:
        total = composition.constant(np.ones((1, 1), kind.numpy))
    adjugate = call("ReduceSum", total, composition.ints(-1), keepdims=0)
    begin = call("Gather", flat, composition.ints(*range(rows)), axis=x.rank - 2)
    first = composition.ints(*range(0, rows * rows, rows))
    column = call("Gather", adjugate, first, axis=x.rank - 2) if rows > 1 else adjugate
    whole = call("ReduceSum", call("Mul", begin, column), composition.ints(-1), keepdims=1)
    return composition.gives(
        composition.cast(composition.reshape(call("Div", adjugate, whole), *x.dims), kind, x.dtype)
    )


def no_repeated_ngrams(site: Site) -> Expansion:
    """Scores [B, V] of the next token: -infinity for tokens that would repeat n tokens of ids [B, S]."""
    ids, scores, size = site.first, site.given(1), site.integer("ngram_size", 0)
    if ids.rank != 2 or scores.rank != 2 or ids.dims[0] != scores.dims[0] or size < 1:
        raise Unsupported(f"{ids} and {scores} with n-grams of {size} tokens do not fit together", AGAIN)
    composition = Composition(site)
    call = composition.call
    windows = ids.dims[1] - size + 1
    if windows < 1:
        return composition.gives("x1")
    tokens = call("Slice", "x0", *map(composition.ints, (size - 1, ids.dims[1], 1)))
    most, least = (number(composition, value, scores.dtype) for value in (np.inf, -np.inf))
    updates = call("Expand", least, composition.ints(ids.dims[0], windows))
    if size > 1:
        places = np.arange(windows)[:, None] + np.arange(size - 1)
        each = call("Gather", "x0", composition.constant(places), axis=1)  # [B, windows, n - 1]
        end = call("Slice", "x0", *map(composition.ints, (ids.dims[1] - size + 1, ids.dims[1], 1)))
        alike = call("Cast", call("Equal", each, call("Unsqueeze", end, composition.ints(1))), to=CODES[DType.I32])
        every = call("ReduceMin", alike, composition.ints(2), keepdims=0)
        updates = call("Where", call("Cast", every, to=CODES[DType.BOOL]), least, most)
    return composition.gives(call("ScatterElements", "x1", tokens, updates, axis=1, reduction="min"))


def murmur_hash(site: Site) -> Expansion:
    """MurmurHash3 (x86, 32 bits) of each number by its bytes, from `seed`; unsigned where `positive` is 1."""
    kind = site.first.dtype
    if site.is_text:
        raise Unsupported("its input is strings, whose characters no program has", "hash them on the host")
    if kind.bytes not in (4, 8):
        raise Unsupported(f"numbers of {kind.bytes} bytes are not hashed", AGAIN)
    composition = Composition(site)
    call = composition.call
    u32, u64 = CODES[DType.U32], CODES[DType.U64]

    def const(value: int) -> str:
        return composition.constant(np.array(value % 2**32, np.uint32))

    def rotated(name: str, by: int) -> str:
        left = call("BitShift", name, const(by), direction="LEFT")
        return call("BitwiseOr", left, call("BitShift", name, const(32 - by), direction="RIGHT"))

    def mixed(name: str, by: int) -> str:
        return call("BitwiseXor", name, call("BitShift", name, const(by), direction="RIGHT"))

    if kind.bytes == 4:
        words = ["x0" if kind is DType.U32 else call("BitCast", "x0", to=u32)]
    else:
        whole = "x0" if kind is DType.U64 else call("BitCast", "x0", to=u64)
        low = call("BitwiseAnd", whole, composition.constant(np.array(2**32 - 1, np.uint64)))
        high = call("BitShift", whole, composition.constant(np.array(32, np.uint64)), direction="RIGHT")
        words = [call("Cast", part, to=u32) for part in (low, high)]
    found = const(site.integer("seed", 0))
    for word in words:
        scrambled = call("Mul", rotated(call("Mul", word, const(0xCC9E2D51)), 15), const(0x1B873593))
        turned = rotated(call("BitwiseXor", scrambled, found), 13)
        found = call("Add", call("Mul", turned, const(5)), const(0xE6546B64))
    found = call("BitwiseXor", found, const(kind.bytes))
    for by, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        found = call("Mul", mixed(found, by), const(factor))
    found = mixed(found, 16)
    return composition.gives(found if site.integer("positive", 1) else call("BitCast", found, to=CODES[DType.I32]))


def expand_dims(site: Site) -> Expansion:
    """X with one axis more, at a place that must be known."""
    axis = site.known_scalar(1, "axis")
    composition = Composition(site)
    return composition.gives(composition.call("Unsqueeze", "x0", composition.ints(axis or 0)))


def pad(site: Site) -> Expansion:
    """Pad whose pads [2 n] or [1, 2 n] must be known."""
    pads = site.known(1, "pads")
    composition = Composition(site)
    ends = composition.ints(*(() if pads is None else pads.reshape(-1).tolist()))
    value = site.types[2] if len(site.types) > 2 else None
    more = () if value is None else (composition.reshape("x2"),)
    mode: AttrValue = site.call.attrs.get("mode", "constant")
    return composition.gives(composition.call("Pad", "x0", ends, *more, mode=mode))


def range_(site: Site) -> Expansion:
    """Range from start below limit by delta, 1 where it is absent."""
    composition = Composition(site)
    delta = "x2" if is_there(site, 2) else number(composition, 1, site.first.dtype)
    scalars = (composition.call("Reshape", name, composition.ints(), allowzero=0) for name in ("x0", "x1", delta))
    return composition.gives(composition.call("Range", *scalars))


def unique(site: Site) -> Expansion:
    """The elements of a vector without repetition, in order; where each lies among them; how often each is there."""
    return site.becomes(Call("Unique", ("x0",), ("y0", "", "y1", "y2"), {"sorted": 0}))


def identity(site: Site) -> Expansion:
    """The input."""
    return site.becomes(Call("Identity", ("x0",), ("y0",)))


def spectrum(back: bool) -> Callable[[Site], Expansion]:
    """Rfft of real signals X [..., n] to [..., n // 2 + 1, 2]; Irfft of those to signals of 2 (bins - 1) numbers."""

    def rule(site: Site) -> Expansion:
        shape = (site.integer("signal_ndim", 1), site.integer("normalized", 0), site.integer("onesided", 1))
        if shape != (1, 0, 1):
            raise Unsupported(f"(signal_ndim, normalized, onesided) is {shape}, not (1, 0, 1)", AGAIN)
        composition = Composition(site)
        x, rank = site.first, site.first.rank + (not back)
        if rank < 2 or (back and x.shape[-1] != 2):
            raise Unsupported(f"{x} holds no {'complex numbers' if back else 'signals'}", AGAIN)
        signal = "x0" if back else composition.call("Unsqueeze", "x0", composition.ints(-1))
        axis = composition.constant(np.array(rank - 2, np.int64))
        y = composition.call("DFT", signal, "", axis, onesided=1, inverse=int(back))
        if back:
            y = composition.call("Squeeze", y, composition.ints(-1))
        return composition.gives(y)

    return rule


def bias_split_gelu(site: Site) -> Expansion:
    """left gelu(right) of the halves of X [..., 2 D] + bias [2 D]."""
    x = site.first
    if not x.rank or x.dims[-1] % 2:
        raise Unsupported(f"{x} has no halves", AGAIN)
    composition = Composition(site)
    half, axis = x.dims[-1] // 2, x.rank - 1
    total = composition.call("Add", "x0", "x1")
    left, right = (
        composition.call("Slice", total, *map(composition.ints, (begin, begin + half, axis))) for begin in (0, half)
    )
    return composition.gives(composition.call("Mul", left, composition.call("Gelu", right, approximate="none")))


ASSORTED: dict[str, Callable[[Site], Expansion]] = {
    "BiasSplitGelu": bias_split_gelu,
    "CDist": cdist,
    "ExpandDims": expand_dims,
    "GatherND": named("GatherND", 13),
    "GridSample": named("GridSample", 16),
    "Inverse": inverse,
    "Irfft": spectrum(back=True),
    "MurmurHash3": murmur_hash,
    "NGramRepeatBlock": no_repeated_ngrams,
    "Pad": pad,
    "Range": range_,
    "Rfft": spectrum(back=False),
    "SampleOp": identity,
    "Unique": unique,
}
