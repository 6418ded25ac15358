"""Whisper (Radford et al. 2022, arXiv 2212.04356) in the sizes of its base model: the encoder, and a decoder's step.

As exporters write them below opset 18: attention by MatMul and Softmax, GELU by Erf. Weights are seeded.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper

from bench.zoo.voice import OPSET, Voice

MELS, POSITIONS, STEPS, HEAD = 80, 1500, 448, 64
"""Bands of the spectrogram, positions of the encoder, tokens of a text, and the width of a head."""
WIDTH, LAYERS, WORDS = 512, 6, 51865


def encoder(width: int = WIDTH, layers: int = LAYERS, frames: int | str = "frames", seed: int = 0) -> onnx.ModelProto:
    """States `states` [1, frames / 2, width] of a spectrogram `mel` [1, MELS, frames]; a name leaves frames open."""
    v = Voice(np.random.default_rng(seed))
    x = _gelu(v, v.conv("mel", MELS, width, 3))
    weight = v.normal(width, width, 3, terms=3 * width)
    x = _gelu(v, v.node("Conv", (x, weight, v.normal(width)), strides=[2], pads=[1, 1]))
    x = v.node("Transpose", [x], perm=[0, 2, 1])
    places = v.normal(POSITIONS, width)
    length = v.node("Gather", (v.node("Shape", [x]), _integers(v, 1)))
    x = v.node("Add", (x, v.node("Slice", (places, _integers(v, 0), length, _integers(v, 0)))))
    for _ in range(layers):
        y = _norm(v, x, width)
        keys, values = _heads(v, _linear(v, y, width, width, False)), _heads(v, _linear(v, y, width, width))
        x = v.node("Add", (x, _attention(v, y, keys, values, width)))
        x = _perceptron(v, x, width)
    v.node("Identity", [_norm(v, x, width)], "states")
    mel = helper.make_tensor_value_info("mel", TensorProto.FLOAT, [1, MELS, frames])
    return _made(v, "whisper_encoder", [mel], [("states", [1, "positions", width])])


def decoder(
    width: int = WIDTH, layers: int = LAYERS, words: int = WORDS, past: int | str = "past", seed: int = 0
) -> onnx.ModelProto:
    """Logits [1, 1, words] of one token `input_ids` [1, 1] behind `past` others; a name leaves their number open.

    Keys and values [1, heads, past, HEAD] of what was said grow by Concat; those of the sound (`cross`) are given.
    """
    v = Voice(np.random.default_rng(seed))
    heads = width // HEAD
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, 1])]
    outputs: list[tuple[str, list[int | str]]] = [("logits", [1, 1, words])]

    def given(name: str, length: int | str) -> str:
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, heads, length, HEAD]))
        return name

    table = v.normal(words, width)
    before = [[given(f"past_key_values.{at}.{name}", past) for name in ("key", "value")] for at in range(layers)]
    sound = [[given(f"cross.{at}.{name}", POSITIONS) for name in ("key", "value")] for at in range(layers)]
    place = v.node("Gather", (v.node("Shape", [before[0][0]]), _integers(v, 2)))
    x = v.node("Add", (v.node("Gather", (table, "input_ids")), v.node("Gather", (v.normal(STEPS, width), place))))
    for at in range(layers):
        y = _norm(v, x, width)
        grown = []
        for name, old, bias in zip(("key", "value"), before[at], (False, True), strict=True):
            new = _heads(v, _linear(v, y, width, width, bias))
            grown.append(v.node("Concat", (old, new), f"present.{at}.{name}", axis=2))
            outputs.append((grown[-1], [1, heads, "total", HEAD]))
        x = v.node("Add", (x, _attention(v, y, grown[0], grown[1], width)))
        x = v.node("Add", (x, _attention(v, _norm(v, x, width), sound[at][0], sound[at][1], width)))
        x = _perceptron(v, x, width)
    scaled = v.node("Mul", (_norm(v, x, width), v.constant(np.array(width**-0.5, np.float32))))
    v.node("MatMul", (scaled, v.node("Transpose", [table], perm=[1, 0])), "logits")
    return _made(v, "whisper_decoder", inputs, outputs)


def _made(
    v: Voice, name: str, inputs: list[onnx.ValueInfoProto], outputs: list[tuple[str, list[int | str]]]
) -> onnx.ModelProto:
    found = [helper.make_tensor_value_info(one, TensorProto.FLOAT, shape) for one, shape in outputs]
    graph = helper.make_graph(v.nodes, name, inputs, found, v.weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def _integers(v: Voice, *numbers: int) -> str:
    return v.constant(np.array(numbers, np.int64))


def _linear(v: Voice, x: str, width: int, features: int, bias: bool = True) -> str:
    y = v.node("MatMul", (x, v.normal(width, features, terms=width)))
    return v.node("Add", (y, v.normal(features, terms=400))) if bias else y


def _norm(v: Voice, x: str, width: int) -> str:
    scale = v.constant(v.random.uniform(0.7, 1.3, width).astype(np.float32))
    return v.node("LayerNormalization", (x, scale, v.normal(width, terms=100)), axis=-1, epsilon=1e-5)


def _gelu(v: Voice, x: str) -> str:
    root = v.node("Div", (x, v.constant(np.array(math.sqrt(2), np.float32))))
    inner = v.node("Add", (v.node("Erf", [root]), v.constant(np.array(1, np.float32))))
    return v.node("Mul", (v.node("Mul", (x, inner)), v.constant(np.array(0.5, np.float32))))


def _heads(v: Voice, x: str) -> str:
    return v.node("Transpose", [v.node("Reshape", (x, _integers(v, 1, 0, -1, HEAD)))], perm=[0, 2, 1, 3])


def _attention(v: Voice, x: str, keys: str, values: str, width: int) -> str:
    """Of [1, T, width] over keys and values [1, heads, *, HEAD], each by its own linear layer."""
    scaled = v.node("Mul", (_linear(v, x, width, width), v.constant(np.array(HEAD**-0.5, np.float32))))
    scores = v.node("MatMul", (_heads(v, scaled), v.node("Transpose", [keys], perm=[0, 1, 3, 2])))
    mixed = v.node("MatMul", (v.node("Softmax", [scores], axis=-1), values))
    flat = v.node("Reshape", (v.node("Transpose", [mixed], perm=[0, 2, 1, 3]), _integers(v, 1, -1, width)))
    return _linear(v, flat, width, width)


def _perceptron(v: Voice, x: str, width: int) -> str:
    hidden = _gelu(v, _linear(v, _norm(v, x, width), width, 4 * width))
    return v.node("Add", (x, _linear(v, hidden, 4 * width, width)))
