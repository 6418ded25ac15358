"""Recurrent layers: RNN, GRU and LSTM as kernels over sequential time.

Inside a step the blocks are: the gates' sums over the input and over the hidden state (two contractions into
temporaries), then the new state, then the outputs. Directions are separate blocks of the same step; the backward one
reads and stores at mirrored times.

`DynamicQuantizeLSTM` is the compiler's own form of com.microsoft's operator of that name: an LSTM without W, since x is
what the gates get from the input, f32[steps, batch, directions * 4 hidden], and with codes for R, int8 or int16 less
their zero points, which have a scale for each gate and unit, f32[directions, 4 hidden], as input R_SCALE. Each
sequence's state is rounded to 8 bits by its own range before it is multiplied, at every step, as DynamicQuantizeLinear
rounds a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.ir.expr import Expr, Load, Position, Where
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index, Indirect
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType
from compiler.ops.build import call, cast, number
from compiler.ops.cell_functions import Activation, activations
from compiler.ops.operator import NOT_IN_ONNX, Operator, Types, Unsupported
from compiler.ops.quantise import nonzero
from compiler.ops.recurrent_reference import reference_gru, reference_lstm, reference_rnn
from compiler.ops.slots import accumulator_of, given, input_slots, output_slots, present, slot_names
from compiler.ops.traits import Trait

DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
BIAS, LENGTHS, HIDDEN, CELL, PEEPHOLES, R_SCALE = 3, 4, 5, 6, 7, 8
"""Positions of optional inputs after x, w and r."""
CODED = "DynamicQuantizeLSTM"


def _kind(node: Node) -> str:
    """Which of the three cells a layer has."""
    return "LSTM" if node.op == CODED else node.op


@dataclass(frozen=True)
class _Sizes:
    """Extents of a layer. x is [steps, batch, features], or [batch, steps, features] in layout 1."""

    steps: int
    batch: int
    features: int
    hidden: int
    reverse: tuple[bool, ...]
    layout: int

    @property
    def directions(self) -> int:
        return len(self.reverse)


def _sizes(node: Node, types: Types) -> _Sizes:
    """Raises Unsupported when the inputs' shapes do not fit each other."""
    x, r = given(types, 0).dims, given(types, 2).dims
    if len(x) != 3 or len(r) != 3 or (present(types, 1) and given(types, 1).rank != 3):
        raise Unsupported("x, W and R must have rank 3", "export the model again")
    direction, layout = node.attrs.get("direction", "forward"), node.attrs.get("layout", 0)
    if direction not in DIRECTIONS or layout not in (0, 1):
        raise Unsupported(f"direction {direction!r} or layout {layout!r} is unknown", "use those that ONNX names")
    reverse = DIRECTIONS[str(direction)]
    steps, batch = (x[0], x[1]) if layout == 0 else (x[1], x[0])
    sizes = _Sizes(steps, batch, x[2], r[2], reverse, 1 if layout else 0)
    gates, count = GATES[_kind(node)] * sizes.hidden, len(reverse)
    state = (batch, count, sizes.hidden) if layout else (count, batch, sizes.hidden)
    expected = {
        1: (count, gates, x[2]),
        2: (count, gates, sizes.hidden),
        BIAS: (count, 2 * gates),
        LENGTHS: (batch,),
        HIDDEN: state,
        CELL: state,
        PEEPHOLES: (count, 3 * sizes.hidden),
        R_SCALE: (count, gates),
    }
    if node.op == CODED and x[2] != count * gates:
        raise Unsupported(f"{x[2]} sums of the input are not {count} times {gates}", "export the model again")
    for position, shape in expected.items():
        if present(types, position) and given(types, position).dims != shape:
            found = list(given(types, position).dims)
            raise Unsupported(f"input {position} has shape {found}, not {list(shape)}", "bind dimensions that fit")
    if node.attrs.get("hidden_size", sizes.hidden) != sizes.hidden:
        raise Unsupported("hidden_size is not that of R", "remove the attribute hidden_size")
    if steps < 1 or batch < 1:
        raise Unsupported("the sequence or the batch is empty", "bind larger input dimensions")
    return sizes


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    sizes, dtype = _sizes(node, types), given(types, 0).dtype
    activations(node, DEFAULTS[_kind(node)], sizes.directions)
    inner = (sizes.directions, sizes.batch, sizes.hidden)
    whole, state = (sizes.steps, *inner), inner
    if sizes.layout:
        whole = (sizes.batch, sizes.steps, sizes.directions, sizes.hidden)
        state = (sizes.batch, sizes.directions, sizes.hidden)
    return tuple(TensorType(dtype, shape) for shape in (whole, state, state)[: len(node.outputs)])


class _Direction:
    """One direction of a layer: what its blocks load and store at step t of batch element b."""

    def __init__(
        self, node: Node, types: Types, sizes: _Sizes, number_: int, functions: tuple[Activation, ...]
    ) -> None:
        self.node, self.types, self.sizes, self.d = node, types, sizes, number_
        self.names = slot_names(types)
        self.functions = functions
        self.dtype = given(types, 0).dtype
        self.wide = accumulator_of(self.dtype)
        self.t, self.b = Axis("t", sizes.steps), Axis("b", sizes.batch)
        self.j, self.k = Axis("j", sizes.hidden), Axis("k", sizes.hidden)
        self.i, self.row = Axis("i", sizes.features), Axis("r", GATES[_kind(node)] * sizes.hidden)
        self.temps: list[Slot] = []
        self.blocks: list[Block] = []

    def temp(self, name: str, extent: int) -> str:
        """A temporary [batch, extent] of this direction."""
        slot = Slot(f"{name}{self.d}", TensorType(self.wide, (self.sizes.batch, extent)))
        self.temps.append(slot)
        return slot.name

    def load(self, position: int, *index: Index | Axis | int) -> Expr:
        """An element of an input in the accumulating dtype."""
        type = given(self.types, position)
        return cast(Load(self.names[position], tuple(map(Index.of, index)), type.dtype), self.wide)

    def held(self, slot: str, at: Index | Axis) -> Load:
        return Load(slot, (Index.of(self.b), Index.of(at)), self.wide)

    @property
    def active(self) -> Expr | None:
        """Whether step t is inside the sequence; None: always."""
        if not present(self.types, LENGTHS):
            return None
        return call("lt", Position(Index.of(self.t)), self._length())

    def _length(self) -> Expr:
        return cast(Load(self.names[LENGTHS], (Index.of(self.b),), given(self.types, LENGTHS).dtype), DType.I64)

    @property
    def time(self) -> Index:
        """Which element of the sequence step t is about.

        Beyond a shorter sequence's end, a backward step stays in place.
        """
        t, last = Index.of(self.t), self.sizes.steps - 1
        if not self.sizes.reverse[self.d]:
            return t
        active = self.active
        if active is None:
            return Index.of(last) - t
        mirrored = call("sub", self._length(), Position(t + 1))
        return Index.of(Indirect(Where(active, mirrored, Position(t)), 0, last))

    def initial(self, position: int, at: Axis) -> Expr:
        if not present(self.types, position):
            return number(0, self.wide)
        order = (self.b, self.d, at) if self.sizes.layout else (self.d, self.b, at)
        return self.load(position, *order)

    def previous(self, slot: str, position: int, at: Axis) -> Expr:
        """The state before this step: what an earlier step stored, at first the initial state."""
        later = call("gt", Position(Index.of(self.t)), number(0, DType.I64))
        return Where(later, self.held(slot, at), self.initial(position, at))

    def weight(self, position: int, row: Index | Axis, column: Axis) -> Expr:
        return self.load(position, self.d, row, column)

    def contract(self, into: str, row: Axis, state: Expr, weight: Expr, over: Axis) -> None:
        """into[b, row] = sum over `over` of state * weight."""
        store = Store(into, (Index.of(self.b), Index.of(row)))
        self.blocks.append(Block((row,), (call("mul", state, weight),), (store,), (over,), "sum", self.wide))

    def input_sums(self) -> Callable[[Index], Expr]:
        """xs[b, row] = sum over i of x W; gives what a gate reads of it."""
        if self.node.op == CODED:
            return lambda row: self.load(0, self.time, self.b, row + self.d * self.row.extent)
        into = self.temp("xs", self.row.extent)
        order = (self.b, self.time, self.i) if self.sizes.layout else (self.time, self.b, self.i)
        self.contract(into, self.row, self.load(0, *order), self.weight(1, self.row, self.i), self.i)
        return lambda row: self.held(into, row)

    def state_sums(self, h: str, rows: Axis) -> Callable[[Index], Expr]:
        """hs[b, row] = sum over k of h R; gives what a gate reads of it."""
        hs = self.temp("hs", rows.extent)
        if self.node.op != CODED:
            self.contract(hs, rows, self.previous(h, HIDDEN, self.k), self.weight(2, rows, self.k), self.k)
            return lambda row: self.held(hs, row)
        scale = self.quantised(h)
        codes = cast(cast(self.held(f"q{self.d}", self.k), DType.I16, saturate=True), self.wide)
        self.contract(hs, rows, codes, self.weight(2, rows, self.k), self.k)
        return lambda row: call("mul", self.held(hs, row), call("mul", scale, self.load(R_SCALE, self.d, row)))

    def quantised(self, h: str) -> Expr:
        """q[b, k] = the codes of the state before this step less their zero point; gives their scale."""
        b, only, zero = Index.of(self.b), Index.of(0), number(0, self.wide)
        ends = []
        for monoid in ("min", "max"):
            store = Store(self.temp(monoid, 1), (b, only))
            block = Block((), (self.previous(h, HIDDEN, self.k),), (store,), (self.k,), monoid, self.wide)
            self.blocks.append(block)
            ends.append(call(monoid, self.held(store.slot, only), zero))
        low, high = ends
        scale, point = (self.held(self.temp(name, 1), only) for name in ("scale", "zero"))
        step = nonzero(call("div", call("sub", high, low), number(255, self.wide)))
        start = call("round", call("div", call("sub", zero, low), scale))
        q = self.temp("q", self.sizes.hidden)
        rounded = call("add", call("round", call("div", self.previous(h, HIDDEN, self.j), scale)), point)
        for slot, value in ((scale.slot, step), (point.slot, self.octet(start))):
            self.blocks.append(Block((), (value,), (Store(slot, (b, only)),)))
        self.then(q, call("sub", self.octet(rounded), point))
        return scale

    def octet(self, value: Expr) -> Expr:
        """A whole number held within 0 .. 255."""
        return cast(cast(value, DType.U8, saturate=True), self.wide)

    def then(self, slot: str, value: Expr) -> None:
        """slot[b, j] = value; beyond a shorter sequence's end the state stays."""
        self.blocks.append(Block((self.j,), (value,), (Store(slot, (Index.of(self.b), Index.of(self.j))),)))

    def kept(self, new: Expr, old: Expr) -> Expr:
        active = self.active
        return new if active is None else Where(active, new, old)

    def at(self, gate: int) -> Index:
        return Index.of(self.j) + gate * self.sizes.hidden

    def bias(self, row: Index) -> list[Expr]:
        return [self.load(BIAS, self.d, row)] if present(self.types, BIAS) else []

    def add(self, *parts: Expr) -> Expr:
        whole = parts[0]
        for part in parts[1:]:
            whole = call("add", whole, part)
        return whole

    def activate(self, function: int, value: Expr) -> Expr:
        """An activation of the value, which is first limited to -clip .. clip."""
        clip = self.node.attrs.get("clip")
        if isinstance(clip, int | float) and clip > 0:
            value = call("min", call("max", value, number(-clip, self.wide)), number(clip, self.wide))
        return self.functions[function](value)

    def outputs(self, count: int, states: tuple[str, ...]) -> None:
        """y at this step; the last state is stored at every step, the last one stays."""
        hidden, j = self.held(states[0], self.j), Index.of(self.j)
        y = cast(hidden if self.active is None else Where(self.active, hidden, number(0, self.wide)), self.dtype)
        values, b, d = [y], Index.of(self.b), Index.of(self.d)
        stores = [Store("y0", (b, self.time, d, j) if self.sizes.layout else (self.time, d, b, j))]
        for place, state in enumerate(states[: count - 1]):
            values.append(cast(self.held(state, self.j), self.dtype))
            stores.append(Store(f"y{place + 1}", (b, d, j) if self.sizes.layout else (d, b, j)))
        self.blocks.append(Block((self.j,), tuple(values), tuple(stores)))


def _rnn(run: _Direction) -> tuple[str, ...]:
    h = run.temp("h", run.sizes.hidden)
    xs, hs = run.input_sums(), run.temp("hs", run.row.extent)
    run.contract(hs, run.row, run.previous(h, HIDDEN, run.k), run.weight(2, run.row, run.k), run.k)
    biases = [*run.bias(run.at(0)), *run.bias(run.at(1))]
    new = run.activate(0, run.add(xs(Index.of(run.j)), run.held(hs, run.j), *biases))
    run.then(h, run.kept(new, run.previous(h, HIDDEN, run.j)))
    return (h,)


def _gru(run: _Direction) -> tuple[str, ...]:
    """Gates in the order update z, reset r, candidate h."""
    size = run.sizes.hidden
    h, xs = run.temp("h", size), run.input_sums()
    before = run.previous(h, HIDDEN, run.j)

    def gate(number_: int, hidden: Expr) -> Expr:
        biases = (*run.bias(run.at(number_)), *run.bias(run.at(3 + number_)))
        return run.activate(0, run.add(xs(run.at(number_)), hidden, *biases))

    rows = Axis("r", 3 * size if run.node.attrs.get("linear_before_reset", 0) else 2 * size)
    hs = run.temp("hs", rows.extent)
    run.contract(hs, rows, run.previous(h, HIDDEN, run.k), run.weight(2, rows, run.k), run.k)
    reset = gate(1, run.held(hs, run.at(1)))
    parts: list[Expr]
    if run.node.attrs.get("linear_before_reset", 0):
        hidden = run.add(run.held(hs, run.at(2)), *run.bias(run.at(5)))
        parts = [xs(run.at(2)), call("mul", reset, hidden), *run.bias(run.at(2))]
    else:
        rh, rhs = run.temp("rh", size), run.temp("rhs", size)
        run.then(rh, call("mul", reset, before))
        run.contract(rhs, run.j, run.held(rh, run.k), run.weight(2, run.at(2), run.k), run.k)
        parts = [xs(run.at(2)), run.held(rhs, run.j), *run.bias(run.at(5)), *run.bias(run.at(2))]
    candidate = run.activate(1, run.add(*parts))
    update = gate(0, run.held(hs, run.at(0)))
    stay = call("sub", number(1, run.wide), update)
    run.then(h, run.kept(run.add(call("mul", stay, candidate), call("mul", update, before)), before))
    return (h,)


def _lstm(run: _Direction) -> tuple[str, ...]:
    """Gates in the order input i, output o, forget f, candidate c; peepholes in the order i, o, f."""
    h, c = run.temp("h", run.sizes.hidden), run.temp("c", run.sizes.hidden)
    xs, hs = run.input_sums(), run.state_sums(h, run.row)
    before = run.previous(c, CELL, run.j)

    def gate(number_: int, function: int, cell: Expr | None) -> Expr:
        parts: list[Expr] = [xs(run.at(number_)), hs(run.at(number_))]
        parts += [*run.bias(run.at(number_)), *run.bias(run.at(4 + number_))]
        if cell is not None and present(run.types, PEEPHOLES):
            parts.append(call("mul", run.load(PEEPHOLES, run.d, run.at(number_)), cell))
        return run.activate(function, run.add(*parts))

    entry = gate(0, 0, before)
    coupled = bool(run.node.attrs.get("input_forget", 0))
    forget = call("sub", number(1, run.wide), entry) if coupled else gate(2, 0, before)
    new = run.add(call("mul", forget, before), call("mul", entry, gate(3, 1, None)))
    run.then(c, run.kept(new, before))
    cell = run.held(c, run.j)
    hidden = call("mul", gate(1, 0, cell), run.functions[2](cell))
    run.then(h, run.kept(hidden, run.previous(h, HIDDEN, run.j)))
    return (h, c)


_CELLS: dict[str, Callable[[_Direction], tuple[str, ...]]] = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


def _define(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    sizes = _sizes(node, types)
    functions = activations(node, DEFAULTS[_kind(node)], sizes.directions)
    runs = [_Direction(node, types, sizes, d, functions[d]) for d in range(sizes.directions)]
    for run in runs:
        run.outputs(len(outputs), _CELLS[_kind(node)](run))
    return Kernel(
        node.op,
        input_slots(types),
        output_slots(outputs),
        tuple(block for run in runs for block in run.blocks),
        tuple(slot for run in runs for slot in run.temps),
        shared=(runs[0].t, runs[0].b),
        sequential=(runs[0].t,),
    )


OPERATORS: tuple[Operator, ...] = (
    Operator("RNN", _infer, reference_rnn, _define, traits=Trait.RECURRENT),
    Operator("GRU", _infer, reference_gru, _define, traits=Trait.RECURRENT),
    Operator("LSTM", _infer, reference_lstm, _define, traits=Trait.RECURRENT),
)
OWN: tuple[Operator, ...] = (
    Operator(CODED, _infer, reference_lstm, _define, opsets=NOT_IN_ONNX, traits=Trait.RECURRENT | Trait.QUANTISED),
)
