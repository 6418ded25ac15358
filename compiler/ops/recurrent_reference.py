"""RNN, GRU and LSTM in numpy: one step after the other, each a pair of matrix products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Node
from compiler.ops.arrays import as_array
from compiler.ops.cell_functions import Activation, activations
from compiler.ops.operator import Arrays
from compiler.ops.slots import arrays_at, optional

State = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class _Layer:
    """Weights of one direction: w [G*H, I], r [G*H, H], biases [G*H] each, peepholes [3*H].

    `scales` [G*H] where r are codes that states are rounded to 8 bits for; then there is no w, and x is its products.
    """

    node: Node
    w: np.ndarray | None
    r: np.ndarray
    w_bias: np.ndarray
    r_bias: np.ndarray
    peepholes: np.ndarray
    functions: tuple[Activation, ...]
    scales: np.ndarray | None

    def of_input(self, x: np.ndarray) -> np.ndarray:
        """x W^T for an element of each sequence [batch, I]."""
        return x if self.w is None else as_array(x @ self.w.T)

    def of_state(self, h: np.ndarray) -> np.ndarray:
        """h R^T for states [batch, H]."""
        if self.scales is None:
            return as_array(h @ self.r.T)
        narrow = h.astype(np.float32)  # DynamicQuantizeLinear divides so
        low, high = narrow.min(1, keepdims=True).clip(max=0), narrow.max(1, keepdims=True).clip(min=0)
        scale = (high - low) / np.float32(255)
        scale = np.where(scale == 0, np.float32(1), scale)
        zero = np.rint(-low / scale)
        codes = np.clip(np.rint(narrow / scale) + zero, 0, 255) - zero
        return as_array((codes.astype(h.dtype) @ self.r.T.astype(h.dtype)) * (scale * self.scales))

    def activate(self, function: int, value: np.ndarray) -> np.ndarray:
        clip = self.node.attrs.get("clip")
        if isinstance(clip, int | float) and clip > 0:
            value = np.clip(value, -clip, clip)
        return self.functions[function].compute(value)


Step = Callable[[_Layer, np.ndarray, State], State]


def _rnn_step(layer: _Layer, x: np.ndarray, state: State) -> State:
    return (layer.activate(0, layer.of_input(x) + state[0] @ layer.r.T + layer.w_bias + layer.r_bias),)


def _gru_step(layer: _Layer, x: np.ndarray, state: State) -> State:
    (h,) = state
    size = h.shape[1]
    from_x, from_h = layer.of_input(x) + layer.w_bias, h @ layer.r.T + layer.r_bias
    gates = layer.activate(0, (from_x + from_h)[:, : 2 * size])
    update, reset = gates[:, :size], gates[:, size:]
    if layer.node.attrs.get("linear_before_reset", 0):
        hidden = reset * from_h[:, 2 * size :]
    else:
        hidden = (reset * h) @ layer.r[2 * size :].T + layer.r_bias[2 * size :]
    candidate = layer.activate(1, from_x[:, 2 * size :] + hidden)
    return (candidate + update * (h - candidate),)


def _lstm_step(layer: _Layer, x: np.ndarray, state: State) -> State:
    h, c = state
    total = layer.of_input(x) + layer.of_state(h) + layer.w_bias + layer.r_bias
    entry, exit_, forget, candidate = np.split(total, 4, axis=1)
    peep_entry, peep_exit, peep_forget = np.split(layer.peepholes, 3)
    entry = layer.activate(0, entry + peep_entry * c)
    kept = 1 - entry if layer.node.attrs.get("input_forget", 0) else layer.activate(0, forget + peep_forget * c)
    c = kept * c + entry * layer.activate(1, candidate)
    return (layer.activate(0, exit_ + peep_exit * c) * layer.functions[2].compute(c), c)


def _mirrored(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """x [steps, batch, ...] with each sequence's own elements in reverse order, the rest in place."""
    steps = np.arange(x.shape[0], like=x)[:, None]
    order = np.where(steps < lengths, lengths - 1 - steps, steps)
    return as_array(x[order, np.arange(x.shape[1], like=x)])


def _layer(node: Node, arrays: Arrays, direction: int, functions: tuple[Activation, ...]) -> _Layer:
    x, r = arrays_at(arrays, 0, 2)
    rows, hidden = r.shape[1:]
    both = optional(arrays, 3)
    bias = np.zeros_like(x, shape=(2 * rows,)) if both is None else both[direction]
    peep = optional(arrays, 7)
    peepholes = np.zeros_like(x, shape=(3 * hidden,)) if peep is None else peep[direction]
    w, scales = (None if array is None else array[direction] for array in (optional(arrays, 1), optional(arrays, 8)))
    return _Layer(node, w, r[direction], bias[:rows], bias[rows:], peepholes, functions, scales)


def _run(node: Node, arrays: Arrays, step: Step, defaults: tuple[str, ...], states: int) -> tuple[np.ndarray, ...]:
    x, r = arrays_at(arrays, 0, 2)
    batch_first = bool(node.attrs.get("layout", 0))
    x = x.swapaxes(0, 1) if batch_first else x
    directions, hidden = r.shape[0], r.shape[2]
    given = optional(arrays, 4)
    lengths = np.full_like(x, x.shape[0], np.int64, shape=(x.shape[1],)) if given is None else given
    initial = [optional(arrays, 5 + place) for place in range(states)]
    starts = [
        np.zeros_like(x, shape=(directions, x.shape[1], hidden))
        if a is None
        else a.swapaxes(0, 1)
        if batch_first
        else a
        for a in initial
    ]
    every = activations(node, defaults, directions)
    whole, last = [], []
    for direction in range(directions):
        backward = node.attrs.get("direction") == "reverse" or direction == 1
        layer = _layer(node, arrays, direction, every[direction])
        read = x if layer.w is not None else np.split(x, directions, axis=2)[direction]
        state: State = tuple(start[direction] for start in starts)
        seen = []
        for t, element in enumerate(_mirrored(read, lengths) if backward else read):
            active = (t < lengths)[:, None]
            state = tuple(
                np.where(active, new, old) for new, old in zip(step(layer, element, state), state, strict=True)
            )
            seen.append(np.where(active, state[0], 0))
        stacked = np.stack(seen)
        whole.append(_mirrored(stacked, lengths) if backward else stacked)
        last.append(state)
    y = np.stack(whole, axis=1)
    ends = [np.stack([state[place] for state in last]) for place in range(states)]
    if batch_first:
        y, ends = y.transpose(2, 0, 1, 3), [end.swapaxes(0, 1) for end in ends]
    return (y, *ends)[: len(node.outputs)]


def reference_rnn(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    """Y [steps, directions, batch, hidden] and Y_h [directions, batch, hidden]; batch first with `layout` 1."""
    return _run(node, arrays, _rnn_step, ("Tanh",), 1)


def reference_gru(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    """Shapes as of `reference_rnn`."""
    return _run(node, arrays, _gru_step, ("Sigmoid", "Tanh"), 1)


def reference_lstm(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    """Shapes as of `reference_rnn`; the third output, Y_c, has the shape of Y_h.

    With a ninth input, R are codes, which states are rounded to 8 bits for, each sequence's by its own range.
    """
    return _run(node, arrays, _lstm_step, ("Sigmoid", "Tanh", "Tanh"), 2)
