"""Encoders of texts as exporters write them, of open batch and length, with seeded weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

INPUTS = ("input_ids", "attention_mask", "token_type_ids")

Change = Callable[[str], str]
"""From a value's name to that of what nodes make of it."""


class Encoder:
    """A BERT (Devlin et al. 2018) of open batch and length, layer by layer; `finish` gives the model's bytes.

    counted  the token that is padding, for positions counted from the others as RoBERTa does (Liu et al. 2019)
    """

    def __init__(
        self,
        hidden: int = 16,
        heads: int = 2,
        vocabulary: int = 50,
        positions: int = 40,
        seed: int = 0,
        counted: int | None = None,
    ) -> None:
        self.hidden, self.heads, self.positions = hidden, heads, positions
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        shape = self("Shape", "input_ids")
        self.batch, self.length = (self("Gather", shape, self.numbers([at])) for at in (0, 1))
        every = self.constant(np.arange(positions, dtype=np.int64)[None])
        places = self("Slice", every, self.numbers([0]), self.length, self.numbers([1]), self.numbers([1]))
        if counted is not None:
            padding = self.constant(np.array(counted, np.int64))
            there = self("Cast", self("Not", self("Equal", INPUTS[0], padding)), to=TensorProto.INT32)
            many = self("Mul", self("CumSum", there, self.constant(np.array(1))), there)
            places = self("Add", self("Cast", many, to=TensorProto.INT64), padding)
        tables = [self.weights(size, hidden, std=1.0) for size in (vocabulary, 2, positions)]
        x, kind, place = (self("Gather", *pair) for pair in zip(tables, (INPUTS[0], INPUTS[2], places), strict=True))
        self.x = self.norm(self("Add", self("Add", x, kind), place))
        mask = self("Cast", self("Unsqueeze", "attention_mask", self.numbers([1, 2])), to=TensorProto.FLOAT)
        self.mask = self("Mul", self("Sub", self.number(1), mask), self.number(float(np.finfo(np.float32).min)))

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node's result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{op}_{name}", **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        """An initializer's name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def numbers(self, values: list[int]) -> str:
        """Of a list of integers."""
        return self.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        """Of a scalar."""
        return self.constant(np.asarray(value, np.float32))

    def weights(self, *shape: int, std: float | None = None) -> str:
        """Of normal numbers."""
        drawn = self.random.standard_normal(shape) * (std or shape[0] ** -0.5)
        return self.constant(drawn.astype(np.float32))

    def norm(self, x: str) -> str:
        """A layer normalisation."""
        scale = self.constant((1 + 0.1 * self.random.standard_normal(self.hidden)).astype(np.float32))
        return self("LayerNormalization", x, scale, self.weights(self.hidden, std=0.1), axis=-1, epsilon=1e-12)

    def product(self, x: str, inside: int, out: int) -> str:
        """With weights."""
        return self("MatMul", x, self.weights(inside, out))

    def linear(self, x: str, inside: int, out: int) -> str:
        """A product with weights, and a bias."""
        return self("Add", self.weights(out, std=0.1), self.product(x, inside, out))

    def shaped(self, x: str, *last: int) -> str:
        """In the shape [batch, length, *last]."""
        return self("Reshape", x, self("Concat", self.batch, self.length, self.numbers([*last]), axis=0))

    def places(self) -> str:
        """Of tokens in their text, [length]."""
        return self("Range", self.constant(np.array(0)), self("Squeeze", self.length), self.constant(np.array(1)))

    def turned(self, is_table: bool = False) -> Change:
        """Rotary positions (Su et al. 2021) of queries and keys: computed in the model, or from tables by position."""
        half = self.hidden // self.heads // 2
        speeds, places = 100.0 ** (-np.arange(half) / half), self.places()
        if is_table:
            angles = np.tile(np.arange(self.positions)[:, None] * speeds, 2).astype(np.float32)
            turns = [self("Gather", self.constant(table), places) for table in (np.cos(angles), np.sin(angles))]
        else:
            row = self("Unsqueeze", self("Cast", places, to=TensorProto.FLOAT), self.numbers([0]))
            angle = self("MatMul", self.constant(speeds[:, None].astype(np.float32)), row)
            angle = self("Transpose", self("Concat", angle, angle, axis=0), perm=[1, 0])
            turns = [self(op, angle) for op in ("Cos", "Sin")]
        cos, sin = (self("Unsqueeze", one, self.numbers([0, 2])) for one in turns)

        def turn(x: str) -> str:
            cuts = [[self.numbers([at]) for at in (half * part, half * part + half, -1)] for part in (1, 0)]
            back, front = (self("Slice", x, *cut) for cut in cuts)
            return self("Add", self("Mul", x, cos), self("Mul", self("Concat", self("Neg", back), front, axis=-1), sin))

        return turn

    def local(self, most: int) -> Change:
        """Scores of keys at most so far from the query, as ModernBERT's local layers have them (Warner et al. 2024)."""
        places = self.places()
        far = self("Abs", self("Sub", self("Unsqueeze", places, self.numbers([1])), places))
        outside = self("Greater", far, self.constant(np.array(most)))
        bias = self("Where", outside, self.number(float(np.finfo(np.float32).min)), self.mask)
        return lambda scores: self("Add", scores, bias)

    def attention(self, hide: Change | None = None, turn: Change | None = None) -> str:
        """What each token sees of all others, of whose scores `hide` makes others, and `turn` of queries and keys."""
        deep = self.hidden // self.heads
        parts = [self.shaped(self.linear(self.x, self.hidden, self.hidden), self.heads, deep) for _ in range(3)]
        parts[:2] = [turn(part) if turn else part for part in parts[:2]]
        q, k, v = (self("Transpose", part, perm=perm) for part, perm in zip(parts, ORDERS, strict=True))
        scores = self("Add", self("Div", self("MatMul", q, k), self.number(deep**0.5)), self.mask)
        scores = hide(scores) if hide else scores
        seen = self("Transpose", self("MatMul", self("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return self.linear(self.shaped(seen, self.hidden), self.hidden, self.hidden)

    def layer(self, wide: int = 24, hide: Change | None = None, turn: Change | None = None) -> None:
        """Attention, then two products with a Gelu between them."""
        self.x = self.norm(self("Add", self.attention(hide, turn), self.x))
        inner = self.linear(self.x, self.hidden, wide)
        error = self("Add", self("Erf", self("Div", inner, self.number(2**0.5))), self.number(1))
        inner = self("Mul", self("Mul", inner, error), self.number(0.5))
        self.x = self.norm(self("Add", self.linear(inner, wide, self.hidden), self.x))

    def mean(self) -> str:
        """Of the tokens that the mask keeps, as sentence-transformers writes it, divided by its length."""
        mask = self("Unsqueeze", "attention_mask", self.numbers([-1]))
        mask = self("Cast", self("Expand", mask, self("Shape", self.x)), to=TensorProto.FLOAT)
        total = self("ReduceSum", self("Mul", self.x, mask), self.numbers([1]), keepdims=0)
        count = self("Clip", self("ReduceSum", mask, self.numbers([1]), keepdims=0), self.number(1e-9))
        pooled = self("Div", total, count)
        length = self("ReduceL2", pooled, self.numbers([1]), keepdims=1)
        return self("Div", pooled, self("Clip", length, self.number(1e-12)))

    def finish(self, **outputs: str) -> bytes:
        """The model with these outputs."""
        for name, value in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name], name=f"out_{name}"))
        shape = ["batch", "sequence"]
        graph = helper.make_graph(
            self.nodes,
            "encoder",
            [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in INPUTS],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self.constants,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        return bytes(made.SerializeToString())


ORDERS = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
"""Of queries, keys and values."""


class InBytes(Encoder):
    """The same with weights of a byte, by which is multiplied what is quantised by its own range while running.

    So does ONNX Runtime's `quantize_dynamic` write it. `largest` is the largest code of a weight: 63, as its
    `reduce_range` has it, where sums of pairs saturate (AVX2 without VNNI, in ONNX Runtime).
    """

    largest = 127

    def product(self, x: str, inside: int, out: int) -> str:
        """Of bytes, of both operands' own ranges."""
        drawn = self.random.standard_normal((inside, out)) * inside**-0.5
        step = np.abs(drawn).max() / self.largest
        weights = self.constant(np.round(drawn / step).astype(np.int8))
        codes = self("DynamicQuantizeLinear", x)
        scale, zero = (f"{codes}_{name}" for name in ("scale", "zero"))
        self.nodes[-1].output.extend([scale, zero])
        whole = self("Cast", self("MatMulInteger", codes, weights, zero), to=TensorProto.FLOAT)
        return self("Mul", whole, self("Mul", scale, self.number(step)))


def minilm(layers: int = 6, wide: int = 1536, kind: type[Encoder] = Encoder) -> bytes:
    """A network of the size and form of all-MiniLM-L6-v2 (Wang et al. 2020), with the mean of its tokens.

    With 12 layers of bge-small-en-v1.5 (Xiao et al. 2023), but for its pooling.
    """
    encoder = kind(hidden=384, heads=12, vocabulary=30522, positions=512)
    for _ in range(layers):
        encoder.layer(wide)
    return encoder.finish(sentence_embedding=encoder.mean())


def modernbert(kind: type[Encoder] = Encoder) -> bytes:
    """Six of the 22 layers of ModernBERT-base (Warner et al. 2024): rotary positions, every third sees all tokens.

    A Gelu takes the place of its GeGLU, as wide as makes the same number of products.
    """
    encoder = kind(hidden=768, heads=12, vocabulary=50368, positions=512)
    turn, near = encoder.turned(is_table=True), encoder.local(64)
    for layer in range(6):
        encoder.layer(1728, hide=near if layer % 3 else None, turn=turn)
    return encoder.finish(sentence_embedding=encoder.mean())
