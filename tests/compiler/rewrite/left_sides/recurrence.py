"""Left sides of the rules of `recurrence`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.rewrite.rules.recurrence import GATHERED_BYTES
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, shape
from tests.compiler.rewrite.sketch import Sketch


def _cell(s: Sketch, op: str, steps: int = 1, **attrs: object) -> Graph:
    """A recurrent layer in one of its forms: initial states, biases, peepholes, outputs, layout there or not."""
    gates, states = {"RNN": (1, 1), "GRU": (3, 1), "LSTM": (4, 2)}[op]
    batch, features, hidden = int(s.rng.integers(1, 3)), int(s.rng.integers(1, 4)), int(s.rng.integers(1, 4))
    layout = int(s.rng.integers(2))
    x = s.x(*((batch, steps, features) if layout else (steps, batch, features)))
    inputs: list[int | None] = [x, s.normal(1, gates * hidden, features), s.normal(1, gates * hidden, hidden)]
    inputs.append(s.normal(1, 2 * gates * hidden) if s.rng.integers(2) else None)
    inputs.append(None)
    state = (batch, 1, hidden) if layout else (1, batch, hidden)
    for _ in range(states):
        kind = int(s.rng.integers(3))
        inputs.append(s.x(*state) if kind == 0 else s.c(np.zeros(state)) if kind == 1 else None)
    if op == "LSTM":
        inputs.append(s.normal(1, 3 * hidden) if s.rng.integers(2) else None)
        attrs = {"input_forget": int(s.rng.integers(2)), **attrs}
    if op == "GRU":
        attrs = {"linear_before_reset": int(s.rng.integers(2)), **attrs}
    direction = str(s.rng.choice(["forward", "reverse"]))
    attrs = {"direction": direction, "hidden_size": hidden, "layout": layout, **attrs}
    count = int(s.rng.integers(1, states + 2))
    return s.graph(*(s("Neg", y) for y in s.many(op, *inputs, outputs=count, **attrs)))


def _gathered(s: Sketch, width: int = 4) -> int:
    """Rows of a table, of `width` numbers each."""
    indices = s.x(*shape(s, rank=int(s.rng.integers(1, 3))), dtype=DType.I64)
    return s("Gather", s.normal(50, width), indices, axis=0)


def _table_too_large(s: Sketch) -> Graph:
    """A product of which the table would take more than all that may be kept."""
    wide = np.broadcast_to(np.float64(0.5), (4, (GATHERED_BYTES // (8 * 50)) + 1))
    return s.graph(s("MatMul", _gathered(s), s.c(wide)))


LEFT: Mapping[str, Drawing] = {
    "rnn_of_one_step": lambda s: _cell(s, "RNN"),
    "lstm_of_one_step": lambda s: _cell(s, "LSTM"),
    "gru_of_one_step": lambda s: _cell(s, "GRU"),
    "product_of_gather": lambda s: s.graph(s("MatMul", _gathered(s), s.normal(4, 3))),
}

REFUSED: Mapping[str, Refusal] = {
    "rnn_of_one_step": (lambda s: _cell(s, "RNN", clip=1.0), "gates are clipped"),
    "lstm_of_one_step": (lambda s: _cell(s, "LSTM", steps=2), ""),
    "gru_of_one_step": (
        lambda s: _cell(s, "GRU", activations=("HardSigmoid", "Tanh")),
        "activations HardSigmoid, Tanh are not all operators",
    ),
    "product_of_gather": (_table_too_large, "too large"),
}
