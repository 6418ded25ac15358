"""DFT and STFT as matrix products with constants, long transforms in steps (Cooley and Tukey, 1965).

A signal of N complex numbers is a row of 2 N numbers, and its transform the product with a matrix of 2 N columns. Past
`DIRECT` a transform of N = A B numbers becomes B of A numbers each, turned by twiddle factors, and A of B numbers each.
"""

from __future__ import annotations

import math

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion
from compiler.ir.tensor import static
from compiler.ops.operator import Unsupported

DIRECT = 256
"""Longest transform that is one product where its length has factors."""
OPEN = -1
"""A number of signals that is not known: what a Reshape finds out."""
MOST_ELEMENTS = 2**24
"""Of a matrix of cosines and sines."""


def dft(site: Site) -> Expansion:
    """X [..., n, 1 or 2] along `axis`, whose length, like `dft_length`, must be known; the last axis is (re, im)."""
    x = site.first
    asked = site.known_scalar(2, "axis")
    axis = -2 if asked is None else asked
    if x.rank < 2 or x.shape[-1] not in (1, 2) or not -x.rank <= axis < x.rank or axis % x.rank == x.rank - 1:
        raise Unsupported(f"axis {axis} of {x} holds no complex numbers", "give a last axis of 1 or 2")
    axis %= x.rank
    back, half = bool(site.integer("inverse", 0)), bool(site.integer("onesided", 0))
    length = site.known_scalar(1, "dft_length")
    given, parts_given = static((x.shape[axis], x.shape[-1]))
    if length is None:
        length = 2 * (given - 1) if back and half else given
    if length < 1 or 0 in x.shape:
        raise Unsupported(f"a transform of {length} numbers of {x}", "give a length of 1 or more")
    composition = Composition(site)
    others = [place for place in range(x.rank - 1) if place != axis]
    order = (*others, axis, x.rank - 1)
    around = [dim for place in others if isinstance(dim := x.shape[place], int)]
    rows = math.prod(around) if len(around) == len(others) else OPEN
    turned = composition.call("Transpose", "x0", perm=order)
    moved = composition.reshape(turned, rows, given, parts_given)
    transform = _Transform(composition, rows, x.dtype.numpy)
    if back and half:
        out, parts = transform.to_real(moved, given, parts_given, length), 1
    else:
        out, parts = transform.whole(moved, given, parts_given, length, back=back, half=half), 2
    bins = length // 2 + 1 if half and not back else length
    if rows == OPEN:
        sizes = composition.call("Shape", turned, start=0, end=len(others))
        shape = composition.call("Concat", sizes, composition.ints(bins, parts), axis=0)
        spread = composition.call("Reshape", out, shape, allowzero=1)
    else:
        spread = composition.reshape(out, *around, bins, parts)
    return composition.gives(composition.call("Transpose", spread, perm=tuple(int(p) for p in np.argsort(order))))


class _Transform:
    """Transforms of `rows` signals, or of OPEN many, written into a composition."""

    def __init__(self, composition: Composition, rows: int, dtype: np.dtype) -> None:
        self.composition, self.rows, self.dtype = composition, rows, dtype

    def whole(self, x: str, given: int, parts: int, length: int, *, back: bool, half: bool) -> str:
        """[rows, given, parts] to [rows, bins, 2]: what is missing of `length` counts as 0, what is beyond is left."""
        bins = length // 2 + 1 if half else length
        used = min(given, length)
        if length <= DIRECT or _factor(length) == 1:
            matrix = _matrix(used, length, bins, back)[:, :parts]
            return self._product(self._first(x, given, used), used * parts, matrix.reshape(used * parts, bins * 2))
        if used < length:
            x = self.composition.call("Pad", x, self.composition.ints(0, 0, 0, 0, length - used, 0))
        full = self._steps(self._first(x, given, used), self.rows, length, parts, back)
        if back:
            full = self.composition.call("Mul", full, self._number(1 / length))
        return self._first(full, length, bins)

    def to_real(self, x: str, given: int, parts: int, length: int) -> str:
        """[rows, given, parts], the bins from 0 to the middle, to the real signal [rows, length]."""
        used = min(given, length // 2 + 1)
        if length <= DIRECT or _factor(length) == 1:
            twice = np.where((np.arange(used) == 0) | (2 * np.arange(used) == length), 1.0, 2.0)
            matrix = _matrix(used, length, length, True)[:, :parts, :, 0] * twice[:, None, None]
            return self._product(self._first(x, given, used), used * parts, matrix.reshape(used * parts, length))
        bins = np.arange(length)
        mirrored = bins > length // 2
        source = np.where(mirrored, length - bins, bins)
        kept = np.where(source < used, 1.0, 0.0)
        signs = np.stack([kept, np.where(mirrored, -kept, kept)], axis=-1)[:, :parts].astype(self.dtype)
        places = self.composition.ints(*np.minimum(source, used - 1).tolist())
        full = self.composition.call("Gather", x, places, axis=1)
        full = self.composition.call("Mul", full, self.composition.constant(signs))
        both = self.whole(full, length, parts, length, back=True, half=False)
        return self.composition.call("Gather", both, self.composition.ints(0), axis=2)

    def _steps(self, x: str, rows: int, length: int, parts: int, back: bool) -> str:
        """[rows, length, parts] to [rows, length, 2], unscaled, in products of at most DIRECT numbers if it can be."""
        outer = _factor(length) if length > DIRECT else 1
        if outer == 1:
            matrix = _matrix(length, length, length, back, scaled=False)[:, :parts]
            flat = self._product(x, length * parts, matrix.reshape(length * parts, length * 2), rows)
            return self.composition.reshape(flat, rows, length, 2)
        inner = length // outer
        call, reshape = self.composition.call, self.composition.reshape
        split = call("Transpose", reshape(x, rows, outer, inner, parts), perm=(0, 2, 1, 3))
        many, more = (OPEN if rows == OPEN else rows * each for each in (inner, outer))
        first = self._steps(reshape(split, many, outer, parts), many, outer, parts, back)
        turned = self._turned(reshape(first, rows, inner, outer, 2), inner, outer, back)
        second = reshape(call("Transpose", turned, perm=(0, 2, 1, 3)), more, inner, 2)
        done = reshape(self._steps(second, more, inner, 2, back), rows, outer, inner, 2)
        return reshape(call("Transpose", done, perm=(0, 2, 1, 3)), rows, length, 2)

    def _turned(self, x: str, inner: int, outer: int, back: bool) -> str:
        """[rows, inner, outer, 2] times the twiddle factors exp(-+2 pi i place bin / (inner outer))."""
        angle = 2 * np.pi * np.outer(np.arange(inner), np.arange(outer)) / (inner * outer)
        cosine, sine = np.cos(angle), np.sin(angle) if back else -np.sin(angle)
        straight = self.composition.constant(np.stack([cosine, cosine], -1).astype(self.dtype))
        across = self.composition.constant(np.stack([-sine, sine], -1).astype(self.dtype))
        swapped = self.composition.call("Gather", x, self.composition.ints(1, 0), axis=3)
        one, two = self.composition.call("Mul", x, straight), self.composition.call("Mul", swapped, across)
        return self.composition.call("Add", one, two)

    def _product(self, x: str, columns: int, matrix: np.ndarray, rows: int | None = None) -> str:
        flat = self.composition.reshape(x, self.rows if rows is None else rows, columns)
        return self.composition.call("MatMul", flat, self.composition.constant(matrix.astype(self.dtype)))

    def _first(self, x: str, given: int, wanted: int) -> str:
        """The first of axis 1."""
        if given == wanted:
            return x
        ends = self.composition.ints(0), self.composition.ints(wanted), self.composition.ints(1)
        return self.composition.call("Slice", x, *ends)

    def _number(self, value: float) -> str:
        return self.composition.constant(np.array(value, self.dtype))


def _factor(length: int) -> int:
    """The largest factor that is not above the square root."""
    return next(factor for factor in range(math.isqrt(length), 0, -1) if length % factor == 0)


def _matrix(used: int, length: int, bins: int, back: bool, *, scaled: bool = True) -> np.ndarray:
    """[used, 2, bins, 2]: from (place, re or im) to (bin, re or im). Raises Unsupported where it is too large."""
    if 4 * used * bins > MOST_ELEMENTS:
        reason = f"a transform of {length} numbers, whose factors are too large"
        raise Unsupported(reason, "pad to a length with small factors")
    turns = np.outer(np.arange(used, dtype=np.int64), np.arange(bins, dtype=np.int64)) % length
    angle = 2 * np.pi * turns / length
    cosine, sine = np.cos(angle), np.sin(angle) if back else -np.sin(angle)
    matrix = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], axis=1)
    return matrix / length if back and scaled else matrix


def stft(site: Site) -> Expansion:
    """The DFT of frames of a signal [batch, length, 1 or 2], each times the window: [batch, frames, bins, 2].

    The length of the signal may be open; the step and a frame's length may not. A signal [batch, length], as PyTorch's
    exporter and ONNX Runtime have it, is one of real numbers.
    """
    signal = site.first
    step, length = site.known_scalar(1, "frame_step"), site.known_scalar(3, "frame_length")
    window = site.types[2] if len(site.types) > 2 else None
    long = signal.shape[1] if signal.rank in (2, 3) else 0
    if length is None:
        length = window.elements if window is not None else static(signal.shape[1:2])[0] if signal.rank in (2, 3) else 0
    least = long if isinstance(long, int) else long.low
    fits = step is not None and step > 0 and 1 <= length <= least
    if step is None or not fits or (window is not None and window.dims != (length,)):
        reason = f"frames of {length} numbers, {step} apart, with window {window} do not fit {signal}"
        raise Unsupported(reason, "give a window as long as a frame, and a signal that holds one")
    composition = Composition(site)
    if isinstance(long, int):
        places = composition.constant(np.arange((long - length) // step + 1)[:, None] * step + np.arange(length))
    else:
        places = _places(composition, length, step)
    framed = composition.call("Gather", "x0", places, axis=1)
    if signal.rank == 2:
        framed = composition.call("Unsqueeze", framed, composition.ints(3))
    if window is not None:
        framed = composition.call("Mul", framed, composition.reshape("x2", length, 1))
    onesided = site.integer("onesided", 1)
    axis = composition.constant(np.array(2, np.int64))
    return composition.gives(composition.call("DFT", framed, "", axis, onesided=onesided))


def _places(composition: Composition, length: int, step: int) -> str:
    """[frames, length]: which elements of a signal of any length each frame has."""
    call, ints = composition.call, composition.ints
    zero, one, by = (composition.constant(np.array(number, np.int64)) for number in (0, 1, step))
    size = call("Squeeze", call("Shape", "x0", start=1, end=2), ints(0))
    room = call("Sub", size, composition.constant(np.array(length, np.int64)))
    frames = call("Range", zero, call("Add", call("Div", room, by), one), one)
    begins = call("Unsqueeze", call("Mul", frames, by), ints(1))
    return call("Add", begins, composition.constant(np.arange(length)))
