"""A decoder as exporters write it, one step of a few tokens over caches that it is given and gives back.

The names of inputs, outputs and dimensions are those of onnxruntime-genai's builder, and so is the form with
GroupQueryAttention; only the last token's logits are computed, as its option `prune_lm_head` has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from bench.generate.codes import BLOCK, Codes, Coding, packed
from bench.generate.shapes import NEAR_BASE, Shape
from bench.generate.weights import TABLE, Parts

SEQUENCE, PAST, TOTAL = "sequence_length", "past_sequence_length", "total_sequence_length"
"""Dimensions: tokens of a step, tokens that a cache holds or has room for before it, and after it."""
CONTRIB = "com.microsoft"
NEAR = "_near"
"""Ends the names of what layers have that see a window alone."""
PAGE, OUTSIDE = 4096, 1024
"""Bytes that external data is aligned to, and of the smallest array that lies there."""
F32, I64, I32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32


class Attention(StrEnum):
    """How caches are written and read.

    GROUPED  GroupQueryAttention; with PAST = TOTAL the cache stays at its capacity, and `attention_mask` says how much
             of it counts
    PLAIN    plain operators over a cache of one capacity, to which ScatterND writes at `position_ids`
    GROWING  plain operators; Concat appends to the cache
    """

    GROUPED = "grouped"
    PLAIN = "plain"
    GROWING = "growing"


@dataclass
class _Graph:
    """Nodes and constants as they are added; large ones are written to `data`, which is named by its file."""

    data: BinaryIO | None = None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def constant(self, name: str, array: NDArray[Any] | np.generic) -> str:
        if name not in self.constants:
            self.constants[name] = self._tensor(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def _tensor(self, tensor: onnx.TensorProto) -> onnx.TensorProto:
        if self.data is None or len(tensor.raw_data) < OUTSIDE:
            return tensor
        self.data.write(bytes(-self.data.tell() % PAGE))
        external_data_helper.set_external_data(
            tensor, Path(self.data.name).name, self.data.tell(), len(tensor.raw_data)
        )
        self.data.write(tensor.raw_data)
        tensor.ClearField("raw_data")
        return tensor

    def ints(self, *values: int) -> str:
        return self.constant("ints_" + "_".join(map(str, values)), np.array(values, np.int64))

    def call(self, op: str, inputs: list[str], outputs: str | list[str], domain: str = "", **attrs: Any) -> str:
        results = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(op, inputs, results, domain=domain, **attrs))
        return results[0]


def decoder(
    parts: Parts, attention: Attention, positions: int, level: int = 0, data: BinaryIO | None = None
) -> onnx.ModelProto:
    """The model of some weights.

    positions  the longest text, which the tables of rotary positions are made for
    level      of MatMulNBits: 0 computes in fp32, 4 rounds the products' inputs to int8
    data       a file beside the model's, to which what is large is written as external data

    Inputs: `input_ids` [1, S] (i64); `attention_mask` [1, T] (i64) of GROUPED, `position_ids` [1, S] of the others;
    `past_key_values.N.key` and `.value` [1, shared heads, P, head width]. Outputs: `logits`
    [1, 1, words] of the last token, `present.N.key` and `.value`.
    """
    shape, graph = parts.shape, _Graph(data)
    _tables(graph, parts, positions)
    _begin(graph, shape, attention)
    state = graph.call("Gather", [graph.constant(TABLE, parts.table), "input_ids"], "embedded")
    if shape.scale != 1:
        state = graph.call(
            "Mul", [state, graph.constant("embedding_scale", np.float32(shape.scale))], "scaled_embedded"
        )
    for at in range(shape.layers):
        own = f"blk.{at}."
        normed = _norm(graph, parts, state, own + "attn_norm")
        q, k, v = (_linear(graph, parts, normed, own + f"attn_{part}", level) for part in "qkv")
        if shape.normed_heads:
            q = _normed_heads(graph, parts, q, own + "attn_q_norm", shape.heads)
            k = _normed_heads(graph, parts, k, own + "attn_k_norm", shape.shared)
        mixed = (_grouped if attention is Attention.GROUPED else _plain)(graph, parts, at, (q, k, v), attention)
        attended = _linear(graph, parts, mixed, own + "attn_output", level)
        if shape.normed_sums:
            attended = _norm(graph, parts, attended, own + "post_attention_norm")
        state = graph.call("Add", [state, attended], own + "middle")
        normed = _norm(graph, parts, state, own + "ffn_norm")
        gate, up = (_linear(graph, parts, normed, own + name, level) for name in ("ffn_gate", "ffn_up"))
        wide = graph.call("Mul", [_active(graph, parts, gate, own), up], own + "gated")
        down = _linear(graph, parts, wide, own + "ffn_down", level)
        if shape.normed_sums:
            down = _norm(graph, parts, down, own + "post_ffw_norm")
        state = graph.call("Add", [state, down], own + "after")
    last = graph.call("Slice", [state, graph.ints(-1), graph.ints(2**62), graph.ints(1)], "last_state")
    _linear(graph, parts, _norm(graph, parts, last, "output_norm"), "output", level, "logits")
    return _model(graph, parts, attention)


def _active(graph: _Graph, parts: Parts, gate: str, own: str) -> str:
    if parts.shape.gelu:
        return graph.call("Gelu", [gate], own + "gelu", approximate="tanh")
    return graph.call("Mul", [gate, graph.call("Sigmoid", [gate], own + "sigmoid")], own + "silu")


def _kinds(shape: Shape) -> tuple[str, ...]:
    """What is behind the names of tables and masks, of layers that see all and those that see a window."""
    return ("", NEAR) if shape.window else ("",)


def _tables(graph: _Graph, parts: Parts, positions: int) -> None:
    half = parts.shape.head_width // 2
    for kind in _kinds(parts.shape):
        waves = (NEAR_BASE if kind else parts.shape.base) ** (-np.arange(half) / half)
        angles = np.arange(positions)[:, None] * waves[None]
        graph.constant("cos" + kind, np.cos(angles).astype(np.float32))
        graph.constant("sin" + kind, np.sin(angles).astype(np.float32))


def _begin(graph: _Graph, shape: Shape, attention: Attention) -> None:
    """What all layers share: lengths for GROUPED; else cosines and sines of the tokens, and which keys they see."""
    if attention is Attention.GROUPED:
        count = graph.call("ReduceSum", ["attention_mask", graph.ints(1)], "count", keepdims=1)
        graph.call("Cast", [graph.call("Sub", [count, graph.ints(1)], "last")], "seqlens_k", to=I32)
        size = graph.call("Shape", ["attention_mask"], "mask_shape")
        total = graph.call("Gather", [size, graph.constant("one", np.array(1, np.int64))], "total_64", axis=0)
        graph.call("Cast", [total], "total", to=I32)
        return
    for name in (turn + kind for turn in ("cos", "sin") for kind in _kinds(shape)):
        found = graph.call("Gather", [name, "position_ids"], name + "_rows")
        graph.call("Unsqueeze", [found, graph.ints(1)], name + "_own")
    rows = graph.call("Unsqueeze", ["position_ids", graph.ints(1, 3)], "rows")
    length = graph.call("Shape", ["past_key_values.0.key"], "before", start=2, end=3)
    if attention is Attention.PLAIN:
        graph.call("Transpose", ["position_ids"], "places", perm=[1, 0])
        graph.call("Identity", [length], "room")
    else:
        graph.call("Add", [length, graph.call("Shape", ["input_ids"], "new", start=1, end=2)], "room")
    most = graph.call("Squeeze", ["room"], "most")
    scalars = [graph.constant(name, np.array(value, np.int64)) for name, value in (("from", 0), ("by", 1))]
    keys = graph.call("Range", [scalars[0], most, scalars[1]], "keys")
    graph.call("LessOrEqual", [keys, rows], "seen")
    graph.constant("visible", np.float32(0))
    graph.constant("hidden", np.float32(-1e9))
    graph.call("Where", ["seen", "visible", "hidden"], "mask")
    if shape.window:
        first = graph.call("Sub", ["rows", graph.constant("window", np.array(shape.window, np.int64))], "first")
        inside = graph.call("And", ["seen", graph.call("Greater", ["keys", first], "late")], "inside")
        graph.call("Where", [inside, "visible", "hidden"], "mask" + NEAR)


def _norm(graph: _Graph, parts: Parts, state: str, name: str) -> str:
    scale = graph.constant(name, parts.vectors[name])
    return graph.call(
        "SimplifiedLayerNormalization", [state, scale], name + ".out", axis=-1, epsilon=parts.shape.epsilon
    )


def _normed_heads(graph: _Graph, parts: Parts, state: str, name: str, heads: int) -> str:
    apart = graph.call("Reshape", [state, graph.ints(0, 0, heads, parts.shape.head_width)], name + ".apart")
    normed = _norm(graph, parts, apart, name)
    return graph.call("Reshape", [normed, graph.ints(0, 0, heads * parts.shape.head_width)], name + ".joined")


def _linear(graph: _Graph, parts: Parts, state: str, name: str, level: int, output: str = "") -> str:
    codes, result = parts.matrices[name], output or name + ".out"
    outputs, inputs = codes.size
    if parts.coding in (Coding.NBITS4, Coding.HALVES):
        held = (codes.codes, codes.zeros) if codes.bits == 8 else (packed(_u8(codes.codes)), packed(_u8(codes.zeros)))
        given = [
            state,
            graph.constant(name + ".codes", held[0]),
            graph.constant(name + ".scales", codes.scales.reshape(-1)),
            graph.constant(name + ".zeros", held[1].reshape(-1)),
        ]
        return graph.call(
            "MatMulNBits", given, result, CONTRIB,
            N=outputs, K=inputs, bits=codes.bits, block_size=BLOCK, accuracy_level=level,
        )  # fmt: skip
    return graph.call("MatMul", [state, _dense(graph, name, codes)], result)


def _dense(graph: _Graph, name: str, codes: Codes) -> str:
    """[inputs, outputs] in fp32: a constant, or what Cast or DequantizeLinear makes of one."""
    table = np.ascontiguousarray(codes.codes.reshape(codes.size).T)
    if codes.bits == 32:
        return graph.constant(name, table)
    if codes.bits == 16:
        return graph.call("Cast", [graph.constant(name, table)], name + ".dense", to=F32)
    blocks = codes.scales.shape[1] > 1
    held = table.astype(ml_dtypes.int4) if codes.bits == 4 else table
    scales = graph.constant(name + ".scales", codes.scales.T if blocks else codes.scales[:, 0])
    attrs: dict[str, Any] = {"axis": 0, "block_size": BLOCK} if blocks else {"axis": 1}
    return graph.call("DequantizeLinear", [graph.constant(name + ".codes", held), scales], name + ".dense", **attrs)


def _u8(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.astype(np.uint8)


def _grouped(graph: _Graph, parts: Parts, at: int, operands: tuple[str, str, str], attention: Attention) -> str:
    shape, kind = parts.shape, NEAR if parts.shape.is_near(at) else ""
    near = {"local_window_size": shape.window} if kind else {}
    pasts = [f"past_key_values.{at}.{part}" for part in ("key", "value")]
    return graph.call(
        "GroupQueryAttention",
        [*operands, *pasts, "seqlens_k", "total", "cos" + kind, "sin" + kind],
        [f"blk.{at}.mixed", *(f"present.{at}.{part}" for part in ("key", "value"))],
        CONTRIB,
        num_heads=shape.heads,
        kv_num_heads=shape.shared,
        do_rotary=1,
        rotary_interleaved=0,
        scale=shape.head_width**-0.5,
        **near,
    )


def _plain(graph: _Graph, parts: Parts, at: int, operands: tuple[str, str, str], attention: Attention) -> str:
    shape, own = parts.shape, f"blk.{at}."
    call, ints, width = graph.call, graph.ints, parts.shape.head_width
    kind = NEAR if shape.is_near(at) else ""
    q, k, v = (
        call(
            "Transpose", [call("Reshape", [one, ints(0, 0, heads, width)], one + ".apart")], one + ".heads",
            perm=[0, 2, 1, 3],
        )
        for one, heads in zip(operands, (shape.heads, shape.shared, shape.shared), strict=True)
    )  # fmt: skip
    q, k = (_rotated(graph, one, width, kind) for one in (q, k))
    caches = []
    for part, new in (("key", k), ("value", v)):
        past, present = f"past_key_values.{at}.{part}", f"present.{at}.{part}"
        if attention is Attention.GROWING:
            caches.append(call("Concat", [past, new], present, axis=2))
            continue
        rows, updates = (
            call("Transpose", [one], f"{present}.{name}", perm=[2, 0, 1, 3])
            for name, one in (("rows", past), ("updates", new))
        )
        written = call("ScatterND", [rows, "places", updates], present + ".written")
        caches.append(call("Transpose", [written], present, perm=[1, 2, 0, 3]))
    repeated = []
    for name, cache in zip("kv", caches, strict=True):
        apart = call("Unsqueeze", [cache, ints(2)], own + name + ".one")
        several = call("Expand", [apart, ints(1, 1, shape.heads // shape.shared, 1, 1)], own + name + ".several")
        sizes = call("Concat", [ints(1, shape.heads), "room", ints(width)], own + name + ".sizes", axis=0)
        repeated.append(call("Reshape", [several, sizes], own + name + ".all"))
    across = call("Transpose", [repeated[0]], own + "across", perm=[0, 1, 3, 2])
    scores = call("MatMul", [q, across], own + "scores")
    scale = graph.constant("scale", np.float32(width**-0.5))
    masked = call("Add", [call("Mul", [scores, scale], own + "scaled"), "mask" + kind], own + "masked")
    mixed = call("MatMul", [call("Softmax", [masked], own + "shares", axis=-1), repeated[1]], own + "mixed")
    beside = call("Transpose", [mixed], own + "beside", perm=[0, 2, 1, 3])
    return call("Reshape", [beside, ints(0, 0, shape.heads * width)], own + "joined")


def _rotated(graph: _Graph, state: str, width: int, kind: str) -> str:
    """Both halves of each head as real and imaginary part, turned by the token's angle."""
    call, half = graph.call, width // 2
    first = call("Slice", [state, graph.ints(0), graph.ints(half), graph.ints(3)], state + ".first")
    second = call("Slice", [state, graph.ints(half), graph.ints(width), graph.ints(3)], state + ".second")
    products = {
        (part, turn): call("Mul", [part, turn + kind + "_own"], f"{part}.{turn}")
        for part in (first, second)
        for turn in ("cos", "sin")
    }
    real = call("Sub", [products[first, "cos"], products[second, "sin"]], state + ".real")
    imaginary = call("Add", [products[second, "cos"], products[first, "sin"]], state + ".imaginary")
    return call("Concat", [real, imaginary], state + ".turned", axis=3)


def _model(graph: _Graph, parts: Parts, attention: Attention) -> onnx.ModelProto:
    shape = parts.shape
    info = helper.make_tensor_value_info
    after = PAST if attention is Attention.PLAIN else TOTAL
    inputs = [info("input_ids", I64, [1, SEQUENCE])]
    if attention is Attention.GROUPED:
        inputs.append(info("attention_mask", I64, [1, TOTAL]))
    if attention is not Attention.GROUPED:
        inputs.append(info("position_ids", I64, [1, SEQUENCE]))
    outputs = [info("logits", F32, [1, 1, shape.words])]
    for at in range(shape.layers):
        for part in ("key", "value"):
            sizes: list[list[int | str]] = [[1, shape.shared, one, shape.head_width] for one in (PAST, after)]
            inputs.append(info(f"past_key_values.{at}.{part}", F32, sizes[0]))
            outputs.append(info(f"present.{at}.{part}", F32, sizes[1]))
    made = helper.make_graph(graph.nodes, "decoder", inputs, outputs, list(graph.constants.values()))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=10)
