"""Left sides of the rules of `softmax`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, inner_output
from tests.compiler.rewrite.sketch import Sketch


def _exponentials(s: Sketch) -> tuple[int, int, int]:
    """x, exp(x - max(x)) and its sum, which keep the axis or get it back by a Reshape.

    The distance is the node before the Exp.
    """
    x, axis = s.x(2, 3, 2), int(s.rng.integers(-3, 3))
    kept = tuple(1 if at == axis % 3 else n for at, n in enumerate((2, 3, 2)))

    def over(op: str, value: int) -> int:
        if s.rng.integers(2):
            return s(op, value, None, axes=(axis,))
        lost = s(op, value, None, axes=(axis,), keepdims=0)
        if op == "ReduceMax" and s.rng.integers(2):
            lost = s("Max", s.c(-np.inf), lost)
        return s("Reshape", lost, None, shape=kept)

    d = s("Sub", x, over("ReduceMax", x))
    e = s("Exp", d)
    return d, e, over("ReduceSum", e)


def _softmax(s: Sketch) -> Graph:
    _, e, total = _exponentials(s)
    return s.graph(s("Div", e, total))


def _log_softmax(s: Sketch) -> Graph:
    d, _, total = _exponentials(s)
    return s.graph(s("Sub", d, s("Log", total)))


def _log_of_softmax(s: Sketch) -> Graph:
    return s.graph(s("Log", s("Softmax", s.x(2, 3), axis=int(s.rng.integers(2)))))


LEFT: Mapping[str, Drawing] = {
    "softmax_by_exp": _softmax,
    "log_softmax_by_exp": _log_softmax,
    "log_of_softmax": _log_of_softmax,
}

REFUSED: Mapping[str, Refusal] = {
    "softmax_by_exp": (lambda s: inner_output(_softmax(s), 2), "graph output"),
    "log_softmax_by_exp": (lambda s: inner_output(_log_softmax(s), 1), "graph output"),
    "log_of_softmax": (lambda s: inner_output(_log_of_softmax(s), 1), "graph output"),
}
