"""Recurrent layers of a single step, taken apart: what a decoder unrolled by its exporter is made of.

A layer over many steps stays one node, since its steps depend on each other. A layer of one step is two matrix products
and a few maps, which then take part in everything that is done to products and maps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Node
from compiler.ops.cell_functions import activations
from compiler.ops.operator import Unsupported
from compiler.ops.recurrent import BIAS, CELL, DEFAULTS, GATES, HIDDEN, LENGTHS, PEEPHOLES
from compiler.rewrite.rounding import wide
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.view import Draft, No, Rewrite, View

FUNCTIONS = frozenset(("Sigmoid", "Tanh", "Relu"))
"""Activations of a cell that are operators of the same name, without parameters."""
GATHERED_BYTES = 128 << 20
"""Of the largest table that a product is taken into."""
GATHERED_PRODUCTS = 1 << 35
"""Multiplications of such a product: seconds, done once for all steps that read the table."""


@dataclass
class _Cell:
    """One step of one direction, being written: values have the dimensions [1, batch, gates * hidden] of a state."""

    view: View
    node: Node
    draft: Draft
    functions: tuple[str, ...]
    hidden: int

    def input(self, position: int) -> int | None:
        return self.node.inputs[position] if position < len(self.node.inputs) else None

    def state(self, position: int) -> int | None:
        """The initial state [1, batch, hidden], whatever the layout; None for zeros."""
        value = self.input(position)
        array = self.view.constant(value)
        return None if value is None or (array is not None and not array.any()) else self._leading(value)

    def x(self) -> int:
        """The only element of the sequence, [1, batch, features]."""
        value = self.input(0)
        assert value is not None
        return self._leading(value)

    def _leading(self, value: int) -> int:
        """[batch, 1, n] of layout 1 as [1, batch, n]."""
        if not self.node.attrs.get("layout", 0):
            return value
        batch, one, width = self.view.dims(value)
        return self.draft.node("Reshape", (value, None), {"shape": (one, batch, width), "allowzero": 0})

    def product(self, value: int, position: int, rows: slice) -> int:
        """The value times the transpose of W's or R's rows of some gates."""
        source = self.input(position)
        assert source is not None
        key = ("transposed", source, rows.start, rows.stop)
        weights = self.draft.derived(key, lambda: self.view.constants[source][0, rows].T)
        return self.draft.node("MatMul", (value, weights))

    def plus_bias(self, value: int, *rows: slice) -> int:
        """The value and the sum of parts of B = [Wb, Rb], if there is one."""
        source = self.input(BIAS)
        if source is None:
            return value
        key = ("sum", source, *((part.start, part.stop) for part in rows))
        bias = self.draft.derived(
            key, lambda: self._narrowed(np.sum([self._wide(source, part) for part in rows], axis=0))
        )
        return self("Add", value, bias)

    def _wide(self, source: int, part: slice) -> np.ndarray:
        return wide(self.view.constants[source][0, part])

    def _narrowed(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(array, self.view.type(self.node.outputs[0]).dtype.numpy)

    def hidden_sums(self, state: int | None, rows: slice) -> int:
        """state R^T + Rb, for some of the rows of R; without a state, which is zero, a constant."""
        gates, source = GATES[self.node.op] * self.hidden, self.input(BIAS)
        part = slice(gates + rows.start, gates + rows.stop)
        if state is not None:
            return self.plus_bias(self.product(state, 2, rows), part)
        bias = np.zeros(rows.stop - rows.start) if source is None else self._wide(source, part)
        return self.draft.constant(self._narrowed(bias.reshape(1, 1, -1)))

    def __call__(self, op: str, *inputs: int) -> int:
        return self.draft.node(op, inputs)

    def gate(self, sums: int, number: int) -> int:
        """The sums of one gate, of those of all."""
        begin, end = number * self.hidden, (number + 1) * self.hidden
        where = {"starts": (begin,), "ends": (end,), "axes": (2,), "steps": (1,)}
        return self.draft.node("Slice", (sums, None, None, None, None), where)

    def activated(self, function: int, value: int) -> int:
        return self(self.functions[function], value)

    def peeped(self, gate: int, number: int, cell: int | None) -> int:
        """A gate's sums and what the gate sees of the cell through its peephole."""
        array = self.view.constant(self.input(PEEPHOLES))
        if array is None or cell is None:
            return gate
        weights = array[0, number * self.hidden : (number + 1) * self.hidden]
        return self("Add", gate, self("Mul", cell, self.draft.constant(weights)))

    def done(self, *states: int) -> Rewrite:
        """y [1, 1, batch, hidden] and the last states, as many as the node has outputs."""
        batch = self.view.dims(self.node.outputs[0])
        y = self.draft.node("Reshape", (states[0], None), {"shape": batch, "allowzero": 0})
        last = [
            self.draft.node("Reshape", (state, None), {"shape": self.view.dims(out), "allowzero": 0})
            for state, out in zip(states, self.node.outputs[1:], strict=False)
        ]
        return self.draft.outputs(y, *last, why=f"one step of {self.node.op} is products and maps")


def _cell(view: View, node: Node) -> _Cell | No | None:
    """What is written for a layer of one step; None where there are more."""
    x, r = view.dims(node.used[0]), view.dims(node.used[2])
    if x[1 if node.attrs.get("layout", 0) else 0] != 1:
        return None

    def given(position: int) -> bool:
        return position < len(node.inputs) and node.inputs[position] is not None

    if r[0] != 1:
        return No("it runs in both directions")
    if given(LENGTHS):
        return No("its sequences have lengths of their own")
    if node.attrs.get("clip"):
        return No("its gates are clipped")
    if any(given(at) and node.inputs[at] not in view.constants for at in (1, 2, BIAS, PEEPHOLES)):
        return No("its weights are not constant")
    if not view.type(node.used[0]).dtype.is_float:
        return None
    try:
        (functions,) = activations(node, DEFAULTS[node.op], 1)
    except Unsupported as unsupported:
        return No(unsupported.reason)
    names = tuple(function.function.name for function in functions)
    if not FUNCTIONS.issuperset(names):
        return No(f"activations {', '.join(names)} are not all operators")
    return _Cell(view, node, view.draft(node), names, r[2])


def rnn_of_one_step(view: View, node: Node) -> Rewrite | No | None:
    """rnn(x, W, R, b, h) = f(x W^T + h R^T + b), for a sequence of one."""
    cell = _cell(view, node)
    if not isinstance(cell, _Cell):
        return cell
    every, size = slice(0, cell.hidden), cell.hidden
    sums, h = cell.product(cell.x(), 1, every), cell.state(HIDDEN)
    if h is not None:
        sums = cell("Add", sums, cell.product(h, 2, every))
    return cell.done(cell.activated(0, cell.plus_bias(sums, every, slice(size, 2 * size))))


def lstm_of_one_step(view: View, node: Node) -> Rewrite | No | None:
    """lstm(x, W, R, b, h, c) = (o g(c'), c')
    where c' = f c + i g(s_c), (i, o, f) = sigmoid(s), s = x W^T + h R^T + b, for a sequence of one.
    """
    cell = _cell(view, node)
    if not isinstance(cell, _Cell):
        return cell
    rows = GATES["LSTM"] * cell.hidden
    every = slice(0, rows)
    h, before = cell.state(HIDDEN), cell.state(CELL)
    sums = cell.product(cell.x(), 1, every)
    if h is not None:
        sums = cell("Add", sums, cell.product(h, 2, every))
    sums = cell.plus_bias(sums, every, slice(rows, 2 * rows))
    entry = cell.activated(0, cell.peeped(cell.gate(sums, 0), 0, before))
    new = cell("Mul", entry, cell.activated(1, cell.gate(sums, 3)))
    if before is not None:
        if node.attrs.get("input_forget", 0):
            new = cell("Add", cell("Sub", before, cell("Mul", entry, before)), new)
        else:
            forget = cell.activated(0, cell.peeped(cell.gate(sums, 2), 2, before))
            new = cell("Add", cell("Mul", forget, before), new)
    out = cell.activated(0, cell.peeped(cell.gate(sums, 1), 1, new))
    return cell.done(cell("Mul", out, cell.activated(2, new)), new)


def gru_of_one_step(view: View, node: Node) -> Rewrite | No | None:
    """gru(x, W, R, b, h) = n + z (h - n) where n = tanh(x W_n + r (h R_n)), (z, r) = sigmoid(x W + h R + b),
    for a sequence of one.
    """
    cell = _cell(view, node)
    if not isinstance(cell, _Cell):
        return cell
    size, late = cell.hidden, bool(node.attrs.get("linear_before_reset", 0))
    every, candidate = slice(0, 3 * size), slice(2 * size, 3 * size)
    h = cell.state(HIDDEN)
    from_x = cell.plus_bias(cell.product(cell.x(), 1, every), every)
    from_h = cell.hidden_sums(h, every if late else slice(0, 2 * size))
    update, reset = (
        cell.activated(0, cell("Add", cell.gate(from_x, number), cell.gate(from_h, number))) for number in (0, 1)
    )
    if late:
        hidden = cell("Mul", reset, cell.gate(from_h, 2))
    else:
        hidden = cell.hidden_sums(None if h is None else cell("Mul", reset, h), candidate)
    new = cell.activated(1, cell("Add", cell.gate(from_x, 2), hidden))
    if h is None:
        return cell.done(cell("Sub", new, cell("Mul", update, new)))
    return cell.done(cell("Add", new, cell("Mul", update, cell("Sub", h, new))))


def product_of_gather(view: View, node: Node) -> Rewrite | No | None:
    """gather(t, i) W = gather(t W, i), over the rows of t."""
    gather, weights = view.producer(node.used[0], "Gather"), view.constant(node.used[1])
    if gather is None or weights is None or weights.ndim != 2:
        return None
    table, source = view.constant(gather.used[0]), gather.used[0]
    if table is None or table.ndim != 2 or gather.attrs.get("axis", 0) != 0:
        return None
    dtype = view.type(node.outputs[0]).dtype
    if not dtype.is_float:
        return None
    if table.shape[0] * weights.shape[1] * dtype.bytes > max(GATHERED_BYTES, table.nbytes):
        return No("the table of products would be too large")
    if table.size * weights.shape[1] > GATHERED_PRODUCTS:
        return No("the table of products is too much work to be made while compiling")
    if (refusal := view.enclosed(node, [gather])) is not None:
        return refusal
    draft = view.draft(node)
    key = ("table of products", source, node.used[1])
    products = draft.derived(key, lambda: np.matmul(wide(table), wide(weights)).astype(dtype.numpy))
    draft.node("Gather", (products, gather.used[1]), {"axis": 0}, gather.source)
    return draft.done("rows of a constant are multiplied ahead of time")


RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("RNN",), rnn_of_one_step),
    Rule(REASSOCIATES, ("LSTM",), lstm_of_one_step),
    Rule(REASSOCIATES, ("GRU",), gru_of_one_step),
    Rule(REASSOCIATES, ("MatMul",), product_of_gather),
)
