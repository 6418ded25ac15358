"""Left sides of the rules of `reductions`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, inner_output
from tests.compiler.rewrite.sketch import Sketch

FOLDS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")


def _axes(s: Sketch, rank: int) -> tuple[int, ...]:
    axes = s.rng.permutation(rank)[: int(s.rng.integers(1, rank))]
    return tuple(int(axis) - (rank if s.rng.integers(2) else 0) for axis in axes)


def _reduce(s: Sketch, op: str, x: int, axes: tuple[int, ...], keep: int | None = None) -> int:
    return s(op, x, None, axes=axes, keepdims=int(s.rng.integers(2)) if keep is None else keep)


def _twice(s: Sketch) -> Graph:
    op = str(s.rng.choice(FOLDS))
    inner = _reduce(s, op, s.x(2, 3, 2, 3), _axes(s, 4))
    return s.graph(_reduce(s, op, inner, (int(s.rng.integers(len(s.dims(inner)))),)))


def _unit(s: Sketch) -> Graph:
    return s.graph(s("Abs", _reduce(s, str(s.rng.choice(FOLDS)), s.x(1, 3, 1), (2, 0) if s.rng.integers(2) else (-1,))))


def _transposed(s: Sketch) -> Graph:
    """A reduction of all moved axes, or of all but axes that keep their order."""
    op = str(s.rng.choice([*FOLDS, "ReduceL2", "ReduceSumSquare"]))
    if s.rng.integers(2):
        return s.graph(_reduce(s, op, s("Transpose", s.x(2, 3, 4), perm=(2, 0, 1)), (0,)))
    return s.graph(_reduce(s, op, s("Transpose", s.x(2, 1, 3, 4), perm=(3, 0, 2, 1)), (-4, 1)))


def _reshaped(s: Sketch) -> Graph:
    x, keep = s.x(2, 3, 4), int(s.rng.integers(2))
    reduced = _reduce(s, str(s.rng.choice([*FOLDS, "ReduceL2"])), x, (1,), keep)
    return s.graph(s("Reshape", reduced, None, shape=(2, 4) if keep else (2, 1, 4)))


def _mean(s: Sketch) -> Graph:
    x, axes = s.x(2, 3, 4), _axes(s, 3)
    count = prod(s.dims(x)[axis] for axis in axes)
    operands = (_reduce(s, "ReduceSum", x, axes), s.c(1 / count))
    return s.graph(s("Mul", *operands[:: int(s.rng.choice([1, -1]))]))


def _root(s: Sketch) -> int:
    x = s.x(2, 3)
    return s("Sqrt", _reduce(s, "ReduceSum", s("Mul", x, x), (1,)))


def _variance(s: Sketch) -> Graph:
    x = s.x(1, 2, 3, 3)
    return s.graph(_reduce(s, "ReduceMean", s("Mul", x, x), (2, 3)))


LEFT: Mapping[str, Drawing] = {
    "reduction_over_unit_axes": _unit,
    "reduction_of_reduction": _twice,
    "reduction_of_transpose": _transposed,
    "reshape_of_reduction": _reshaped,
    "mean_by_sum": _mean,
    "mean_over_space": lambda s: s.graph(_reduce(s, "ReduceMean", s.x(2, 3, 4, 5), (-1, 2))),
    "norm_by_squares": lambda s: s.graph(_root(s)),
    "place_of_greatest": lambda s: s.graph(
        s(str(s.rng.choice(["ArgMax", "ArgMin"])), s("Softmax", s.x(3, 4), axis=1), axis=-1)
    ),
}

REFUSED: Mapping[str, Refusal] = {
    "reduction_over_unit_axes": (lambda s: s.graph(_reduce(s, "ReduceSum", s.x(1, 3), (0, 1))), ""),
    "reduction_of_reduction": (
        lambda s: inner_output(s.graph(_reduce(s, "ReduceSum", _reduce(s, "ReduceSum", s.x(2, 3, 4), (0,)), (1,))), 1),
        "graph output",
    ),
    "reduction_of_transpose": (
        lambda s: s.graph(_reduce(s, "ReduceSum", s("Transpose", s.x(2, 3, 4), perm=(1, 0, 2)), (2,))),
        "another order",
    ),
    "reshape_of_reduction": (
        lambda s: s.graph(s("Reshape", _reduce(s, "ReduceSum", s.x(2, 3, 4), (1,)), None, shape=(-1,))),
        "",
    ),
    "mean_by_sum": (lambda s: s.graph(s("Mul", _reduce(s, "ReduceSum", s.x(2, 3), (1,)), s.c(0.5))), ""),
    "mean_over_space": (_variance, "variance of a norm"),
    "norm_by_squares": (lambda s: inner_output(s.graph(_root(s)), 1), "graph output"),
    "place_of_greatest": (
        lambda s: s.graph(s("ArgMax", s("Softmax", s.x(3, 4), axis=0), axis=1)),
        "different axes",
    ),
}
