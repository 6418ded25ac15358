"""Where texts begin and end on the axis of tokens, as values of the packed graph.

`offsets` [texts + 1] are the places of the first tokens, the last one behind all tokens. All of it is a few thousand
comparisons a run. What lies behind the last text is a text of its own for each token, so that no row is without keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.frontend.assembly import Assembly
from compiler.ir.graph import Node
from compiler.ir.open_shapes import Limit
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Operator, Types


@dataclass
class Writer:
    """Appends nodes to a graph, typed by their operators."""

    operators: Mapping[str, Operator]
    graph: Assembly = field(default_factory=Assembly)
    source: str = ""
    numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def node(self, op: str, *inputs: int | None, **attrs: Any) -> int:
        """The result of a node that has one. Raises Unsupported where its operator does not take the types."""
        return self.nodes(op, inputs, attrs)[0]

    def nodes(self, op: str, inputs: Sequence[int | None], attrs: Mapping[str, Any], results: int = 1) -> list[int]:
        """The results of a node that has so many."""
        node = Node(op, tuple(inputs), tuple(range(results)), dict(attrs), self.source)
        types: Types = tuple(None if id is None else self.graph.type(id) for id in inputs)
        ids = [self.graph.value(kind, "") for kind in self.operators[op].infer(node, types)]
        self.graph.node(Node(op, tuple(inputs), tuple(ids), dict(attrs), self.source))
        return ids

    def shape(self, id: int) -> tuple[int, ...]:
        """Of a value."""
        return self.graph.type(id).dims

    def constant(self, array: np.ndarray) -> int:
        """A constant; one for all that are small and equal."""
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= 1 << 12 else (id(array),)
        if key not in self.numbers:
            self.numbers[key] = self.graph.constant(array, "")
        return self.numbers[key]

    def number(self, value: int) -> int:
        """A scalar i64."""
        return self.constant(np.array(value, np.int64))

    def reshape(self, id: int, shape: Sequence[int]) -> int:
        """In another shape; itself where it has that one."""
        if self.shape(id) == tuple(shape):
            return id
        return self.node("Reshape", id, None, shape=tuple(shape), allowzero=1)

    def extreme(self, op: str, id: int, axis: int) -> int:
        """A ReduceMax or a ReduceMin over an axis, which goes."""
        return self.node(op, id, None, axes=(axis,), keepdims=0, noop_with_empty_axes=0)


@dataclass(frozen=True)
class Segments:
    """Values of a packed graph of `tokens` tokens and `texts` texts, both at most.

    first, past  i64 [tokens]: where the text of each token begins and ends
    position     i64 [tokens]: of each token within its text
    starts, ends i64 [texts]: where each text begins and ends; what lies behind the last one is empty
    lengths      i64 [texts]: of each text, 1 for those that are not there
    ordinal      i64 [tokens]: the number of the text of each token
    size         i64 []: how many tokens there are
    """

    tokens: int
    texts: int
    first: int
    past: int
    position: int
    starts: int
    ends: int
    lengths: int
    ordinal: int
    size: int


def segments(writer: Writer, offsets: int, size: int, length: int, tokens: int) -> Segments:
    """Of `offsets` [texts + 1], a value of the graph, for `size` tokens, no text longer than `length`.

    Whatever the offsets are, no position is beyond `length` and no place beyond `tokens`.
    """
    texts = writer.shape(offsets)[0] - 1
    cut = [
        writer.node("Slice", offsets, None, None, None, None, starts=(at,), ends=(at + texts,), axes=(0,), steps=(1,))
        for at in (0, 1)
    ]
    starts, ends = (writer.node("Clip", one, writer.number(0), writer.number(tokens)) for one in cut)
    places = np.arange(tokens, dtype=np.int64)[:, None]
    here, behind = writer.constant(places), writer.constant(places + 1)
    begun = writer.node("LessOrEqual", starts, here)
    first = writer.extreme("ReduceMax", writer.node("Where", begun, starts, writer.number(0)), 1)
    open_ = writer.node("Greater", ends, here)
    past = writer.extreme("ReduceMin", writer.node("Where", open_, ends, writer.number(tokens)), 1)
    inside = writer.node("Less", here, writer.reshape(size, (1, 1)))
    inside, behind = writer.reshape(inside, (tokens,)), writer.reshape(behind, (tokens,))
    past = writer.node("Where", inside, past, behind)
    here = writer.reshape(here, (tokens,))
    first = writer.node("Where", inside, first, here)
    position = writer.node("Clip", writer.node("Sub", here, first), writer.number(0), writer.number(length - 1))
    lengths = writer.node("Max", writer.node("Sub", ends, starts), writer.number(1))
    numbers = writer.constant(np.arange(texts, dtype=np.int64))
    own = writer.node("Where", writer.node("And", begun, open_), numbers, writer.number(0))
    ordinal = writer.extreme("ReduceMax", own, 1)
    return Segments(tokens, texts, first, past, position, starts, ends, lengths, ordinal, size)


def quantised(writer: Writer, at: Segments, x: int, axis: int | None) -> tuple[int, int, int]:
    """What DynamicQuantizeLinear makes of each text by itself, by its own range: codes, scales and zero points.

    axis  of x that counts tokens, of which there are as many scales; None: its first axis counts texts
    """
    rank, number = len(writer.shape(x)), writer.constant
    others = tuple(place for place in range(rank) if place != (axis or 0))
    ends = []
    for op in ("ReduceMin", "ReduceMax"):
        end = writer.node(op, x, None, axes=others, keepdims=0, noop_with_empty_axes=1)
        if axis is not None:
            first, past = (writer.reshape(one, (at.texts, 1)) for one in (at.starts, at.ends))
            end = writer.node("PadOutside", writer.reshape(end, (1, at.tokens)), first, past, axis=1, value=0.0)
            end = writer.extreme(op, end, 1)
        ends.append(writer.node(op.removeprefix("Reduce"), end, number(np.zeros((), np.float32))))
    low, high = ends
    step = writer.node("Div", writer.node("Sub", high, low), number(np.array(255, np.float32)))
    none = writer.node("Equal", step, number(np.zeros((), np.float32)))
    scale = writer.node("Where", none, number(np.ones((), np.float32)), step)
    zero = writer.node("QuantizeLinear", writer.node("Neg", low), scale, number(np.zeros(at.texts, np.uint8)), axis=0)
    if axis is not None:
        scale, zero = (writer.node("Gather", one, at.ordinal, axis=0) for one in (scale, zero))
    return writer.node("QuantizeLinear", x, scale, zero, axis=axis or 0), scale, zero


def demands(writer: Writer, offsets: int, at: Segments, length: int) -> list[tuple[str, int, int, int]]:
    """What must hold of offsets: what that says, a scalar, and between which numbers it must be."""
    there = writer.node("Max", writer.node("Sub", at.ends, at.starts), writer.number(0))
    longest = writer.extreme("ReduceMax", there, 0)
    total = writer.node("ReduceSum", there, None, axes=(0,), keepdims=0, noop_with_empty_axes=0)
    first = writer.node("Gather", offsets, writer.number(0), axis=0)
    missing = writer.node("Abs", writer.node("Sub", at.size, total))
    return [
        ("tokens of the longest text", longest, 1, length),
        ("the place where the first text begins", first, 0, 0),
        ("tokens that offsets leave out", missing, 0, 0),
    ]


def limits(found: Sequence[tuple[str, int, int, int]], place: int) -> tuple[Limit, ...]:
    """These as outputs of the graph from number `place` on."""
    return tuple(Limit(says, low, high, place + at) for at, (says, _, low, high) in enumerate(found))


def scalar() -> TensorType:
    """The type of a size."""
    return TensorType(DType.I64, ())
