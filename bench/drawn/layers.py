"""Models of a layer or a few, drawn by seeds: between them all kinds of kernels that there are algorithms for.

A family is a function that appends its layers to a graph and draws every size from the graph's own generator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.drawn import weights
from bench.drawn.byte_layers import (
    Bytes,
    _byte_conv,
    byte_attention,
    byte_convolution,
    byte_groups,
    byte_pool,
    byte_product,
    in_bytes,
    pruned_byte_convolution,
    pruned_byte_product,
)
from bench.drawn.parts import activated, pick
from bench.trees.forests import Ensemble, model_of
from bench.zoo.attention import attend, heads_of, scaled_scores
from bench.zoo.builder import GraphBuilder, Value
from bench.zoo.mobilenet import squeeze_excite

# ---- products


def dense(g: GraphBuilder, x: Value, array: np.ndarray, *, bias: bool = True, whole: bool = False) -> Value:
    """Rows [m, k] times weights [n, k], these in bytes where they are `whole` numbers."""
    inputs = [
        x,
        in_bytes(g, array) if whole else g.constant(array, "weight"),
        *([g.normal((len(array),), 0.1, "bias")] if bias else []),
    ]
    return g.node("Gemm", inputs, (x.shape[0], len(array)), transB=1)


def product(g: GraphBuilder) -> None:
    """A dense layer of many rows, with an activation or a residual."""
    m, k, n = pick(g, 5, 16, 33, 64, 128, 200), pick(g, 16, 24, 64, 96, 130, 256), pick(g, 16, 40, 64, 96, 256)
    x = g.input("x", (m, k))
    y = activated(g, g.gemm(x, n, transposed=pick(g, True, False)))
    g.output("y", g.add(y, g.input("residual", (m, n))) if pick(g, True, False) else y)


def batched(g: GraphBuilder) -> None:
    """A product of two activations, one of them maybe transposed."""
    b, m, k, n = pick(g, 2, 3, 8), pick(g, 16, 33, 64), pick(g, 16, 20, 64), pick(g, 16, 48, 65)
    x, y = g.input("x", (b, m, k)), g.input("y", (b, k, n))
    if pick(g, True, False):
        y = g.transpose(g.input("turned", (b, n, k)), (0, 2, 1))
    g.output("z", activated(g, g.matmul(x, y)))


def few_rows(g: GraphBuilder) -> None:
    """Dense layers of a few rows, the first of them sometimes of a megabyte and more."""
    m, k, n = pick(g, 1, 2, 3, 4), *pick(g, (64, 100), (256, 96), (512, 520), (700, 400), (1024, 300))
    x = activated(g, dense(g, g.input("x", (m, k)), weights.pruned(g.rng, (n, k), "dense", 0.0)))
    g.output("y", g.gemm(x, pick(g, 10, 48), transposed=False))


def pruned_product(g: GraphBuilder) -> None:
    """A dense layer with zeros in one of the forms."""
    m, k, n = pick(g, 1, 2, 4, 16, 40, 128), pick(g, 64, 128, 256), pick(g, 64, 96, 160)
    array = weights.pruned(g.rng, (n, k), pick(g, *weights.FORMS), pick(g, 0.75, 0.9))
    g.output("y", activated(g, dense(g, g.input("x", (m, k)), array)))


def two_of_four(g: GraphBuilder) -> None:
    """A dense layer, or a convolution, of which two of each four neighbouring weights are zero."""
    k, n = pick(g, 64, 128, 256), pick(g, 64, 128)
    if pick(g, True, False):
        array = weights.pruned(g.rng, (n, k), "2:4", 0.5)
        g.output("y", activated(g, dense(g, g.input("x", (pick(g, 64, 128, 200), k)), array)))
    else:
        array = weights.pruned(g.rng, (n, 1, 1, k), "2:4", 0.5).transpose(0, 3, 1, 2)
        x = g.input("x", (1, k, 14, 15))
        g.output("y", g.relu(g.node("Conv", [x, g.constant(array), g.normal((n,), 0.1)], (1, n, 14, 15))))


def pruned_few_rows(g: GraphBuilder) -> None:
    """A dense layer of a row or two in which zeros lie so that columns, or blocks, can be packed."""
    m, k, n = pick(g, 1, 2, 4), pick(g, 256, 480, 512), pick(g, 192, 256)
    array = weights.pruned(g.rng, (n, k), pick(g, "combined", "anywhere", "1x16", "4x16"), pick(g, 0.8, 0.9))
    g.output("y", activated(g, dense(g, g.input("x", (m, k)), array)))


def clustered_product(g: GraphBuilder) -> None:
    """A dense layer whose weights share values."""
    m, k, n = pick(g, 1, 1, 2, 4, 24), pick(g, 128, 320), pick(g, 128, 200)
    array = weights.clustered(g.rng, (n, k), pick(g, *weights.BITS), pick(g, True, False))
    g.output("y", activated(g, dense(g, g.input("x", (m, k)), array)))


def quantised_product(g: GraphBuilder) -> None:
    """A dense layer, or two, of a few rows by weights of few bits, along some inputs or along the whole of them."""
    m, k, n = pick(g, 1, 2, 4, 32), *pick(g, (128, 96), (256, 200), (320, 72))
    bits, block, centred = pick(g, 2, 4, 8), pick(g, 16, 32, 64, k), pick(g, True, False)
    x = activated(g, dense(g, g.input("x", (m, k)), weights.quantised(g.rng, (n, k), bits, block, centred)))
    if pick(g, True, False):
        x = activated(g, dense(g, x, weights.quantised(g.rng, (k, n), bits, min(block, n), centred)))
    g.output("y", x)


def low_rank(g: GraphBuilder) -> None:
    """Two dense layers for one, with nothing between them."""
    m, k, r, n = pick(g, 1, 16, 64), pick(g, 96, 256), pick(g, 8, 16), pick(g, 96, 256)
    x = dense(g, g.input("x", (m, k)), weights.pruned(g.rng, (r, k), "dense", 0.0), bias=False)
    g.output("y", activated(g, dense(g, x, weights.pruned(g.rng, (n, r), "dense", 0.0))))


def normalised(g: GraphBuilder) -> None:
    """Rows normalised, then multiplied; the rows are sometimes kept."""
    m, k, n = pick(g, 16, 48, 64, 128), pick(g, 32, 64, 128), pick(g, 64, 128, 192)
    rows = g.layer_norm(g.input("x", (1, m, k)))
    y = activated(g, g.dense(rows, n))
    g.output("y", y)
    if n == k:
        g.output("rows", rows)


def attention(g: GraphBuilder) -> None:
    """Heads of attention, with a mask sometimes."""
    heads, tokens, keys, depth = pick(g, 1, 2, 4), pick(g, 16, 33, 64), pick(g, 16, 40, 64), pick(g, 16, 32, 64)
    q, k = g.input("q", (1, heads, tokens, depth)), g.input("k", (1, heads, depth, keys))
    v = g.input("v", (1, heads, keys, depth))
    scores = scaled_scores(g, q, k) if pick(g, True, False) else g.scale(g.matmul(q, k), 0.125)
    if pick(g, True, False):
        scores = g.add(scores, g.input("mask", (1, 1, tokens, keys)))
    g.output("y", attend(g, scores, v))


def decoded(g: GraphBuilder) -> None:
    """Attention of a token or two over a cache that fills up to a place, by heads that share its keys."""
    heads, shared, tokens = pick(g, 2, 4), pick(g, 1, 2, 4), pick(g, 1, 1, 2)
    keys, depth = pick(g, 40, 128, 256), pick(g, 32, 64)
    q, k = g.input("q", (heads, shared, tokens, depth)), g.input("k", (heads, 1, keys, depth))
    scores = g.scale(g.matmul(q, g.transpose(k, (0, 1, 3, 2))), depth**-0.5)
    places, last = g.constant(np.arange(keys)), g.input("last", (1, 1, tokens, 1), TensorProto.INT64)
    seen = g.node("LessOrEqual", [places, last], (1, 1, tokens, keys), dtype=TensorProto.BOOL)
    lowest = g.constant(np.array(-3e38, np.float32))
    scores = g.node("Where", [seen, scores, lowest], scores.shape, scores.moments)
    g.output("y", attend(g, scores, g.input("v", (heads, 1, keys, depth))))


def encoder(g: GraphBuilder) -> None:
    """A block of a transformer's encoder."""
    tokens, width, heads = pick(g, 16, 40), pick(g, 32, 64), pick(g, 1, 2)
    x = g.input("x", (1, tokens, width))
    y = g.layer_norm(x)
    q, k, v = (g.dense(y, width) for _ in range(3))
    scores = scaled_scores(g, heads_of(g, q, heads), heads_of(g, k, heads, for_keys=True))
    x = g.add(x, g.dense(attend(g, scores, heads_of(g, v, heads)), width))
    g.output("y", g.add(x, g.dense(g.gelu(g.dense(g.layer_norm(x), 2 * width)), width)))


# ---- images


def image(g: GraphBuilder, *channels: int) -> Value:
    """An input of some pixels."""
    return g.input("x", (pick(g, 1, 1, 2), pick(g, *channels), pick(g, 7, 14, 16, 28), pick(g, 7, 15, 16, 28)))


def convolution(g: GraphBuilder) -> None:
    """A convolution with an activation, or a residual."""
    x = image(g, 8, 16, 24, 64, 64)
    taps = pick(g, 1, 1, 3, 3, 3, 5)
    stride, dilation = pick(g, (1, 1), (1, 1), (2, 1), (1, 2))
    y = g.conv(x, pick(g, 16, 24, 48, 64), taps, stride, bias=True, dilation=dilation)
    y = activated(g, y)
    g.output("y", g.add(y, g.input("residual", y.shape)) if pick(g, True, False) else y)


def first_convolution(g: GraphBuilder) -> None:
    """A convolution of an image of few channels."""
    x = g.input("x", (1, pick(g, 1, 3, 4), pick(g, 32, 48), pick(g, 32, 56)))
    y = g.conv(x, pick(g, 16, 32, 64), pick(g, 3, 5, 7), pick(g, 1, 2), bias=True)
    g.output("y", g.relu(y))


def grouped(g: GraphBuilder) -> None:
    """A convolution in groups of channels."""
    x = g.input("x", (1, 32, pick(g, 8, 14), pick(g, 8, 15)))
    g.output("y", activated(g, g.conv(x, pick(g, 32, 64), 3, pick(g, 1, 2), groups=pick(g, 2, 4, 8), bias=True)))


def depthwise(g: GraphBuilder) -> None:
    """A window channel by channel."""
    x = image(g, 8, 16, 32, 40)
    g.output("y", activated(g, g.conv(x, x.channels, pick(g, 3, 5), pick(g, 1, 1, 2), groups=x.channels, bias=True)))


def separable(g: GraphBuilder) -> None:
    """A window channel by channel and the pointwise product that reads it."""
    x = image(g, 16, 32, 64)
    y = g.relu6(g.conv(x, x.channels, pick(g, 3, 5), pick(g, 1, 2), groups=x.channels, bias=True))
    g.output("y", g.conv(y, pick(g, 16, 24, 64), 1, bias=True))


def pooled(g: GraphBuilder) -> None:
    """Sums and extremes over windows."""
    x = image(g, 8, 20, 32)
    taps, stride = pick(g, (2, 2), (3, 2), (3, 1))
    pad = pick(g, 0, 1) if taps == 3 else 0
    x = pick(g, g.max_pool, g.avg_pool)(x, taps, stride, pad)
    g.output("y", x)
    g.output("mean", g.global_avg_pool(x))


def squeezed(g: GraphBuilder) -> None:
    """A gate for each channel, from the mean of its pixels, before a pointwise product."""
    x = image(g, 16, 32, 64)
    x = g.hard_swish(g.conv(x, pick(g, 32, 64), 1, bias=True)) if pick(g, True, False) else x
    g.output("y", g.conv(squeeze_excite(g, x), pick(g, 16, 24, 40), 1, bias=True))


def pruned_convolution(g: GraphBuilder) -> None:
    """A convolution with zeros in one of the forms."""
    x, taps, columns = image(g, 16, 32, 64), pick(g, 1, 3), pick(g, 32, 64)
    g.output("y", g.relu(_pruned_conv(g, x, columns, taps, pick(g, *weights.FORMS[:-1]), pick(g, 0.75, 0.9))))


def _pruned_conv(g: GraphBuilder, x: Value, columns: int, taps: int, form: str, share: float) -> Value:
    array = weights.pruned(g.rng, (columns, x.channels, taps, taps), form, share)
    inputs = [x, g.constant(array), g.normal((columns,), 0.1)]
    return g.node("Conv", inputs, (x.shape[0], columns, *x.shape[2:]), pads=[taps // 2] * 4)


# ---- bytes


# ---- steps


def recurrent(g: GraphBuilder) -> None:
    """A recurrent layer; its weights sometimes of a megabyte and more, sometimes pruned."""
    steps, batch, inputs = pick(g, 3, 6), pick(g, 1, 1, 2), pick(g, 16, 32)
    cell, gates = pick(g, ("LSTM", 4), ("GRU", 3), ("RNN", 1))
    hidden = pick(g, 32, 48, 64, 320 if gates == 4 else 64)
    form = pick(g, "dense", "dense", "anywhere", "1x16", "1x4")
    first = weights.pruned(g.rng, (gates * hidden, inputs), "dense", 0.0)[None]
    second = weights.pruned(g.rng, (gates * hidden, hidden), form, 0.85)[None]
    ways = 1
    inputs_ = [g.input("x", (steps, batch, inputs)), g.constant(first), g.constant(second)]
    inputs_.append(g.normal((1, 2 * gates * hidden), 0.1, "bias"))
    shapes = [(steps, ways, batch, hidden), (ways, batch, hidden)]
    y, last, *_ = g.nodes(cell, inputs_, shapes, hidden_size=hidden)
    g.output("y", y)
    g.output("last", last)


def big_recurrent(g: GraphBuilder) -> None:
    """An LSTM whose weights are kept in fewer bits."""
    hidden = pick(g, 260, 320)
    array = weights.pruned(g.rng, (4 * hidden, hidden), "dense", 0.0)[None]
    x = g.input("x", (4, 1, 24))
    first = g.constant(weights.pruned(g.rng, (4 * hidden, 24), "dense", 0.0)[None])
    inputs = [x, first, g.constant(array), g.normal((1, 8 * hidden), 0.1, "bias")]
    g.output("y", g.nodes("LSTM", inputs, [(4, 1, 1, hidden)], hidden_size=hidden)[0])


def coded_recurrent(g: GraphBuilder) -> None:
    """An LSTM by codes of 8 bits, whose input and states are quantised as they come."""
    hidden, features = pick(g, 48, 64), pick(g, 16, 32)
    codes = [g.constant(g.rng.integers(-127, 128, (1, n, 4 * hidden)).astype(np.int8)) for n in (features, hidden)]
    scale, zero = g.constant(np.full(1, 0.01, np.float32)), g.constant(np.zeros(1, np.int8))
    inputs = [g.input("x", (4, 1, features)), *codes, *(None,) * 5, *(scale, zero) * 2]
    shapes = [(4, 1, 1, hidden)]
    g.output("y", g.nodes("DynamicQuantizeLSTM", inputs, shapes, domain="com.microsoft", hidden_size=hidden)[0])


def ordered(g: GraphBuilder) -> None:
    """Sums of what lies before, along an axis."""
    x = g.input("x", (pick(g, 3, 8), pick(g, 20, 64), pick(g, 5, 16)))
    axis = g.constant(np.asarray(pick(g, 0, 1, 2), np.int64), "axis")
    g.output("y", g.node("CumSum", [x, axis], x.shape, reverse=pick(g, 0, 1), exclusive=pick(g, 0, 1)))


# ---- the rest


def mapped(g: GraphBuilder) -> None:
    """Maps, reductions and moves of data."""
    shape = (pick(g, 1, 2), pick(g, 6, 16), pick(g, 9, 32), pick(g, 12, 33))
    x, y = g.input("x", shape), g.input("y", shape)
    g.output("sum", activated(g, g.add(x, y)))
    g.output("soft", g.softmax(g.mul(x, y), pick(g, -1, 1)))
    g.output("turned", g.transpose(x, pick(g, (0, 2, 3, 1), (3, 2, 1, 0), (0, 1, 3, 2))))
    g.output("norm", g.layer_norm(y))
    g.output("joined", g.concat([x, y], pick(g, 1, 2)))
    g.output("less", g.node(pick(g, "ReduceMean", "ReduceMax"), [x], (*shape[:2], 1, shape[3]), axes=[2]))
    g.output("larger", g.upsample(x, 2))


def turned(g: GraphBuilder) -> None:
    """A matrix turned, in several dtypes."""
    dtype = pick(g, TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT64)
    x = g.input("x", (pick(g, 64, 160), pick(g, 64, 96, 130)), dtype)
    g.output("y", g.transpose(x, (1, 0)))


def selected(g: GraphBuilder) -> None:
    """The greatest of a row, and boxes that do not overlap."""
    x = g.input("x", (pick(g, 3, 8), pick(g, 40, 100)))
    k = pick(g, 1, 4)
    order = pick(g, 0, 1)
    values, places = g.nodes("TopK", [x, g.integers([k])], [(x.shape[0], k)] * 2, axis=1, largest=order)
    g.output("values", values)
    g.output("places", Value(places.name, places.shape, TensorProto.INT64))


# ---- fixed sizes, for which the model of costs ranks an algorithm first that drawn ones are too small for


def large_product(g: GraphBuilder) -> None:
    """A product of a thousand rows."""
    g.output("y", g.gemm(g.relu(g.gemm(g.input("x", (1024, 1024)), 1024)), 1024))


def large_two_of_four(g: GraphBuilder) -> None:
    """The same of which two of each four weights are zero."""
    array = weights.pruned(g.rng, (1024, 1024), "2:4", 0.5)
    g.output("y", g.relu(dense(g, g.relu(dense(g, g.input("x", (1024, 1024)), array)), array)))


def large_vectors(g: GraphBuilder) -> None:
    """The same of which 32 neighbouring results have their zeros at the same places."""
    array = weights.pruned(g.rng, (1024, 1024), "vectors of 32", 0.9)
    g.output("y", g.relu(dense(g, g.input("x", (512, 1024)), array)))


def large_quantised(g: GraphBuilder) -> None:
    """The same of weights of 4 bits."""
    array = weights.quantised(g.rng, (1024, 1024), 4, 32, centred=True)
    g.output("y", g.relu(dense(g, g.relu(dense(g, g.input("x", (1024, 1024)), array)), array)))


def large_bytes(g: GraphBuilder) -> None:
    """A product of a thousand rows in bytes."""
    _byte_layer(g, 1024, 1024, 1024, "dense", 0.0)


def large_two_of_four_bytes(g: GraphBuilder) -> None:
    """The same of which two of each four weights are zero."""
    _byte_layer(g, 1024, 1024, 1024, "2:4", 0.5)


def large_pruned_bytes(g: GraphBuilder) -> None:
    """A product in bytes of which nine weights of ten are zero, anywhere."""
    _byte_layer(g, 64, 1024, 512, "anywhere", 0.9)


def _byte_layer(g: GraphBuilder, m: int, k: int, n: int, form: str, share: float) -> None:
    held = Bytes(0.02, 0, signed=True)
    x = g.node("DequantizeLinear", [g.input("x", (m, k), TensorProto.INT8), *held.constants(g)], (m, k))
    g.output("y", held.to(g, dense(g, x, weights.pruned(g.rng, (n, k), form, share), whole=True)))


def large_clustered(g: GraphBuilder) -> None:
    """One row times two megabytes of weights of 16 values."""
    g.output("y", dense(g, g.input("x", (1, 1024)), weights.clustered(g.rng, (1024, 1024), 4, by_result=False)))


def large_pruned_row(g: GraphBuilder) -> None:
    """One row times weights of which nine of ten are zero, anywhere."""
    g.output("y", dense(g, g.input("x", (1, 1024)), weights.pruned(g.rng, (1024, 1024), "anywhere", 0.9)))


def large_combined(g: GraphBuilder) -> None:
    """One row times weights whose columns can be packed."""
    g.output("y", dense(g, g.input("x", (1, 480)), weights.pruned(g.rng, (192, 480), "combined", 0.8)))


def large_separable(g: GraphBuilder) -> None:
    """A window channel by channel and the product that reads it, of many pixels, behind the convolution of an image."""
    x = g.relu(g.conv(g.input("x", (1, 3, 112, 112)), 32, 3, bias=True))
    y = g.relu6(g.conv(x, 32, 3, groups=32, bias=True))
    g.output("y", g.conv(y, 16, 1, bias=True))


def network_of_few_channels(g: GraphBuilder) -> None:
    """Convolutions of few channels behind one another, windows channel by channel between them."""
    x = g.relu(g.conv(g.input("x", (1, 3, 112, 112)), 3, 1, bias=True))
    x = g.relu(g.conv(x, 64, 7, 2, bias=True))
    x = g.relu(g.conv(g.relu6(g.conv(x, 64, 3, groups=64, bias=True)), 32, 1, bias=True))
    x = g.relu(g.conv(x, 8, 1, bias=True))
    x = g.relu(g.conv(g.relu6(g.conv(x, 8, 3, groups=8, bias=True)), 24, 1, bias=True))
    g.output("y", g.conv(x, 16, 1, bias=True))


def network_with_zeros(g: GraphBuilder) -> None:
    """Convolutions by pruned weights with others on both sides."""
    x = g.relu(g.conv(g.input("x", (1, 16, 28, 28)), 256, 1, bias=True))
    x = g.relu(_pruned_conv(g, x, 64, 3, "vectors of 32", 0.9))
    g.output("y", g.conv(x, 16, 1, bias=True))


def network(g: GraphBuilder) -> None:
    """Convolutions with others on both sides: of a few channels, of many, with a gate, channel by channel."""
    x = g.relu(g.conv(g.input("x", (1, 16, 28, 28)), 16, 1, bias=True))
    x = g.relu(g.conv(x, 64, 3, bias=True))
    x = g.relu(g.conv(g.relu(g.conv(x, 64, 3, bias=True)), 64, 1, bias=True))
    x = g.conv(squeeze_excite(g, x), 32, 1, bias=True)
    x = g.relu6(g.conv(g.relu6(x), 32, 3, groups=32, bias=True))
    x = g.conv(x, 16, 1, bias=True)
    g.output("y", g.relu(g.conv(x, 16, 1, bias=True)))


def network_of_bytes(g: GraphBuilder) -> None:
    """The same of bytes, with pools."""
    held = Bytes(0.02, 3, signed=False)
    x = held.of(g, g.input("x", (1, 16, 28, 28)))
    for columns, taps, groups in ((64, 1, 1), (64, 3, 1), (32, 1, 1), (32, 3, 4), (32, 1, 1)):
        x = held.of(g, g.relu(_byte_conv(g, x, columns, taps, groups, "dense")))
    x = held.of(g, g.max_pool(x, 3, 1, 1))
    x = held.of(g, _byte_conv(g, x, 32, 1, 1, "dense"))
    x = held.of(g, g.avg_pool(x, 3, 2, 1))
    g.output("y", _byte_conv(g, x, 32, 1, 1, "dense"))


LARGE: Mapping[str, Callable[[GraphBuilder], None]] = {
    one.__name__: one
    for one in (
        *(large_product, large_two_of_four, large_vectors, large_bytes, large_two_of_four_bytes, large_pruned_bytes),
        *(large_quantised, large_clustered, large_pruned_row, large_combined, large_separable, network),
        *(network_of_bytes, network_of_few_channels, network_with_zeros),
    )
}
FAMILIES: Mapping[str, Callable[[GraphBuilder], None]] = {
    one.__name__: one
    for one in (
        *(product, batched, few_rows, pruned_product, two_of_four, pruned_few_rows, clustered_product, low_rank),
        *(normalised, attention, decoded, encoder, convolution, first_convolution, grouped, depthwise, separable),
        *(pooled, squeezed),
        *(pruned_convolution, byte_product, pruned_byte_product, byte_convolution, byte_groups),
        *(pruned_byte_convolution, byte_pool, byte_attention, recurrent, big_recurrent, ordered, mapped, turned),
        *(selected, quantised_product, coded_recurrent),
    )
}


# ---- models that are no graph of layers alone


def looped(random: np.random.Generator) -> bytes:
    """A product again and again, as often as an input says, or one of two: what is decided while running."""
    rows, width = int(random.choice([1, 4, 16])), int(random.choice([32, 64]))
    shape = [rows, width]
    weight = numpy_helper.from_array(random.standard_normal((width, width), dtype=np.float32) / 8, "w")

    def value(name: str, kind: int = TensorProto.FLOAT, dims: Sequence[int] = tuple(shape)) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, list(dims))

    def product(given: str, name: str, end: str) -> list[onnx.NodeProto]:
        between = f"{name}_sum"
        return [helper.make_node("MatMul", [given, "w"], [between]), helper.make_node(end, [between], [name])]

    if random.integers(2):
        nodes = [helper.make_node("Identity", ["go"], ["goes"]), *product("state", "next", "Tanh")]
        given = [value("number", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("state")]
        body = helper.make_graph(nodes, "body", given, [value("goes", TensorProto.BOOL, []), value("next")], [weight])
        yes = numpy_helper.from_array(np.array(True), "yes")
        whole = helper.make_node("Loop", ["count", "yes", "x"], ["y"], body=body)
        decides, more = value("count", TensorProto.INT64, []), [yes]
    else:
        branches = {
            f"{name}_branch": helper.make_graph(product("x", name, end), name, [], [value(name)], [weight])
            for name, end in (("then", "Relu"), ("else", "Sigmoid"))
        }
        whole = helper.make_node("If", ["which"], ["y"], **branches)
        decides, more = value("which", TensorProto.BOOL, []), []
    graph = helper.make_graph([whole], "looped", [decides, value("x")], [value("y")], more)
    return _bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def trees(random: np.random.Generator) -> bytes:
    """An ensemble of decision trees."""
    classes = int(random.choice([1, 3]))
    return model_of(Ensemble(int(random.choice([3, 20])), 4, classes=classes), int(random.choice([1, 50])), 0)


def boxes(random: np.random.Generator) -> bytes:
    """Boxes that do not overlap, chosen by their scores."""
    count, classes = int(random.choice([20, 60])), int(random.choice([1, 3]))
    limits = [numpy_helper.from_array(np.asarray(one), name) for name, one in (
        ("most", np.int64(random.choice([3, 10]))), ("overlap", np.float32(0.5)), ("least", np.float32(0.3)),
    )]  # fmt: skip
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["chosen"])
    given = [
        helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, count, 4]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, classes, count]),
    ]
    out = helper.make_tensor_value_info("chosen", TensorProto.INT64, [None, 3])
    graph = helper.make_graph([node], "boxes", given, [out], limits)
    return _bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


WHOLE: Mapping[str, Callable[[np.random.Generator], bytes]] = {one.__name__: one for one in (looped, trees, boxes)}


EACH = 6
"""Models of a family."""
OFTEN = frozenset(
    {"squeezed", "byte_pool", "byte_groups", "separable", "first_convolution", "two_of_four", "pruned_byte_product"}
)
"""Families whose kernels few others have."""
Asked = tuple[str, str]
"""A target and a precision."""
OFTEN_ON_CPUS: tuple[Asked, ...] = (
    *(("cpu:x86-64-v4-amx", "bf16"), ("cpu:x86-64-v4-amx", "fp32"), ("cpu:x86-64-v4-bf16", "bf16")),
    *(("cpu:x86-64-v3", "fp32"), ("cpu:aarch64-bf16", "bf16")),
)
ON_CPUS: tuple[Asked, ...] = (
    *(("cpu:x86-64-v4-amx", "bf16"), ("cpu:x86-64-v4-amx", "fp32"), ("cpu:x86-64-v4-bf16", "bf16")),
    *(("cpu:x86-64-v4-bf16", "fp32"), ("cpu:x86-64-v4-vnni", "fp32"), ("cpu:x86-64-v4", "fp32")),
    *(("cpu:x86-64-v3-vnni", "fp32"), ("cpu:x86-64-v3", "fp32"), ("cpu:x86-64-v2", "fp32")),
    *(("cpu:aarch64-bf16", "bf16"), ("cpu:aarch64-i8mm", "fp32"), ("cpu:aarch64-dotprod", "fp32")),
    *(("cpu:aarch64", "fp32"), ("cpu:neoverse-v1", "bf16"), ("cpu:cortex-a53", "fp32")),
)
OFTEN_ON_GPUS: tuple[Asked, ...] = (
    *(("cuda:sm_90", "fp16"), ("cuda:sm_90", "bf16"), ("cuda:sm_80", "tf32"), ("cuda:sm_86", "fp32")),
)
ON_GPUS: tuple[Asked, ...] = (
    *(("cuda:sm_80", "fp32"), ("cuda:sm_80", "tf32"), ("cuda:sm_80", "fp16"), ("cuda:sm_80", "bf16")),
    *(("cuda:sm_86", "fp32"), ("cuda:sm_86", "fp16"), ("cuda:sm_89", "bf16"), ("cuda:sm_90", "fp32")),
    *(("cuda:sm_90", "tf32"), ("cuda:sm_90", "fp16"), ("cuda:sm_90", "bf16"), ("cuda:sm_100", "fp16")),
    ("cuda:sm_120", "tf32"),
)
ALSO: Mapping[str, Asked] = {
    "convolution": ("cpu:x86-64-v4-amx", "bf16"),
    "squeezed": ("cpu:x86-64-v4-bf16", "bf16"),
    "byte_convolution": ("cpu:x86-64-v4-amx", "fp32"),
    "byte_product": ("cuda:sm_90", "fp16"),
    "pruned_byte_product": ("cuda:sm_90", "fp16"),
}
"""For which all models of a family are compiled too: algorithms that no other target has for them."""
ASKED = (OFTEN_ON_CPUS, ON_CPUS, OFTEN_ON_GPUS, ON_GPUS)


@dataclass(frozen=True)
class Model:
    """A model, what it is compiled for, and whether it stands for the midst of a network."""

    name: str
    data: bytes
    asked: tuple[Asked, ...]
    inner: bool


def _bytes(model: onnx.ModelProto) -> bytes:
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def models(each: int = EACH) -> Iterator[Model]:
    """So many models of each family, of those OFTEN drawn twice as many; always the same ones, a round at a time."""
    for turn in range(each):
        for name in (*FAMILIES, *WHOLE):
            for number in (turn, turn + each) if name in OFTEN else (turn,):
                yield Model(f"{name}-{number}", drawn(name, number), _asked(name, number), inner=number % 3 != 0)


def drawn(family: str, number: int) -> bytes:
    """The model of a number of a family, which may be one of LARGE."""
    if family in WHOLE:
        return WHOLE[family](np.random.default_rng(_seed(family, number)))
    g = GraphBuilder(family, seed=_seed(family, number))
    {**FAMILIES, **LARGE}[family](g)
    return _bytes(g.finish())


def _asked(family: str, number: int) -> tuple[Asked, ...]:
    """Two of the targets of each kind, in turn from model to model, in an order of the family's own."""
    lists = [sorted(each, key=lambda one: _seed(f"{family} {one}", 0)) for each in ASKED]
    also = [ALSO[family]] if family in ALSO else []
    return tuple(dict.fromkeys([*also, *(each[number % len(each)] for each in lists)]))


def _seed(name: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{name} {number}".encode()).digest()[:4])
