"""Left sides of the rules of `cells`, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, plus
from tests.compiler.rewrite.sketch import Sketch

BATCH, FEATURES, HIDDEN = 2, 3, 4


@dataclass
class _Weights:
    """Of one cell: [gates * hidden, .] for the input and the state, and a bias for each, which may be missing."""

    w: int
    r: int
    bw: int | None
    br: int | None


def _weights(s: Sketch, gates: int) -> _Weights:
    rows = gates * HIDDEN
    bw, br = (s.normal(rows) if s.rng.integers(3) else None for _ in range(2))
    return _Weights(s.normal(rows, FEATURES), s.normal(rows, HIDDEN), bw, br)


def _linear(s: Sketch, x: int, w: int, bias: int | None) -> int:
    return s("Gemm", x, w, *(() if bias is None else (bias,)), transB=1)


def _gates(s: Sketch, sums: int, count: int) -> tuple[int, ...]:
    if s.rng.integers(2):
        return s.many("Split", sums, None, outputs=count, axis=1, split=(HIDDEN,) * count)
    ends = [(at * HIDDEN, (at + 1) * HIDDEN) for at in range(count)]
    return tuple(
        s("Slice", sums, None, None, None, None, starts=(start,), ends=(end,), axes=(1,), steps=(1,))
        for start, end in ends
    )


def _times(s: Sketch, a: int, b: int) -> int:
    return s("Mul", a, b) if s.rng.integers(2) else s("Mul", b, a)


def _element(s: Sketch, sequence: int, axis: int, place: int) -> int:
    """[batch, features] of a sequence along an axis."""
    if s.rng.integers(2):
        return s("Gather", sequence, s.c(place, DType.I64), axis=axis)
    where = {"starts": (place,), "ends": (place + 1,), "axes": (axis,), "steps": (1,)}
    cut = s("Slice", sequence, None, None, None, None, **where)
    return s("Reshape", cut, None, shape=(BATCH, s.dims(sequence)[2]))


def _zero_sums(s: Sketch, weights: _Weights, gates: int) -> np.ndarray:
    bias = np.zeros(gates * HIDDEN) if weights.br is None else s.constants[weights.br]
    return np.broadcast_to(bias, (BATCH, gates * HIDDEN))


def _lstm(s: Sketch, x: int, h: int | None, c: int, weights: _Weights, order: tuple[int, ...]) -> tuple[int, int]:
    from_h = s.c(_zero_sums(s, weights, 4)) if h is None else _linear(s, h, weights.r, weights.br)
    parts = _gates(s, plus(s, _linear(s, x, weights.w, weights.bw), from_h), 4)
    i, o, f, g = (parts[at] for at in order)
    kept, new = _times(s, s("Sigmoid", f), c), _times(s, s("Sigmoid", i), s("Tanh", g))
    c = plus(s, kept, new)
    return _times(s, s("Sigmoid", o), s("Tanh", c)), c


def _gru(s: Sketch, x: int, h: int | None, weights: _Weights, order: tuple[int, ...]) -> int:
    from_x = _gates(s, _linear(s, x, weights.w, weights.bw), 3)
    if h is None:
        zero = _zero_sums(s, weights, 3)
        from_h: tuple[int, ...] = tuple(s.c(part) for part in np.split(zero, 3, axis=1))
        h = s.c(np.zeros((BATCH, HIDDEN)))
    else:
        from_h = _gates(s, _linear(s, h, weights.r, weights.br), 3)
    z, r, n = order
    update = s("Sigmoid", plus(s, from_x[z], from_h[z]))
    reset = s("Sigmoid", plus(s, from_x[r], from_h[r]))
    new = s("Tanh", plus(s, from_x[n], _times(s, reset, from_h[n])))
    if s.rng.integers(2):
        return plus(s, _times(s, s("Sub", h, new), update), new)
    return plus(s, _times(s, s("Sub", s.c(1), update), new), _times(s, update, h))


def _sequence(s: Sketch) -> tuple[Callable[[int], int], int]:
    """The elements of a sequence of 4 or 5, from the first or the second on; how many of them are read."""
    axis, length, start = int(s.rng.integers(2)), int(s.rng.integers(4, 6)), int(s.rng.integers(2))
    sequence = s.x(*((length, BATCH, FEATURES) if axis == 0 else (BATCH, length, FEATURES)))
    return lambda step: _element(s, sequence, axis, start + step), length - start


def _order(s: Sketch, gates: int) -> tuple[int, ...]:
    return tuple(int(at) for at in s.rng.permutation(gates))


def _lstm_cells(s: Sketch, states: str = "some") -> Graph:
    """Cells over a sequence, from zeros or given states.

    Of the states in between none or `some` are results, or a `cell`.
    """
    element, steps = _sequence(s)
    weights, order = _weights(s, 4), _order(s, 4)
    h = None if s.rng.integers(2) else s.x(BATCH, HIDDEN)
    c, results = s.x(BATCH, HIDDEN), []
    for step in range(steps):
        h, c = _lstm(s, element(step), h, c, weights, order)
        if step == steps - 1 or (states == "some" and s.rng.integers(2)):
            results.append(s("Neg", h))
        if states == "cell" and step == 0:
            results.append(s("Neg", c))
    return s.graph(*results, *((c,) if s.rng.integers(2) else ()))


def _gru_cells(s: Sketch, shuffled: bool = False) -> Graph:
    element, steps = _sequence(s)
    weights, order = _weights(s, 3), _order(s, 3)
    h = None if s.rng.integers(2) else s.x(BATCH, HIDDEN)
    places = list(range(steps))
    results = []
    for step in reversed(places) if shuffled else places:
        h = _gru(s, element(step), h, weights, order)
        if s.rng.integers(2):
            results.append(s("Neg", h))
    return s.graph(*results, s("Abs", h))


def _stack(s: Sketch, reverse: bool = False) -> Graph:
    """Elements of a tensor along its first or second axis, side by side along a new axis."""
    axis, place = int(s.rng.integers(2)), int(s.rng.integers(3))
    whole = s.x(*((3, BATCH, FEATURES) if axis == 0 else (BATCH, 3, FEATURES)))
    dims = [BATCH, FEATURES]
    dims.insert(place, 1)
    places = [2, 1, 0] if reverse else [0, 1, 2]
    parts = [s("Reshape", _element(s, whole, axis, at), None, shape=tuple(dims)) for at in places]
    return s.graph(s("Concat", *parts, axis=place))


LEFT: Mapping[str, Drawing] = {
    "lstm_by_cells": _lstm_cells,
    "gru_by_cells": _gru_cells,
    "stack_of_elements": _stack,
}

REFUSED: Mapping[str, Refusal] = {
    "lstm_by_cells": (lambda s: _lstm_cells(s, states="cell"), "needed elsewhere"),
    "gru_by_cells": (lambda s: _gru_cells(s, shuffled=True), "not the elements of one sequence in order"),
    "stack_of_elements": (lambda s: _stack(s, reverse=True), ""),
}
