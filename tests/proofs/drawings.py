"""Left sides for proofs, of rules whose drawings for tests are other programs for other sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing
from tests.compiler.rewrite.sketch import Sketch
from tests.proofs.instances import Symbols

Cut = tuple[int, int, int]
"""First, past the last, step."""


def cut(s: Sketch, x: int, *windows: Cut) -> int:
    """A Slice with a window on each of the first axes."""
    starts, ends, steps = zip(*windows, strict=True)
    return s("Slice", x, *(None,) * 4, starts=starts, ends=ends, axes=tuple(range(len(windows))), steps=steps)


def _twice(*pairs: tuple[Cut, Cut]) -> Drawing:
    def drawing(s: Sketch) -> Graph:
        inner = cut(s, s.x(23, 29, 5), *(one for one, _ in pairs))
        return s.graph(cut(s, inner, *(two for _, two in pairs)))

    return drawing


def _padding_cut(s: Sketch) -> Graph:
    """Of the padding, some is left on each side."""
    padded = s("Pad", s.x(7, 11), *(None,) * 3, pads=(5, 0, 6, 0), constant_value=1.0)
    return s.graph(s("Abs", cut(s, padded, (2, 15, 1))))


def _elements_cut(s: Sketch) -> Graph:
    """No padding is left."""
    padded = s("Pad", s.x(17, 11), *(None,) * 3, pads=(5, 0, 6, 0), constant_value=1.0)
    return s.graph(s("Abs", cut(s, padded, (8, 20, 1))))


def _pixels(mode: str) -> Any:
    """Channels that are taken apart into blocks of pixels."""

    def drawing(s: Symbols) -> Graph:
        n, c, h, w, block = s.dims_of((2, 3, 5, 7, 4))
        orders = {
            "DCR": ((n, block, block, c, h, w), (0, 3, 4, 1, 5, 2)),
            "CRD": ((n, c, block, block, h, w), (0, 1, 4, 2, 5, 3)),
        }
        parts, perm = orders[mode]
        apart = s("Reshape", s.x(n, c * (block * block), h, w), None, shape=parts)
        return s.graph(s("Reshape", s("Transpose", apart, perm=perm), None, shape=(n, c, h * block, w * block)))

    return drawing


def _blocks(s: Symbols) -> Graph:
    """Blocks of pixels that become channels."""
    n, c, h, w, block = s.dims_of((2, 3, 5, 7, 4))
    apart = s("Reshape", s.x(n, c, h * block, w * block), None, shape=(n, c, h, block, w, block))
    moved = s("Transpose", apart, perm=(0, 3, 5, 1, 2, 4))
    return s.graph(s("Reshape", moved, None, shape=(n, c * (block * block), h, w)))


def _root_mean_square(s: Symbols) -> Graph:
    """The mean as a sum times a number, which has its shape back, and the gate scaled."""
    x = s.x(5, 3, 7)
    whole = s("ReduceSum", s("Pow", x, s.c(2)), None, axes=(1, 2), keepdims=0)
    mean = s("Reshape", s("Mul", whole, s.c(1 / prod(s.dims(x)[1:]))), None, shape=(s.dims(x)[0], 1, 1))
    inverse = s("Pow", s("Add", mean, s.c(1e-5)), s.c(-0.5))
    return s.graph(s("Mul", x, s("Mul", inverse, s.positive(7))))


def _square_mean_root(s: Symbols) -> Graph:
    """The mean by a node, and a quotient."""
    x = s.x(5, 3, 7)
    mean = s("ReduceMean", s("Mul", x, x), None, axes=(-1,))
    return s.graph(s("Div", x, s("Sqrt", s("Add", s.c(1e-5), mean))))


def _instances(s: Symbols) -> Graph:
    """Group norm as an instance norm of a tensor in which each group is a row."""
    n, groups, each, h, w = s.dims_of((2, 3, 4, 5, 7))
    x = s.x(n, groups * each, h, w)
    flat = s("Reshape", x, None, shape=(n, groups, each * h * w))
    normal = s("InstanceNormalization", flat, s.positive(groups), s.normal(groups))
    return s.graph(s("Reshape", normal, None, shape=(n, groups * each, h, w)))


def _layers(s: Symbols) -> Graph:
    """Group norm as a layer norm of such a tensor."""
    n, groups, each, h, w = s.dims_of((2, 3, 4, 5, 7))
    x = s.x(n, groups * each, h, w)
    flat = s("Reshape", x, None, shape=(n, groups, each, h, w))
    scale = s.full(0.5, each, h, w)
    normal = s("LayerNormalization", flat, scale, axis=2)
    return s.graph(s("Reshape", normal, None, shape=(n, groups * each, h, w)))


def _heads(s: Symbols, swapped: bool = False) -> Graph:
    """Products over batch times heads, the mask and the softmax over both apart (Keras, fairseq)."""
    batch, heads, queries, keys, width = s.dims_of((2, 3, 5, 7, 4))
    q, k, v = s.x(batch * heads, queries, width), s.x(batch * heads, keys, width), s.x(batch * heads, keys, width)
    scores = s("MatMul", q, s("Transpose", k, perm=(0, 2, 1)))
    if swapped:
        scores = s("Transpose", s("MatMul", k, s("Transpose", q, perm=(0, 2, 1))), perm=(0, 2, 1))
    scores = s("Reshape", scores, None, shape=(batch, heads, queries, keys))
    weights = s("Softmax", s("Add", s("Mul", scores, s.c(0.5)), s.normal(batch, 1, 1, keys)), axis=-1)
    return s.graph(s("MatMul", s("Reshape", weights, None, shape=(batch * heads, queries, keys)), v))


def _shared(s: Symbols) -> Graph:
    """Heads of queries that share those of keys and values, which are repeated (PyTorch)."""
    batch, groups, times, queries, keys, width = s.dims_of((2, 3, 4, 5, 7, 6))
    q, heads = s.x(batch, groups * times, queries, width), groups * times

    def repeated(x: int) -> int:
        apart = s("Reshape", x, None, shape=(batch, groups, 1, keys, width))
        spread = s("Expand", apart, None, shape=(batch, groups, times, keys, width))
        return s("Reshape", spread, None, shape=(batch, heads, keys, width))

    k, v = (repeated(s.x(batch, groups, keys, width)) for _ in range(2))
    weights = s("Softmax", s("MatMul", q, s("Transpose", k, perm=(0, 1, 3, 2))), axis=-1)
    return s.graph(s("MatMul", weights, v))


def _rotated(s: Symbols) -> Graph:
    """A rotation of halves as PyTorch writes it; that of neighbours is for tests."""
    batch, heads, places, half = s.dims_of((2, 3, 5, 4))
    x = s.x(batch, heads, places, 2 * half)
    first, second = s.many("Split", x, None, outputs=2, axis=3, split=(half, half))
    turned = s("Concat", s("Neg", second), first, axis=3)
    cosines, sines = (s.x(places, 2 * half) for _ in range(2))
    return s.graph(s("Add", s("Mul", x, cosines), s("Mul", turned, sines)))


DRAWN: Mapping[str, tuple[Callable[[Any], Graph], ...]] = {
    "slice_of_slice": (
        _twice(((3, 19, 1), (2, 11, 1))),
        _twice(((3, 19, 2), (2, 7, 1)), ((4, 25, 1), (5, 17, 2))),
        _twice(((19, 3, -1), (2, 11, 1)), ((4, 25, 1), (17, 5, -1))),
    ),
    "depth_to_space_by_transpose": (_pixels("DCR"), _pixels("CRD")),
    "space_to_depth_by_transpose": (_blocks,),
    "rms_norm_by_squares": (_root_mean_square, _square_mean_root),
    "group_norm_by_reshape": (_instances, _layers),
    "attention_in_one_shape": (_heads, partial(_heads, swapped=True), _shared),
    "rotary_by_halves": (_rotated,),
    "slice_of_pad": (_padding_cut, _elements_cut),
}
"""By rule."""
