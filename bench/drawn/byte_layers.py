"""Layers in bytes, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from bench.drawn import weights
from bench.drawn.parts import pick
from bench.zoo.builder import GraphBuilder, Value


@dataclass(frozen=True)
class Bytes:
    """How activations are held in bytes: one scale, one zero point."""

    scale: float
    zero: int
    signed: bool

    def to(self, g: GraphBuilder, x: Value) -> Value:
        """A value rounded to bytes."""
        kind = TensorProto.INT8 if self.signed else TensorProto.UINT8
        return g.node("QuantizeLinear", [x, *self.constants(g)], x.shape, dtype=kind)

    def of(self, g: GraphBuilder, x: Value) -> Value:
        """The same, and back."""
        held = self.to(g, x)
        return g.node("DequantizeLinear", [held, *self.constants(g)], x.shape)

    def given(self, g: GraphBuilder, name: str, shape: Sequence[int]) -> Value:
        """An input in bytes, as another layer of bytes leaves it, or in floats."""
        if pick(g, True, False):
            return self.of(g, g.input(name, shape))
        held = g.input(name, shape, TensorProto.INT8 if self.signed else TensorProto.UINT8)
        return g.node("DequantizeLinear", [held, *self.constants(g)], shape)

    def end(self, g: GraphBuilder, x: Value) -> None:
        """The result of a layer, as another of bytes reads it, or as floats."""
        g.output("y", (self.to if pick(g, True, True, False) else self.of)(g, x))

    def constants(self, g: GraphBuilder) -> list[Value]:
        """Its scale and its zero point."""
        zero = np.asarray(self.zero, np.int8 if self.signed else np.uint8)
        return [g.scalar(self.scale, "scale"), g.constant(zero, "zero")]

    @staticmethod
    def drawn(g: GraphBuilder) -> Bytes:
        """A way to hold a layer's inputs, or its results."""
        signed = pick(g, True, False)
        return Bytes(pick(g, 0.02, 0.0375), 0 if signed and pick(g, True, False) else pick(g, 3, 17, 100), signed)


def in_bytes(g: GraphBuilder, array: np.ndarray) -> Value:
    """Weights, results first, in signed bytes with a scale for each result or one for all."""
    peak = np.abs(array.reshape(len(array), -1)).max(1).clip(1e-6)
    scale = (peak if pick(g, True, True, False) else peak.max()[None]) / 127
    whole = np.rint(array / scale.reshape(-1, *[1] * (array.ndim - 1))).astype(np.int8)
    of_all = len(scale) == 1
    scales = g.scalar(float(scale[0]), "scale") if of_all else g.constant(scale.astype(np.float32), "scale")
    zero = g.constant(np.zeros(() if of_all else len(scale), np.int8), "zero")
    inputs = [g.constant(whole, "bytes"), scales, zero]
    return g.node("DequantizeLinear", inputs, array.shape, axis=0)


def _byte_dense(g: GraphBuilder, m: int, k: int, n: int, form: str, share: float) -> None:
    x = Bytes.drawn(g).given(g, "x", (m, k))
    array = weights.pruned(g.rng, (n, k), form, share)
    y = g.node("Gemm", [x, in_bytes(g, array), g.normal((n,), 0.1, "bias")], (m, n), transB=1)
    y = pick(g, g.hard_swish, g.relu, g.gelu)(y)
    Bytes.drawn(g).end(g, y)


def byte_product(g: GraphBuilder) -> None:
    """A dense layer of bytes."""
    _byte_dense(g, pick(g, 1, 16, 33, 64, 196), pick(g, 32, 64, 130, 256), pick(g, 24, 64, 96), "dense", 0.0)


def pruned_byte_product(g: GraphBuilder) -> None:
    """The same with zeros in one of the forms."""
    m, k, n = pick(g, 1, 40, 64, 128, 200), pick(g, 64, 128, 256), pick(g, 64, 96, 128)
    _byte_dense(g, m, k, n, pick(g, *weights.FORMS[:-1], "2:4", "2:4"), pick(g, 0.75, 0.9))


def byte_image(g: GraphBuilder, *channels: int) -> Value:
    """An input of some pixels in bytes."""
    shape = (pick(g, 1, 1, 2), pick(g, *channels), pick(g, 7, 14, 16, 28), pick(g, 7, 15, 16, 28))
    return Bytes.drawn(g).given(g, "x", shape)


def _byte_conv(g: GraphBuilder, x: Value, columns: int, taps: int, groups: int, form: str, stride: int = 1) -> Value:
    array = weights.pruned(g.rng, (columns, x.channels // groups, taps, taps), form, 0.8)
    inputs = [x, in_bytes(g, array), g.normal((columns,), 0.1, "bias")]
    sides = [(side + 2 * (taps // 2) - taps) // stride + 1 for side in x.shape[2:]]
    shape = (x.shape[0], columns, *sides)
    y = g.node("Conv", inputs, shape, pads=[taps // 2] * 4, strides=[stride, stride], group=groups)
    return g.relu(y) if pick(g, True, False) else y


def byte_convolution(g: GraphBuilder) -> None:
    """A convolution of bytes."""
    x = byte_image(g, 4, 16, 64, 64)
    Bytes.drawn(g).end(g, _byte_conv(g, x, pick(g, 16, 32, 40), pick(g, 1, 3, 3, 3), 1, "dense", pick(g, 1, 1, 2)))


def byte_groups(g: GraphBuilder) -> None:
    """The same in groups of channels, or channel by channel."""
    x = byte_image(g, 16, 32)
    groups = x.channels // pick(g, 1, 2, 4, 8)
    Bytes.drawn(g).end(g, _byte_conv(g, x, x.channels, 3, groups, "dense", pick(g, 1, 1, 2)))


def pruned_byte_convolution(g: GraphBuilder) -> None:
    """The same with zeros in one of the forms."""
    x = byte_image(g, 32, 64)
    Bytes.drawn(g).end(g, _byte_conv(g, x, pick(g, 32, 64), pick(g, 1, 3), 1, pick(g, *weights.FORMS[:-1])))


def byte_pool(g: GraphBuilder) -> None:
    """A pool of bytes, behind a convolution of them."""
    held, x = Bytes.drawn(g), byte_image(g, 16, 24, 64)
    given = held.of(g, _byte_conv(g, x, x.channels, 1, 1, "dense"))
    taps, stride = pick(g, (2, 2), (3, 2), (3, 1))
    kind = pick(g, "greatest", "mean", "mean", "whole mean")
    if kind == "whole mean":
        held.end(g, g.global_avg_pool(given))
    else:
        held.end(g, (g.max_pool if kind == "greatest" else g.avg_pool)(given, taps, stride))


def byte_attention(g: GraphBuilder) -> None:
    """Attention whose products are of bytes."""
    heads, tokens, depth = pick(g, 1, 2), pick(g, 16, 48, 64), pick(g, 16, 32)
    q, k, v = (Bytes.drawn(g) for _ in range(3))
    queries = q.given(g, "q", (1, heads, tokens, depth))
    keys = k.given(g, "k", (1, heads, depth, tokens))
    values = v.given(g, "v", (1, heads, tokens, depth))
    scores = g.softmax(g.scale(g.matmul(queries, keys), depth**-0.5))
    shares = Bytes(1 / 255, 0, signed=False) if pick(g, True, False) else Bytes(1 / 127, 0, signed=True)
    Bytes.drawn(g).end(g, g.matmul(shares.of(g, scores), values))
