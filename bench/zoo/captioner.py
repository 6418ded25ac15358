"""An image captioner: DenseNet-121 features, then an LSTM that decodes greedily.

Vinyals et al. 2014, arXiv 1411.4555.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from bench.zoo.builder import GraphBuilder, Value
from bench.zoo.densenet import densenet121_features
from bench.zoo.moments import Moments


def densenet_lstm_captioner(
    g: GraphBuilder,
    *,
    size: int = 224,
    steps: int = 20,
    hidden: int = 1024,
    vocabulary: int = 6000,
    layers: int = 2,
    encoder: bool = True,
    carry: bool = False,
) -> None:
    """Image to `steps` words, unrolled: each step feeds the likeliest word back. Without `encoder`, from the features.

    Outputs the words, [1, steps] int64, and the scores of every step, [1, steps, vocabulary]. With `carry` the states
    of each layer, [1, 1, hidden], are inputs too, `h0` and `c0` of the first, and outputs, `h0_next` and `c0_next`: for
    an image after the other.
    """
    if encoder:
        features = g.flatten(densenet121_features(g, g.input("image", (1, 3, size, size))))
    else:
        features = g.input("features", (1, 1024))
    x = g.unsqueeze(g.gemm(features, hidden), 0)
    cells = [lstm_weights(g, hidden, hidden) for _ in range(layers)]
    if carry:
        states = [(g.input(f"h{at}", (1, 1, hidden)), g.input(f"c{at}", (1, 1, hidden))) for at in range(layers)]
    else:
        zero = g.normal((1, 1, hidden), 0.0, "state")
        states = [(zero, zero)] * layers
    table = g.normal((vocabulary, hidden), 1.0, "words")
    project = _projection(g, hidden, vocabulary)
    bias = g.normal((vocabulary,), 0.05, "project.bias")
    words, scores = [], []
    for _ in range(steps):
        for layer, cell in enumerate(cells):
            x, states[layer] = lstm(g, x, cell, states[layer])
        logits = g.add(g.node("MatMul", [x, project], (1, 1, vocabulary)), bias)
        word = g.node("ArgMax", [logits], (1, 1), dtype=TensorProto.INT64, axis=-1, keepdims=0)
        words.append(word)
        scores.append(logits)
        x = g.gather(table, word)
    g.output("words", g.concat(words, axis=1))
    g.output("scores", g.concat(scores, axis=1))
    for at, each in enumerate(states) if carry else ():
        for name, state in zip("hc", each, strict=True):
            g.output(f"{name}{at}_next", state)


def lstm(
    g: GraphBuilder, x: Value, weights: tuple[Value, Value, Value], state: tuple[Value, Value]
) -> tuple[Value, tuple[Value, Value]]:
    """A forward LSTM over [T, 1, I]: its outputs squeezed to [T, 1, H], and (h, c), each [1, 1, H]."""
    steps, batch, _ = x.shape
    hidden = weights[1].shape[-1]
    shapes = [(steps, 1, batch, hidden), (1, batch, hidden), (1, batch, hidden)]
    inputs = [x, *weights, None, *state]
    y, h, c = g.nodes("LSTM", inputs, shapes, Moments(0.0, 0.1), hidden_size=hidden)
    return g.squeeze(y, 1), (h, c)


def lstm_weights(g: GraphBuilder, inputs: int, hidden: int) -> tuple[Value, Value, Value]:
    """W [1, 4H, I], R [1, 4H, H], B [1, 8H], uniform within 2 / sqrt(H)."""
    bound = 2.0 / math.sqrt(hidden)
    shapes = ((1, 4 * hidden, inputs), (1, 4 * hidden, hidden), (1, 8 * hidden))
    w, r, b = (g.uniform(shape, -bound, bound, "lstm.weight") for shape in shapes)
    return w, r, b


def _projection(g: GraphBuilder, hidden: int, vocabulary: int) -> Value:
    """[hidden, vocabulary]; columns of log-normal size.

    So a few words dominate: a close race would hang on rounding.
    """
    sizes = 4.0 * np.exp(0.4 * g.rng.standard_normal(vocabulary, dtype=np.float32)) / math.sqrt(hidden)
    return g.constant(g.rng.standard_normal((hidden, vocabulary), dtype=np.float32) * sizes, "project.weight")
