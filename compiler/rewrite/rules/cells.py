"""LSTM and GRU cells unrolled step by step, as PyTorch exports a loop over cells: one layer over all steps.

A cell is two products of shared weights, a Split, and maps. Cells follow each other where each reads the state of the
one before, with the same weights, and the next element of one sequence. A first cell whose state is zero has a constant
in the place of its product. What is read of the states in between is a slice of the layer's result (tiny_lstm_cells).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from compiler.ir.graph import Attr, Node
from compiler.rewrite.pattern import either, match, number, op, value
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.rules.shapes import reshape_to
from compiler.rewrite.view import Draft, No, Rewrite, View

Dims = tuple[int, ...]


@dataclass(frozen=True)
class _Linear:
    """x W^T + b for constant W [rows, features] and b; the values that hold them, b 0 where there is none."""

    x: int
    weights: int
    bias: int | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class _Cell:
    """One step: where its gates stand in the sums of the input and of the state, both in ONNX's order of gates.

    x, h     the products of the input and of the state; h is None for a state of zeros
    states   before the step, h and, of an LSTM, c; `new` are the nodes that make those after it
    order    which rows of the weights each gate has, in units of the width of the state
    nodes    what else computes the step
    """

    x: _Linear
    h: _Linear | None
    states: tuple[int, ...]
    new: tuple[Node, ...]
    order: Dims
    nodes: tuple[Node, ...]


def _linear(view: View, value: int) -> _Linear | None:
    node = view.producer(value, "Gemm")
    if node is None or node.inputs[1] not in view.constants or len(node.used) < 2:
        return None
    plain = {"alpha": 1.0, "transA": 0, "transB": 1}
    if any(node.attrs.get(name) != wanted for name, wanted in plain.items()):
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    rows = view.dims(node.used[1])[0]
    known = view.constant(bias)
    if bias is not None and (known is None or known.shape != (rows,) or node.attrs.get("beta") != 1.0):
        return None
    return _Linear(node.used[0], node.used[1], bias, (node,))


def _part(view: View, value: int, width: int) -> tuple[int, int, Node] | None:
    """(sums, number, node) if a value is the columns number * width : (number + 1) * width of sums [batch, columns]."""
    node = view.producer(value, "Split", "Slice")
    if node is None or len(view.dims(value)) != 2 or view.dims(value)[1] != width:
        return None
    if node.op == "Split":
        sizes = {view.dims(part)[1] for part in node.outputs}
        right = node.attrs.get("axis", 0) in (1, -1) and sizes == {width}
        return (node.used[0], node.outputs.index(value), node) if right else None
    if _numbers(node, "axes") not in ((1,), (-1,)) or _numbers(node, "steps") not in ((1,), ()):
        return None
    (start,) = _numbers(node, "starts")
    return (node.used[0], start // width, node) if start % width == 0 else None


CELL_STATE = op(
    "Add",
    op("Mul", op("Sigmoid", value("forget")), value("before")),
    op("Mul", op("Sigmoid", value("entry")), op("Tanh", value("new"))),
    name="cell",
)
LSTM = op("Mul", op("Sigmoid", value("out")), op("Tanh", CELL_STATE))


def _lstm_cell(view: View, node: Node) -> _Cell | None:
    """h' = sigmoid(o) tanh(c'), c' = sigmoid(f) c + sigmoid(i) tanh(g) at a node that makes h'."""
    found = match(view, node, LSTM)
    if found is None or len(view.dims(node.outputs[0])) != 2:
        return None
    width = view.dims(node.outputs[0])[1]
    parts = [_part(view, found[name], width) for name in ("entry", "out", "forget", "new")]
    known = [part for part in parts if part is not None]
    if len(known) != 4 or len({sums for sums, _, _ in known}) != 1:
        return None
    joined = _sum_of_products(view, known[0][0])
    if joined is None:
        return None
    x, h, nodes = joined
    order = tuple(number for _, number, _ in known)
    if view.dims(x.weights)[0] != 4 * width or sorted(order) != [0, 1, 2, 3]:
        return None
    made = found.named["cell"]
    inner = (*(one for one in found.nodes if one is not made), *(part for _, _, part in known), *nodes)
    state = h.x if isinstance(h, _Linear) else h
    return _Cell(x, h if isinstance(h, _Linear) else None, (state, found["before"]), (node, made), order, inner)


def _sum_of_products(view: View, sums: int) -> tuple[_Linear, _Linear | int, tuple[Node, ...]] | None:
    """The product of the input and that of the state, or the constant that stands for the latter."""
    add = view.producer(sums, "Add")
    if add is None:
        return None
    orders = sorted((add.used, add.used[::-1]), key=lambda order: not _is_of_element(view, order[0]))
    for first, second in orders:
        x, h = _linear(view, first), _linear(view, second)
        if x is not None and second in view.constants:
            return x, second, (add, *x.nodes)
        if x is not None and h is not None and view.dims(h.weights)[1] * 4 == view.dims(h.weights)[0]:
            return x, h, (add, *x.nodes, *h.nodes)
    return None


def _is_of_element(view: View, value: int) -> bool:
    """Whether a product reads an element of a sequence: where inputs are as wide as states, it is that of the input."""
    linear = _linear(view, value)
    return linear is not None and _element(view, linear.x) is not None


UPDATE = op("Sigmoid", op("Add", value("xz"), value("hz")))
GRU = either(
    op("Add", op("Mul", op("Sub", value("before"), value("n")), UPDATE), value("n")),
    op("Add", op("Mul", op("Sub", number(1), UPDATE), value("n")), op("Mul", UPDATE, value("before"))),
)
CANDIDATE = op(
    "Tanh",
    op("Add", value("xn"), op("Mul", op("Sigmoid", op("Add", value("xr"), value("hr"))), value("hn"))),
)


def _gru_cell(view: View, node: Node) -> _Cell | None:
    """h' = n + z (h - n), n = tanh(x_n + r h_n) with (z, r) = sigmoid(x + h), at a node that makes h'."""
    outer = match(view, node, GRU)
    middle = None if outer is None else view.producer(outer["n"], "Tanh")
    inner = None if middle is None else match(view, middle, CANDIDATE)
    if outer is None or middle is None or inner is None or len(view.dims(node.outputs[0])) != 2:
        return None
    width, gates = view.dims(node.outputs[0])[1], []
    for one, other in ((outer["xz"], outer["hz"]), (inner["xr"], inner["hr"]), (inner["xn"], inner["hn"])):
        gates.append((_part(view, one, width), _part(view, other, width), one, other))
    top = gates[2][0]
    if top is None:
        return None
    x = _linear(view, top[0])
    nodes = [middle, *outer.nodes, *inner.nodes]
    order, rest, constants = [], [], []
    for pair in gates:
        mine, its, _, second = (
            pair if pair[0] is not None and pair[0][0] == top[0] else (pair[1], pair[0], pair[3], pair[2])
        )
        if mine is None or mine[0] != top[0] or (its is None and second not in view.constants):
            return None
        order.append(mine[1])
        rest.append(its)
        constants.append(second)
        nodes += [mine[2], *([] if its is None else [its[2]])]
    if x is None or sorted(order) != [0, 1, 2] or view.dims(x.weights)[0] != 3 * width:
        return None
    known = [part for part in rest if part is not None]
    states, made = (outer["before"],), (node,)
    if not known:
        return _Cell(x, None, (*states, *constants), made, tuple(order), (*nodes, *x.nodes))
    h = _linear(view, known[0][0])
    alike = len(known) == 3 and len({sums for sums, _, _ in known}) == 1 and [at for _, at, _ in known] == order
    if h is None or not alike or h.x != outer["before"]:
        return None
    return _Cell(x, h, states, made, tuple(order), (*nodes, *x.nodes, *h.nodes))


@dataclass(frozen=True)
class _Element:
    """The element `place` of a sequence along an axis, without that axis."""

    sequence: int
    axis: int
    place: int


def _element(view: View, value: int) -> _Element | None:
    node = view.producer(value, "Gather", "Reshape", "Slice")
    if node is None:
        return None
    dims, whole = view.dims(value), view.dims(node.used[0])
    if node.op == "Reshape":
        return _element(view, node.used[0]) if _long(dims) == _long(whole) else None
    if node.op == "Gather":
        place, axis = view.constant(node.used[1]), node.attrs.get("axis", 0)
        if place is None or place.shape != () or not isinstance(axis, int):
            return None
        return _Element(node.used[0], axis % len(whole), int(place) % whole[axis])
    changed = [axis for axis, (before, after) in enumerate(zip(whole, dims, strict=True)) if before != after]
    if len(changed) != 1 or dims[changed[0]] != 1:
        return None
    starts = zip(_numbers(node, "axes"), _numbers(node, "starts"), strict=True)
    by_axis = {axis % len(whole): start for axis, start in starts}
    extent, start = whole[changed[0]], by_axis[changed[0]]
    return _Element(node.used[0], changed[0], max(start, -extent) % extent)


def _numbers(node: Node, name: str) -> Dims:
    found = node.attrs.get(name, ())
    assert isinstance(found, tuple)
    return tuple(int(str(one)) for one in found)


def _long(dims: Dims) -> Dims:
    return tuple(extent for extent in dims if extent > 1)


def _unrolled(view: View, node: Node, cell_at: Callable[[View, Node], _Cell | None], op: str) -> Rewrite | No | None:
    last = cell_at(view, node)
    if last is None or last.h is None or _goes_on(view, node, last):
        return None
    cells = [last]
    while (before := _before(view, cells[0], cell_at)) is not None:
        cells.insert(0, before)
    if len(cells) < 2:
        return None
    elements = [_element(view, cell.x.x) for cell in cells]
    first = elements[0]
    if first is None or [*elements] != [replace(first, place=first.place + at) for at in range(len(cells))]:
        return No("its inputs are not the elements of one sequence in order")
    makers = [maker for cell in cells for maker in cell.new[:1]]
    ends = last.new[1:]
    if (refusal := _enclosed(view, cells, [*makers, *ends])) is not None:
        return refusal
    return _layer(view, node, op, cells, first)


def _goes_on(view: View, node: Node, cell: _Cell) -> bool:
    """Whether a further cell with the same weights reads the state."""
    assert cell.h is not None
    return any(reader.op == "Gemm" and reader.used[1] == cell.h.weights for reader in view.readers(node.outputs[0]))


def _before(view: View, cell: _Cell, cell_at: Callable[[View, Node], _Cell | None]) -> _Cell | None:
    """The cell whose state this one reads, where it has the same weights."""
    maker = None if cell.h is None else view.producer(cell.states[0])
    found = None if maker is None else cell_at(view, maker)
    if cell.h is None or found is None or tuple(one.outputs[0] for one in found.new) != cell.states[: len(found.new)]:
        return None
    alike = (found.x.weights, found.x.bias, found.order) == (cell.x.weights, cell.x.bias, cell.order)
    if not alike or (found.h is not None and (found.h.weights, found.h.bias) != (cell.h.weights, cell.h.bias)):
        return None
    return found if found.h is not None or _starts_at_zero(view, found, cell.h) else None


def _starts_at_zero(view: View, cell: _Cell, h: _Linear) -> bool:
    """Whether the constants in the place of the state's product are its bias alone."""
    bias = view.constant(h.bias)
    width = view.dims(h.weights)[1]
    if len(cell.new) == 2:
        (sums,) = (view.constants[cell.states[0]],)
        return bool((sums == (0 if bias is None else bias)).all())
    before, *constants = (view.constant(state) for state in cell.states)
    wanted = [0 if bias is None else bias[at * width : (at + 1) * width] for at in cell.order]
    if before is None or before.any():
        return False
    return all(found is not None and bool((found == want).all()) for found, want in zip(constants, wanted, strict=True))


def _enclosed(view: View, cells: Iterable[_Cell], kept: list[Node]) -> No | None:
    """The reason why what computes the steps cannot vanish, apart from the nodes that are defined anew."""
    inner = {one.outputs[0]: one for cell in cells for one in (*cell.new, *cell.nodes)}
    outside = {one.outputs[0] for one in kept}
    for key, one in inner.items():
        for made in one.outputs:
            readers = [reader for reader in view.readers(made) if reader.outputs[0] not in inner]
            if key not in outside and (made in view.outputs or readers):
                return No(f"%{made}, which is inside of a step, is needed elsewhere")
    return None


def _layer(view: View, node: Node, op: str, cells: list[_Cell], first: _Element) -> Rewrite | No:
    last = cells[-1]
    assert last.h is not None
    steps, (batch, width) = len(cells), view.dims(node.outputs[0])
    draft = view.draft(node)
    sequence = _sequence(draft, first, (steps, batch, view.dims(last.x.weights)[1]))
    key = (last.order, width)
    weights = [
        draft.derived(("gates in order", one.weights, *key), partial(_weights, view, one.weights, last.order))
        for one in (last.x, last.h)
    ]
    biases = [_rows(view, one.bias, last.order, view.constants[one.weights]) for one in (last.x, last.h)]
    states: list[int | None] = []
    for at in range(len(last.new)):
        value = cells[0].states[at]
        zero = at == 0 and cells[0].h is None
        states.append(None if zero else reshape_to(draft, value, (1, batch, width)))
    inputs = (sequence, *weights, draft.constant(np.concatenate(biases)[None]), None, *states)
    while inputs[-1] is None:
        inputs = inputs[:-1]
    attrs: dict[str, Attr] = {"hidden_size": width, "direction": "forward", "layout": 0}
    attrs |= {"linear_before_reset": 1} if op == "GRU" else {"input_forget": 0}
    every, final, *ends = draft.nodes(op, inputs, 1 + len(last.new), attrs)
    needed = [
        (cell.new[0], at)
        for at, cell in enumerate(cells[:-1])
        if cell.new[0].outputs[0] in view.outputs
        or any(reader not in cells[at + 1].nodes for reader in view.readers(cell.new[0].outputs[0]))
    ]
    values = [_state(draft, every, steps - 1, batch, width) if needed else reshape_to(draft, final, (batch, width))]
    values += [_state(draft, every, at, batch, width) for _, at in needed]
    values += [reshape_to(draft, end, (batch, width)) for end in ends]
    replaced = (*(maker for maker, _ in needed), *last.new[1:])
    return draft.outputs(*values, why=f"{steps} cells are one {op}", replaced=replaced)


def _sequence(draft: Draft, first: _Element, dims: Dims) -> int:
    """[steps, batch, features] of the sequence from the first element on."""
    whole, value = draft.view.dims(first.sequence), first.sequence
    rank, steps = len(whole), dims[0]
    if whole[first.axis] != steps:
        end = first.place + steps
        where = {"starts": (first.place,), "ends": (end,), "axes": (first.axis,), "steps": (1,)}
        value = draft.node("Slice", (value, None, None, None, None), where)
    if first.axis:
        order = (first.axis, *(at for at in range(rank) if at != first.axis))
        value = draft.node("Transpose", (value,), {"perm": order})
    return value if rank == 3 and not first.axis else reshape_to(draft, value, dims)


def _state(draft: Draft, every: int, at: int, batch: int, width: int) -> int:
    """Step `at` of [steps, 1, batch, width], as [batch, width]."""
    where = {"starts": (at,), "ends": (at + 1,), "axes": (0,), "steps": (1,)}
    return reshape_to(draft, draft.node("Slice", (every, None, None, None, None), where), (batch, width))


def _weights(view: View, value: int, order: Dims) -> np.ndarray:
    """[1, gates * width, features], as a layer of one direction has them."""
    return _rows(view, value, order)[None]


def _rows(view: View, value: int | None, order: Dims, weights: np.ndarray | None = None) -> np.ndarray:
    """Weights or a bias with the rows of the gates in ONNX's order; zeros for a bias that is not there."""
    if value is None:
        assert weights is not None
        return np.zeros(weights.shape[0], weights.dtype)
    array = view.constants[value]
    parts = np.split(array, len(order))
    return np.concatenate([parts[at] for at in order])


def lstm_by_cells(view: View, node: Node) -> Rewrite | No | None:
    """o_t tanh(c_t) where c_t = f_t c_(t-1) + i_t tanh(g_t), gates of x_t W^T + h_(t-1) R^T + b, for t = 1..n
    = lstm(x, W, R, b).
    """
    return _unrolled(view, node, _lstm_cell, "LSTM")


def gru_by_cells(view: View, node: Node) -> Rewrite | No | None:
    """n_t + z_t (h_(t-1) - n_t) where n_t = tanh(x_t W_n + r_t (h_(t-1) R_n + b)), for t = 1..n = gru(x, W, R, b)."""
    return _unrolled(view, node, _gru_cell, "GRU")


def stack_of_elements(view: View, node: Node) -> Rewrite | No | None:
    """concat(y[0], y[1], .., y[n - 1]) = y with its axis where they are joined,
    for all elements of y along one axis.
    """
    elements = [_element(view, value) for value in node.used]
    first, axis = elements[0], node.attrs["axis"]
    assert isinstance(axis, int)
    if first is None or [*elements] != [_Element(first.sequence, first.axis, at) for at in range(len(elements))]:
        return None
    whole, one = view.dims(first.sequence), view.dims(node.used[0])
    axis %= len(one)
    if whole[first.axis] != len(elements) or one[axis] != 1:
        return None
    rest = [at for at in range(len(whole)) if at != first.axis]
    before = sum(extent > 1 for extent in one[:axis])
    long = [at for at in rest if whole[at] > 1]
    place = rest.index(long[before]) if before < len(long) else len(rest)
    order = (*rest[:place], first.axis, *rest[place:])
    draft = view.draft(node)
    value = first.sequence
    if order != tuple(range(len(whole))):
        value = draft.node("Transpose", (value,), {"perm": order})
    reshape_to(draft, value, view.dims(node.outputs[0]))
    return draft.done(f"{len(elements)} elements are all of %{first.sequence}")


RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("Mul",), lstm_by_cells),
    Rule(REASSOCIATES, ("Add",), gru_by_cells),
    Rule(EXACT, ("Concat",), stack_of_elements),
)
