"""Small networks whose layers exporters write out in plain operators.

A Llama decoder with a cache, a diffusion U-Net, LSTM and GRU cells.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from bench.zoo.attention import attend, heads_of, scaled_scores
from bench.zoo.builder import GraphBuilder, Value
from bench.zoo.language import LOWEST
from bench.zoo.moments import Moments

STATE = Moments(0.0, 0.2)
"""Of the elements of a recurrent layer's state."""


def tiny_llama(g: GraphBuilder, *, seq: int = 8, past: int = 8, width: int = 32, blocks: int = 2) -> None:
    """A decoder with a cache as PyTorch exports it, 4 heads for queries and 2 for keys.

    After Touvron et al. 2023 (arXiv 2302.13971). RMSNorm from Pow to Mul, rotary embedding by Slice, Neg and Concat,
    keys and values behind those of `past` tokens and repeated by Expand, both operands of the scores scaled, a mask of
    booleans made additive, SwiGLU.
    """
    heads, groups = 4, 2
    x = g.gather(g.normal((64, width), 1.0, "words"), g.input("input_ids", (1, seq), TensorProto.INT64))
    positions = g.input("position_ids", (1, seq), TensorProto.INT64)
    mask = _llama_mask(g, g.input("attention_mask", (1, past + seq), TensorProto.INT64), seq)
    turns = _rotary_angles(g, positions, width // heads)
    for block in range(blocks):
        y = _rms_norm(g, x)
        q = _rotated(g, heads_of(g, g.dense(y, width, bias=False), heads), *turns)
        k = _rotated(g, heads_of(g, g.dense(y, width // 2, bias=False), groups), *turns)
        v = heads_of(g, g.dense(y, width // 2, bias=False), groups)
        cache = [g.input(f"past.{block}.{name}", (1, groups, past, width // heads)) for name in ("key", "value")]
        k, v = (g.concat([before, now], axis=2) for before, now in zip(cache, (k, v), strict=True))
        g.output(f"present.{block}.key", k)
        g.output(f"present.{block}.value", v)
        k, v = (_repeated(g, heads_of_all, heads // groups) for heads_of_all in (k, v))
        root = (width // heads) ** -0.25
        scores = g.matmul(g.scale(q, root), g.scale(g.transpose(k, (0, 1, 3, 2)), root))
        mixed = attend(g, g.add(scores, mask), v)
        x = g.add(x, g.dense(mixed, width, gain=4.0, bias=False))
        y = _rms_norm(g, x)
        gated = g.mul(g.silu(g.dense(y, 2 * width, bias=False)), g.dense(y, 2 * width, bias=False))
        x = g.add(x, g.dense(gated, width, gain=4.0, bias=False))
    g.output("logits", g.dense(_rms_norm(g, x), 64, bias=False))


def _rms_norm(g: GraphBuilder, x: Value) -> Value:
    """w * (x * 1 / sqrt(mean(x**2) + 1e-6))."""
    column = (*x.shape[:-1], 1)
    square = g.node("Pow", [x, g.scalar(2.0)], x.shape)
    mean = g.node("ReduceMean", [square], column, axes=[-1], keepdims=1)
    root = g.node("Sqrt", [g.add(mean, g.scalar(1e-6))], column)
    normal = g.node("Mul", [x, g.node("Reciprocal", [root], column)], x.shape)
    return g.node("Mul", [g.uniform((x.shape[-1],), 0.7, 1.3, "norm.scale"), normal], x.shape)


def _llama_mask(g: GraphBuilder, kept: Value, seq: int) -> Value:
    """One mask [1, 1, seq, T] of the lowest float and 0.

    It hides what is 0 in `kept`, [1, T] of 0 and 1, and what is ahead of each of the last `seq` tokens.
    """
    total = kept.shape[1]
    causal = g.constant(np.tril(np.ones((1, 1, seq, total), np.bool_), total - seq), "causal")
    seen = g.cast(g.unsqueeze(g.unsqueeze(kept, 1), 2), TensorProto.BOOL)
    both = g.node("And", [causal, seen], causal.shape, dtype=TensorProto.BOOL)
    return g.node("Where", [both, g.scalar(0.0), g.scalar(LOWEST, "lowest")], causal.shape)


def _rotary_angles(g: GraphBuilder, positions: Value, width: int) -> tuple[Value, Value]:
    """Cosines and sines [1, 1, T, width] of the angles of each position (Su et al. 2021, arXiv 2104.09864)."""
    tokens = positions.shape[1]
    rates = g.constant((10000.0 ** -(np.arange(0, width, 2) / width)).astype(np.float32)[None, :, None], "scales")
    row = g.cast(g.unsqueeze(positions, 1), TensorProto.FLOAT)
    angles = g.transpose(g.node("MatMul", [rates, row], (1, width // 2, tokens)), (0, 2, 1))
    both = g.concat([angles, angles], axis=-1)
    cosines, sines = (g.node(op, [both], both.shape) for op in ("Cos", "Sin"))
    return g.unsqueeze(cosines, 1), g.unsqueeze(sines, 1)


def _rotated(g: GraphBuilder, x: Value, cosines: Value, sines: Value) -> Value:
    """x cos + rotate_half(x) sin, whose halves are (-second, first)."""
    width = x.shape[-1]
    first = g.slice(x, (3,), (0,), (width // 2,))
    second = g.slice(x, (3,), (width // 2,), (width,))
    half = g.concat([g.node("Neg", [second], second.shape), first], axis=-1)
    return g.node("Add", [g.node("Mul", [x, cosines], x.shape), g.node("Mul", [half, sines], x.shape)], x.shape)


def _repeated(g: GraphBuilder, x: Value, times: int) -> Value:
    """[1, groups, T, d] -> [1, groups * times, T, d]: each head stands `times` in a row."""
    batch, groups, tokens, width = x.shape
    wide = (batch, groups, times, tokens, width)
    spread = g.node("Expand", [g.unsqueeze(x, 2), g.integers(wide, "shape")], wide, x.moments)
    return g.reshape(spread, (batch, groups * times, tokens, width))


def tiny_unet(g: GraphBuilder, *, size: int = 16) -> None:
    """Two resolutions of residual blocks with attention at the lower one.

    A block has group norm, SiLU, and an embedding of the time added.

    After Ho et al. 2020 (arXiv 2006.11239), as PyTorch exports it: group norm is InstanceNormalization between two
    Reshapes, then Mul and Add.
    """
    time = g.silu(g.gemm(g.input("time", (1, 16)), 32))
    x = g.conv(g.input("noisy", (1, 3, size, size)), 16, 3, bias=True)
    fine = _residual(g, x, time, 16)
    x = _residual(g, g.conv(fine, 20, 3, 2, bias=True), time, 20)
    x = _residual(g, _spatial_attention(g, x), time, 20)
    x = g.conv(g.upsample(x, 2), 16, 3, bias=True)
    x = _residual(g, g.concat([x, fine]), time, 16)
    g.output("noise", g.conv(g.silu(_group_norm(g, x, 4)), 3, 3, bias=True))


def _group_norm(g: GraphBuilder, x: Value, groups: int) -> Value:
    batch, channels, height, width = x.shape
    ones, zeros = (g.constant(np.full(groups, number, np.float32), "scalar") for number in (1.0, 0.0))
    flat = g.reshape(x, (batch, groups, channels // groups * height * width))
    normal = g.node("InstanceNormalization", [flat, ones, zeros], flat.shape, epsilon=1e-5)
    scale = g.uniform((channels, 1, 1), 0.7, 1.3, "norm.scale")
    scaled = g.node("Mul", [g.reshape(normal, x.shape), scale], x.shape)
    return g.node("Add", [scaled, g.normal((channels, 1, 1), 0.1, "norm.shift")], x.shape)


def _residual(g: GraphBuilder, x: Value, time: Value, channels: int) -> Value:
    y = g.conv(g.silu(_group_norm(g, x, 4)), channels, 3, bias=True)
    y = g.add(y, g.unsqueeze(g.unsqueeze(g.gemm(time, channels), 2), 3))
    y = g.conv(g.silu(_group_norm(g, y, 4)), channels, 3, bias=True)
    return g.add(x if x.channels == channels else g.conv(x, channels, 1, bias=True), y)


def _spatial_attention(g: GraphBuilder, x: Value) -> Value:
    """Attention of 2 heads between the pixels of [1, C, H, W]."""
    batch, channels, height, width = x.shape
    rows = g.transpose(g.reshape(_group_norm(g, x, 4), (batch, channels, height * width)), (0, 2, 1))
    q, k, v = (g.dense(rows, channels) for _ in range(3))
    scores = scaled_scores(g, heads_of(g, q, 2), heads_of(g, k, 2, for_keys=True))
    mixed = g.dense(attend(g, scores, heads_of(g, v, 2)), channels, gain=4.0)
    return g.add(x, g.reshape(g.transpose(mixed, (0, 2, 1)), x.shape))


def tiny_lstm_cells(g: GraphBuilder, *, steps: int = 6, hidden: int = 24) -> None:
    """An LSTM cell over a sequence and a GRU cell over what it gives, as PyTorch exports them.

    Both are unrolled by a loop of the model. The LSTM's outputs are stacked, of the GRU only the last state is
    returned.
    """
    x = g.input("sequence", (steps, 2, 12))
    lstm = _cell_weights(g, 12, hidden, 4)
    gru = _cell_weights(g, hidden, hidden, 3)
    h = c = g.normal((2, hidden), 0.0, "state")
    s = g.normal((2, hidden), 0.0, "state")
    states = []
    for step in range(steps):
        h, c = _lstm_cell(g, g.gather_axis(x, step, axis=0), h, c, lstm)
        s = _gru_cell(g, h, s, gru)
        states.append(g.unsqueeze(h, 0))
    g.output("states", g.concat(states, axis=0))
    g.output("c", c)
    g.output("scores", g.gemm(s, 10, gain=8.0))


def _cell_weights(g: GraphBuilder, inputs: int, hidden: int, gates: int) -> tuple[Value, Value, Value, Value]:
    """[gates * hidden, inputs], [gates * hidden, hidden] and a bias for each, uniform within 2 / sqrt(hidden)."""
    bound, rows = 2.0 / math.sqrt(hidden), gates * hidden
    w, r, bw, br = (
        g.uniform(shape, -bound, bound, "cell.weight") for shape in ((rows, inputs), (rows, hidden), (rows,), (rows,))
    )
    return w, r, bw, br


def _products(g: GraphBuilder, x: Value, h: Value, weights: tuple[Value, Value, Value, Value]) -> tuple[Value, Value]:
    w, r, bw, br = weights
    shape = (x.shape[0], w.shape[0])
    return g.node("Gemm", [x, w, bw], shape, transB=1), g.node("Gemm", [h, r, br], shape, transB=1)


def _lstm_cell(
    g: GraphBuilder, x: Value, h: Value, c: Value, weights: tuple[Value, Value, Value, Value]
) -> tuple[Value, Value]:
    """(h', c'): gates in the order input, forget, cell, output."""
    i, f, n, o = g.split(g.add(*_products(g, x, h, weights)), 4)
    kept = g.node("Mul", [g.sigmoid(f), c], c.shape, STATE)
    new = g.node("Mul", [g.sigmoid(i), g.tanh(n)], c.shape, STATE)
    c = g.node("Add", [kept, new], c.shape, STATE)
    return g.node("Mul", [g.sigmoid(o), g.tanh(c)], c.shape, STATE), c


def _gru_cell(g: GraphBuilder, x: Value, h: Value, weights: tuple[Value, Value, Value, Value]) -> Value:
    """h': gates in the order reset, update, new."""
    from_x, from_h = _products(g, x, h, weights)
    (xr, xz, xn), (hr, hz, hn) = g.split(from_x, 3), g.split(from_h, 3)
    reset, update = g.sigmoid(g.add(xr, hr)), g.sigmoid(g.add(xz, hz))
    new = g.tanh(g.add(xn, g.node("Mul", [reset, hn], h.shape, STATE)))
    kept = g.node("Mul", [g.node("Sub", [h, new], h.shape, STATE), update], h.shape, STATE)
    return g.node("Add", [kept, new], h.shape, STATE)
