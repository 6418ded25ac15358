"""The packed graph: the model of one text, with the tokens of all texts along its axis of tokens.

What works on each token by itself stays as it is: all tokens are rows. Attention sees the keys of its own text alone,
constants that depend on the position are read at the position within the text, and what reduces the axis of tokens
gives a row for each text. Everything else that combines tokens is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from compiler.frontend.ragged.roles import Role, Seen, before, refused
from compiler.frontend.ragged.segments import Segments, Writer, quantised
from compiler.frontend.reading.tensors import CODES
from compiler.ir.graph import Node
from compiler.ir.tensor import DType
from compiler.ops import having
from compiler.ops.attributes import axes_of, ints
from compiler.ops.indices import axis_of
from compiler.ops.operator import Unsupported
from compiler.ops.traits import Trait

MAPS = having(Trait.ELEMENTWISE) | {"Identity", "Cast", "Dropout"}
NEUTRAL: Mapping[str, float] = {
    "ReduceSum": 0.0,
    "ReduceMean": 0.0,
    "ReduceL1": 0.0,
    "ReduceL2": 0.0,
    "ReduceSumSquare": 0.0,
    "ReduceMax": -math.inf,
    "ReduceMin": math.inf,
}
"""What changes nothing where an operator reduces the tokens of a text."""
KEEPING = ("Cast", "Identity", "Mul", "Dropout")
"""Maps that keep zeros."""
FACTORS: Mapping[str, tuple[int, int]] = {"MatMul": (0, 1), "MatMulInteger": (0, 1), "QLinearMatMul": (0, 3)}
"""Matrix products, and which inputs are multiplied."""
OUTSIDE = -math.inf
"""The score of a key of another text."""
HIDDEN = -1e4
"""What is added to the score of a key that must not be seen, at most: exp of it is 0 beside any other."""
Window = tuple[int, int]
"""The least and the greatest distance from a query to the keys that it sees; no text is longer than the farthest."""
Test = Callable[[np.ndarray], np.ndarray]


@dataclass
class Packing:
    """Nodes of the model of one text, one after another, become those of the packed graph in `writer`.

    made    the packed graph's value for each of the model's
    apart   scores after their softmax, by id of the model: zero for keys of other texts
    windows scores before it, by id: those of keys outside a window of distances from the query must not be seen
    codes   what a constant scale makes of scores that are apart, by id: the zero point, which is that of other texts
    numbers of a text, by id of what has neither an axis of tokens nor of texts: packed they have one first, of tokens
            or of texts, as the level says
    """

    seen: Seen
    writer: Writer
    at: Segments
    made: dict[int, int] = field(default_factory=dict)
    apart: set[int] = field(default_factory=set)
    windows: dict[int, Window] = field(default_factory=dict)
    codes: dict[int, int | None] = field(default_factory=dict)
    numbers: dict[int, str] = field(default_factory=dict)

    def node(self, node: Node) -> None:
        """The packed form of a node. Raises UnsupportedModel where it does not keep texts apart."""
        self.writer.source = node.source
        levels = {self.seen.level(id) for id in node.used if id not in self.seen.graph.constants}
        if {"tokens", "texts"} <= levels:
            raise refused("it brings what belongs to a whole text back to its tokens", node)
        try:
            self._rule(node)(node)
        except Unsupported as no:
            raise refused(no.reason, node) from None
        for id in node.outputs:
            if self.writer.shape(self.made[id]) != self.shape(id):
                raise refused("it mixes tokens in a way that is not known", node)

    def shape(self, id: int) -> tuple[int, ...]:
        """Of a value of the model in the packed graph."""
        if id in self.numbers:
            return self._rows(self.numbers[id]), *self.seen.graph.type(id).dims
        is_token = self.seen.level(id) == "tokens"
        return tuple(self._size(axis, is_token) for axis in self.seen.roles[id])

    def _rows(self, level: str) -> int:
        return self.at.tokens if level == "tokens" else self.at.texts

    def _size(self, axis: Role, is_token: bool) -> int:
        if axis.tokens:
            return self.at.tokens
        return axis.factor * (self.at.texts if axis.texts and not is_token else 1)

    def _rule(self, node: Node) -> Callable[[Node], None]:
        op = node.op
        if op in MAPS:
            found = self._windowed_scores(node)
            return self._map if found is None else partial(self._windowed, *found)
        if op in having(Trait.REDUCTION) and not self.windows.keys() & node.used:
            return self._reduction
        if op != "Softmax" and self.windows.keys() & node.used:
            raise Unsupported("it reads the scores of a masked attention, and is no softmax")
        if self.numbers.keys() & node.used and op != "MatMulInteger":
            raise Unsupported("it reads the scale that a text has by its own range, and is no map or product of bytes")
        rule = {
            "CumSum": self._running,
            "DequantizeLinear": self._scaled,
            "DynamicQuantizeLinear": self._dynamic,
            "MatMul": self._product,
            "MatMulInteger": self._product,
            "QLinearMatMul": self._product,
            "QuantizeLinear": self._scaled,
            "Gemm": self._linear,
            "Softmax": self._softmax,
            "LogSoftmax": self._along,
            "LayerNormalization": self._trailing,
            "RMSNormalization": self._trailing,
            "LpNormalization": self._along,
            "Transpose": self._copy,
            "Reshape": self._reshape,
            "Squeeze": self._reshape,
            "Unsqueeze": self._reshape,
            "Flatten": self._reshape,
            "Expand": self._expand,
            "Gather": self._gather,
            "Slice": self._slice,
            "Split": self._along,
            "Concat": self._along,
        }.get(op)
        if rule is None:
            raise Unsupported("whether it keeps the tokens of different texts apart is not known")
        return rule

    # ---- operands

    def operand(self, id: int | None, reader: Node) -> int | None:
        """The packed value for one that a node reads; constants, and numbers of texts, as that node needs them."""
        if id in self.numbers:
            return self._numbers(id, reader)
        if id is None or id in self.made:
            return None if id is None else self.made[id]
        if id not in self.seen.graph.constants:
            raise Unsupported("it reads what is not known")
        return self._constant(id, reader)

    def _constant(self, id: int, reader: Node) -> int:
        array = self.seen.graph.constants[id]
        if id not in self.seen.roles:
            return self.writer.constant(array)
        for at, axis in enumerate(self.seen.roles[id]):
            if axis.texts and not axis.tokens and not _alike(self.seen.several[id], at):
                raise Unsupported("a constant differs from text to text of a batch")
        shorter, axes = self.seen.shorter[id], self.seen.token_axes(id)
        for at in axes:
            if _alike(array, at) and _alike(shorter, at):
                array, shorter = array.take([0], at), shorter.take([0], at)
        left = [at for at in axes if array.shape[at] > 1]
        if not left and np.array_equal(array, shorter):
            return self.writer.constant(array)
        if not left:
            return self._of_lengths(array, shorter, reader)
        if len(left) > 1:
            return self._of_distances(array, shorter, left)
        if not np.array_equal(array.take(range(shorter.shape[left[0]]), left[0]), shorter):
            raise Unsupported("a constant depends on the length of a text and on the position in it")
        return self.writer.node("Gather", self.writer.constant(array), self.at.position, axis=left[0])

    def _of_distances(self, array: np.ndarray, shorter: np.ndarray, axes: list[int]) -> int:
        """A constant [.., queries, keys] of their distance, which is the same in the packed graph."""
        length, rank = self.seen.length, array.ndim
        fits = axes == [rank - 2, rank - 1] and np.array_equal(array[..., 1:, 1:], array[..., :-1, :-1])
        if not (fits and np.array_equal(array[..., : length - 1, : length - 1], shorter)):
            raise Unsupported("a constant says something of each two positions that their distance does not")
        diagonals = np.concatenate([array[..., :0:-1, 0], array[..., 0, :]], -1)
        beyond = [(0, 0)] * (rank - 2) + [(self.at.tokens - length,) * 2]
        return self.writer.node("Toeplitz", self.writer.constant(np.pad(diagonals, beyond)))

    def _of_lengths(self, array: np.ndarray, shorter: np.ndarray, reader: Node) -> int:
        """A constant that is a multiple of the text's length, or of its inverse, where `reader` reads it."""
        length = self.seen.length
        wide, less = array.astype(np.float64), shorter.astype(np.float64)
        lengths = self.writer.node("Cast", self.at.lengths, to=CODES[DType.of(array.dtype)], saturate=1)
        if np.allclose(wide * (length - 1), less * length, rtol=1e-6, atol=0):
            unit, op = wide / length, "Mul"
        elif np.allclose(wide * length, less * (length - 1), rtol=1e-6, atol=0):
            unit, op = wide * length, "Div"
        else:
            raise Unsupported("a constant depends on the length of the text")
        result = reader.outputs[0]
        axis, rank = self.seen.text_axis(result), len(self.seen.roles[result])
        if self.seen.level(result) != "texts" or axis is None or array.ndim > rank:
            raise Unsupported("a constant depends on the length of the text, and is read for each token")
        shape = [self.at.texts if at == axis else 1 for at in range(rank)]
        return self.writer.node(op, self.writer.constant(unit.astype(array.dtype)), self.writer.reshape(lengths, shape))

    def _numbers(self, id: int, reader: Node) -> int:
        """Numbers of texts along the axis of tokens, or of texts, of what `reader` makes."""
        level, result = self.numbers[id], reader.outputs[0]
        dims, own = self.seen.graph.type(id).dims, self.seen.level(result)
        axes = self.seen.token_axes(result) if own == "tokens" else self._text_axes(result) if own else [-1]
        before, after = axes[0] if own else 0, len(self.seen.roles[result]) - 1 - axes[0] - len(dims)
        if (own or level) != level or len(axes) != 1 or after < 0:
            raise Unsupported("it reads the scale that another value has by its own range")
        return self.writer.reshape(self.made[id], ((1,) * before + (self._rows(level),) + (1,) * after + dims))

    # ---- nodes that keep tokens as they are

    def _copy(self, node: Node, **attrs: Any) -> None:
        inputs = [self.operand(id, node) for id in node.inputs]
        found = self.writer.nodes(node.op, inputs, {**node.attrs, **attrs}, len(node.outputs))
        self.made.update(zip(node.outputs, found, strict=True))

    def _running(self, node: Node) -> None:
        """A sum of the tokens so far, or from here on: that of all texts, less what belongs to others."""
        id = node.used[0]
        axis = axis_of(node, len(self.seen.roles[id]))
        if not self.seen.roles[id][axis].tokens:
            self._along(node)
            return
        x = self.operand(id, node)
        assert x is not None
        if self.writer.graph.type(x).dtype.is_float:
            raise Unsupported("it adds up the tokens so far, which is exact for integers alone")
        to_here = self.writer.node("CumSum", x, None, **{**node.attrs, "exclusive": 0, "reverse": 0})
        before = self.writer.node("Sub", to_here, x)
        own = before if node.attrs.get("exclusive") else to_here
        if node.attrs.get("reverse"):
            last = self.writer.node("Sub", self.at.past, self.writer.number(1))
            whole, left = self.writer.node("Gather", to_here, last, axis=axis), to_here if own is before else before
            self.made[node.outputs[0]] = self.writer.node("Sub", whole, left)
        else:
            others = self.writer.node("Gather", before, self.at.first, axis=axis)
            self.made[node.outputs[0]] = self.writer.node("Sub", own, others)

    def _windowed_scores(self, node: Node) -> tuple[int, Window] | None:
        """The scores of which a node hides those outside a window, or keeps them hidden; None where it hides none."""
        hidden = self.windows.keys() & node.used
        if len(node.used) == 2 and node.op in ("Add", "Max"):
            one, two = node.used
            for scores, mask in ((one, two), (two, one)):
                if node.op == "Max" and scores in hidden and self._at_most(mask, HIDDEN):
                    return scores, self.windows[scores]
                if node.op == "Add" and (found := self._window(mask, np.logical_not, _is_low)):
                    return scores, found
        if node.op == "Where":
            given, then, otherwise = node.used
            for scores, low, kept, left in (
                (then, otherwise, np.asarray, np.logical_not),
                (otherwise, then, np.logical_not, np.asarray),
            ):
                if self._at_most(low, HIDDEN) and (found := self._window(given, kept, left)):
                    return scores, found
        if len(hidden) > 1 or (hidden and node.op not in ("Add", "Cast", "Identity")):
            raise Unsupported("it reads the scores of a masked attention, and is no softmax")
        return None

    def _at_most(self, id: int, number: float) -> bool:
        array = self.seen.graph.constants.get(id)
        return array is not None and bool((array <= number).all())

    def _window(self, id: int, kept: Test, hidden: Test) -> Window | None:
        """The window that a constant [.., queries, keys] keeps, and hides all keys outside of; None for any other."""
        array = self.seen.graph.constants.get(id)
        if array is None or array.ndim < 2 or self.seen.token_axes(id) != [array.ndim - 2, array.ndim - 1]:
            return None
        found, shorter = (_band(one, kept, hidden) for one in (array, self.seen.shorter[id]))
        most = self.seen.length - 2
        return found if found and shorter == (max(found[0], -most), min(found[1], most)) else None

    def _windowed(self, scores: int, window: Window, node: Node) -> None:
        """The scores as they are: a softmax that reads them has the keys of the window alone."""
        found = self.operand(scores, node)
        assert found is not None
        self.made[node.outputs[0]] = found
        low, high = self.windows.get(scores, window)
        self.windows[node.outputs[0]] = max(low, window[0]), min(high, window[1])

    def _map(self, node: Node) -> None:
        self._copy(node)
        if (numbers := self.numbers.keys() & node.used) and not self.seen.level(node.outputs[0]):
            self.numbers[node.outputs[0]] = self.numbers[min(numbers)]
        hidden = self.windows.keys() & node.used
        self.windows.update((id, self.windows[scores]) for scores in hidden for id in node.outputs)
        chosen = node.inputs[1:] if node.op == "Where" else node.inputs
        keeps = node.op in KEEPING or (node.op == "Where" and all(map(self._is_apart, chosen)))
        if keeps and self.apart.intersection(chosen):
            self.apart.update(node.outputs)
        joined = [id for id in node.used if self.seen.level(id) == "tokens"]
        if node.op == "Add" and len(joined) > 1 and not hidden:
            self._end(node)  # a residual sum, which is read no further than its operands

    def _is_apart(self, id: int | None) -> bool:
        constants = self.seen.graph.constants
        return id in self.apart or (id is not None and id in constants and not constants[id].any())

    def _plain(self, id: int, axes: range | tuple[int, ...], what: str) -> None:
        if any(axis.tokens or axis.texts for axis in (self.seen.roles[id][at] for at in axes)):
            raise Unsupported(what)

    def _along(self, node: Node) -> None:
        """What combines or joins elements along one axis, that of neither tokens nor texts."""
        id = next(one for one in node.used if self.seen.level(one))
        axis = axis_of(node, len(self.seen.roles[id]), default=-1)
        self._plain(id, (axis,), "it works along the axis of tokens")
        self._copy(node)

    def _trailing(self, node: Node) -> None:
        id = node.used[0]
        rank = len(self.seen.roles[id])
        axis = axis_of(node, rank, default=-1)
        self._plain(id, range(axis, rank), "it normalises over tokens")
        self._copy(node)
        self._end(node)

    def _reshape(self, node: Node) -> None:
        id, result = node.used[0], node.outputs[0]
        if self._places(id) != self._places(result):
            raise Unsupported("it joins the axis of tokens with another one")
        whole = self.operand(id, node)
        assert whole is not None
        self.made[result] = self.writer.reshape(whole, self.shape(result))

    def _places(self, id: int) -> list[int]:
        """How many elements of the model of one text lie before each axis of tokens, or of texts where none is."""
        axes = self.seen.roles[id]
        return [before(axes, at) for at in self.seen.token_axes(id) or [*self._text_axes(id)]]

    def _text_axes(self, id: int) -> list[int]:
        return [at for at, axis in enumerate(self.seen.roles[id]) if axis.texts]

    def _expand(self, node: Node) -> None:
        self._copy(node, shape=self.shape(node.outputs[0]))

    def _linear(self, node: Node) -> None:
        if node.attrs.get("transA", 0) or self.seen.level(node.inputs[1] or 0):
            raise Unsupported("its rows are not tokens")
        self._plain(node.used[0], (1,), "it sums over tokens")
        self._copy(node)
        self._end(node)

    def _scaled(self, node: Node) -> None:
        """Quantised, or dequantised, by scales that are the same for all tokens."""
        x, scale = node.used[:2]
        if any(self.seen.level(id) for id in node.used[1:]):
            raise Unsupported("its scale differs between tokens")
        if self.seen.graph.type(scale).elements > 1:
            self._plain(x, (axis_of(node, len(self.seen.roles[x]), default=1),), "it has a scale for each token")
        self._copy(node)
        zero = node.inputs[2] if len(node.inputs) > 2 else None
        if node.op == "QuantizeLinear" and x in self.apart:
            self.codes[node.outputs[0]] = zero
        elif self._is_apart_from(x, zero):
            self.apart.add(node.outputs[0])

    def _is_apart_from(self, x: int, zero: int | None) -> bool:
        """Whether x, less its zero point, is zero for keys of other texts."""
        if x not in self.codes:
            return x in self.apart and zero is None
        one, other = (0 if id is None else self.seen.graph.constants.get(id) for id in (self.codes[x], zero))
        return one is not None and other is not None and bool(np.all(one == other))

    def _dynamic(self, node: Node) -> None:
        """Codes by the range of each text, as if it were alone."""
        id, axes = node.used[0], self.seen.token_axes(node.used[0])
        if len(axes) > 1 or (not axes and self.seen.text_axis(id) != 0):
            raise Unsupported("it takes the range of what has not a row for each token")
        x = self.operand(id, node)
        x = self._ended(x, axes[0]) if axes else x
        assert x is not None
        found = quantised(self.writer, self.at, x, axes[0] if axes else None)
        self.made.update(zip(node.outputs, found, strict=False))
        self.numbers.update(dict.fromkeys(node.outputs[1:], self.seen.level(id)))

    def _product(self, node: Node) -> None:
        places = FACTORS[node.op]
        one, two = (node.used[place] for place in places)
        roles = self.seen.roles
        others = [id for at, id in enumerate(node.inputs) if id is not None and at not in places]
        if any(self.seen.level(id) for id in others) or self.numbers.keys() & node.inputs[3:]:
            raise Unsupported("its scales or zero points differ between tokens")
        found = [self.operand(id, node) for id in node.inputs]
        row, column = roles[one][-1], roles[two][-2 if len(roles[two]) > 1 else -1]
        if not (row.tokens or row.texts or column.tokens or column.texts):
            axes = [self.seen.token_axes(id) for id in (one, two)]
            for place, own in zip(places, axes, strict=True):
                found[place] = self._ended(found[place], own[0]) if all(axes) else found[place]
            self.made[node.outputs[0]] = self.writer.node(node.op, *found)
            self._end(node)
            return
        zero = node.inputs[2] if len(node.inputs) > 2 else None
        if not (self._is_apart_from(one, zero) and row.tokens and column.tokens):
            raise Unsupported("it sums over tokens, and not as attention does")
        found[places[1]] = self._ended(found[places[1]], len(roles[two]) - 2)
        whole = self.writer.node(node.op, *found)
        self.made[node.outputs[0]] = self._ended(whole, self.seen.token_axes(node.outputs[0])[0])

    def _end(self, node: Node) -> None:
        """Ends the rows of a product with the tokens, so that no more of them are computed."""
        result = node.outputs[0]
        if len(axes := self.seen.token_axes(result)) == 1:
            self.made[result] = self._ended(self.made[result], axes[0])

    def _ended(self, id: int | None, axis: int) -> int:
        """A value whose axis counts tokens, zero behind the last one: what makes it need not be computed there."""
        return self.writer.node("PadBeyond", id, self.at.size, axis=axis, value=0)

    # ---- attention

    def _softmax(self, node: Node) -> None:
        id = node.used[0]
        roles = self.seen.roles[id]
        axis = axis_of(node, len(roles), default=-1)
        if not roles[axis].tokens:
            self._along(node)
            return
        queries = [at for at in self.seen.token_axes(id) if at != axis]
        if len(queries) != 1:
            raise Unsupported("it is a softmax over tokens, and not one of each token's scores")
        shape = [self.at.tokens if at == queries[0] else 1 for at in range(len(roles))]
        first, past = self.at.first, self.at.past
        if id in self.windows:
            if queries != [axis - 1]:
                raise Unsupported("its mask is not that of queries by keys")
            low, high = self.windows[id]
            places = np.arange(self.at.tokens, dtype=np.int64)
            if low > 1 - self.seen.length:
                first = self.writer.node("Max", first, self.writer.constant(places + low))
            if high < self.seen.length - 1:
                past = self.writer.node("Min", past, self.writer.constant(places + high + 1))
        first, past = (self.writer.reshape(end, shape) for end in (first, past))
        scores = self.operand(id, node)
        scores = self.writer.node("PadOutside", scores, first, past, axis=axis, value=OUTSIDE)
        self.made[node.outputs[0]] = self.writer.node("Softmax", scores, **node.attrs)
        self.apart.add(node.outputs[0])

    # ---- pooling

    def _reduction(self, node: Node) -> None:
        id = node.used[0]
        roles = self.seen.roles[id]
        over = axes_of(node, len(roles)) or ()
        over = over or (() if node.attrs.get("noop_with_empty_axes") else tuple(range(len(roles))))
        tokens = [at for at in over if roles[at].tokens]
        if any(roles[at].texts for at in over if at not in tokens) or any(roles[at].texts for at in tokens):
            raise Unsupported("it mixes the texts of a batch")
        if not tokens:
            self._copy(node)
            return
        text = self.seen.text_axis(id)
        if node.op not in NEUTRAL or text is None or len(self.seen.token_axes(id)) != 1:
            raise Unsupported("it combines the tokens of a text in a way that is not known")
        shape = [self.at.texts if at == text else 1 for at in range(len(roles))]
        first, past, lengths = (
            self.writer.reshape(end, shape) for end in (self.at.starts, self.at.ends, self.at.lengths)
        )
        x = self._ended(self.operand(id, node), tokens[0])
        x = self.writer.node("PadOutside", x, first, past, axis=tokens[0], value=NEUTRAL[node.op])
        attrs = {**node.attrs, "axes": over, "keepdims": 1}
        op = "ReduceSum" if node.op == "ReduceMean" else node.op
        found = self.writer.nodes(op, (x, None), attrs)[0]
        if node.op == "ReduceMean":
            dtype = self.writer.graph.type(found).dtype
            others = math.prod(roles[at].factor for at in over if at not in tokens)
            count = self.writer.node("Mul", lengths, self.writer.number(others))
            found = self.writer.node("Div", found, self.writer.node("Cast", count, to=CODES[dtype], saturate=1))
        self.made[node.outputs[0]] = self.writer.reshape(found, self.shape(node.outputs[0]))

    def _gather(self, node: Node) -> None:
        data, indices = node.used
        roles = self.seen.roles[data]
        axis = axis_of(node, len(roles))
        if self.seen.level(data) and roles[axis].tokens:
            at = self._lone(indices)
            self._picked(node, data, axis, at)
            return
        self._plain(data, (axis,), "it picks some of the texts")
        if self.seen.level(data) and self.seen.level(indices):
            raise Unsupported("it picks elements for each token out of what differs between tokens")
        self._copy(node)

    def _lone(self, indices: int) -> int:
        """The one position that is read: 0, or -1 for the last one."""
        graph, length = self.seen.graph, self.seen.length
        if indices not in graph.constants or graph.constants[indices].size != 1:
            raise Unsupported("it picks tokens by data")
        here, shorter = (int(one.reshape(-1)[0]) for one in (graph.constants[indices], self.seen.shorter[indices]))
        if here in (0, -1) and here == shorter:
            return here
        if (here, shorter) == (length - 1, length - 2):
            return -1
        raise Unsupported("it picks a token that is neither the first nor the last one")

    def _slice(self, node: Node) -> None:
        id, result = node.used[0], node.outputs[0]
        roles = self.seen.roles[id]
        starts = ints(node, "starts") or ()
        over = axes_of(node, len(roles)) or tuple(range(len(starts)))
        steps = ints(node, "steps") or (1,) * len(starts)
        if any(roles[at].texts and not roles[at].tokens for at in over):
            raise Unsupported("it picks some of the texts")
        tokens = [place for place, at in enumerate(over) if roles[at].tokens]
        if any(not self.seen.roles[result][over[place]].tokens for place in tokens):
            place = tokens[0]
            dims = self.seen.graph.type(result).dims
            if dims[over[place]] != 1 or len(over) > 1 or starts[place] not in (0, -1):
                raise Unsupported("it picks tokens other than the first or the last one")
            self._picked(node, id, over[place], starts[place])
            return
        if any(self.seen.roles[result][over[place]] != roles[over[place]] or steps[place] != 1 for place in tokens):
            raise Unsupported("it leaves tokens out, or gives them another order")
        lists = {"starts": starts, "ends": ints(node, "ends") or (), "axes": over, "steps": steps}
        kept = [place for place in range(len(over)) if place not in tokens]
        self._copy(node, **{name: tuple(each[place] for place in kept) for name, each in lists.items()})

    def _picked(self, node: Node, data: int, axis: int, place: int) -> None:
        """The first token of each text, or the last one: a row for each text, along the axis of texts."""
        text = self.seen.text_axis(data)
        if text is None:
            raise Unsupported("it picks a token of one of the texts")
        whole = self._ended(self.operand(data, node), axis)
        where = self.at.starts if place == 0 else self.writer.node("Sub", self.at.ends, self.writer.number(1))
        where = self.writer.node("Clip", where, self.writer.number(0), self.writer.number(self.at.tokens - 1))
        found = self.writer.node("Gather", whole, where, axis=axis)
        perm = [*range(len(self.seen.roles[data]))]
        perm[text], perm[axis] = axis, text
        found = self.writer.node("Transpose", found, perm=tuple(perm))
        self.made[node.outputs[0]] = self.writer.reshape(found, self.shape(node.outputs[0]))


def _alike(array: np.ndarray, axis: int) -> bool:
    """Whether a constant is the same all along an axis."""
    return bool(np.array_equal(array, np.broadcast_to(array.take([0], axis), array.shape), equal_nan=False))


def _is_low(array: np.ndarray) -> np.ndarray:
    """Where it hides a score that it is added to."""
    return np.asarray(array <= HIDDEN)


def _band(array: np.ndarray, kept: Test, hidden: Test) -> Window | None:
    """Of masks [.., queries, keys] of one text: `kept` at the distances of a window, 0 among them, else `hidden`."""
    pairs = array.reshape(-1, *array.shape[-2:])
    seen = kept(pairs)
    low, high = 1 - int(np.count_nonzero(seen[0, :, 0])), int(np.count_nonzero(seen[0, 0])) - 1
    inside = np.tri(len(seen[0]), k=high, dtype=bool) & ~np.tri(len(seen[0]), k=low - 1, dtype=bool)
    return (low, high) if low <= 0 <= high and bool(np.where(inside, seen, hidden(pairs)).all()) else None
