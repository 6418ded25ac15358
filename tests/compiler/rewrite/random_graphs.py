"""Random programs over some four dozen operators, rich in what rules look for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.sketch import Sketch

Step = Callable[[Sketch, int], int]
LARGEST = 10_000
"""Elements of a tensor that may still grow."""


def _constant(s: Sketch, x: int) -> int:
    """A constant that broadcasts to x without making it larger.

    Neutral, a scalar, per channel, per column, or whole.
    """
    dims = s.dims(x)
    kind = int(s.rng.integers(5))
    if kind == 0:
        return s.c(s.rng.choice([0.0, -0.0, 1.0, 2.0]))
    if kind == 1:
        return s.positive()
    if kind == 2 and len(dims) > 1:
        return s.positive(dims[1], *(1,) * (len(dims) - 2))
    return s.positive(*dims[-1:]) if kind < 4 else s.positive(*dims)


def _with_constant(op: str, swap: bool) -> Step:
    def step(s: Sketch, x: int) -> int:
        operands = (x, _constant(s, x))
        return s(op, *(operands[::-1] if swap and s.rng.integers(2) else operands))

    return step


def _divide(s: Sketch, x: int) -> int:
    return s("Div", x, s.c(s.rng.choice([1.0, 2.0, 0.25, 3.0])) if s.rng.integers(2) else s.positive(*s.dims(x)))


def _binary(s: Sketch, x: int) -> int:
    """x and an earlier value of its shape, often x itself."""
    others = [value for value in s.values if value not in s.constants and s.values[value].type == s.values[x].type]
    return s(str(s.rng.choice(["Add", "Sub", "Max"])), x, int(s.rng.choice(others)))


def _unary(s: Sketch, x: int) -> int:
    return s(str(s.rng.choice(["Relu", "Neg", "Identity", "Sigmoid", "Tanh", "Abs"])), x)


def _clip(s: Sketch, x: int) -> int:
    low = float(s.rng.choice([-1.0, 0.0, 0.5]))
    return s("Clip", x, s.c(low), None if s.rng.integers(2) else s.c(low + 2))


def _gate(s: Sketch, x: int) -> int:
    return s("Mul", x, s("Sigmoid", x))


def _gelu(s: Sketch, x: int) -> int:
    erf = s("Erf", s("Mul", x, s.c(0.5**0.5)))
    return s("Mul", s("Mul", x, s("Add", erf, s.c(1.0))), s.c(0.5))


def _reshape(s: Sketch, x: int) -> int:
    dims = s.dims(x)
    choices = [tuple(dims), (1, *dims), (*dims, 1), (-1, dims[-1]), (dims[0], -1)]
    return s("Reshape", x, None, shape=choices[int(s.rng.integers(len(choices)))] if len(dims) < 5 else (dims[0], -1))


def _transpose(s: Sketch, x: int) -> int:
    return s("Transpose", x, perm=tuple(int(axis) for axis in s.rng.permutation(len(s.dims(x)))))


def _slice(s: Sketch, x: int) -> int:
    axis = int(s.rng.integers(len(s.dims(x))))
    extent = s.dims(x)[axis]
    begin = int(s.rng.integers(0, max(extent - 1, 1)))
    return s("Slice", x, *(None,) * 4, starts=(begin,), ends=(extent,), axes=(axis,), steps=(1,))


def _split_and_join(s: Sketch, x: int) -> int:
    axis = int(s.rng.integers(len(s.dims(x))))
    extent = s.dims(x)[axis]
    if extent < 2:
        return s("Identity", x)
    parts = s.many("Split", x, None, outputs=2, axis=axis, split=(1, extent - 1))
    order = parts if s.rng.integers(2) else parts[::-1]
    return s("Concat", *order, *((parts[0],) if extent < 5 and s.rng.integers(3) == 0 else ()), axis=axis)


def _norm(s: Sketch, x: int) -> int:
    n = s.dims(x)[1] if len(s.dims(x)) > 1 else 0
    return s("BatchNormalization", x, s.positive(n), s.normal(n), s.normal(n), s.positive(n)) if n else s("Neg", x)


def _matmul(s: Sketch, x: int) -> int:
    return s("MatMul", x, s.normal(s.dims(x)[-1], int(s.rng.integers(1, 4))))


def _conv(s: Sketch, x: int) -> int:
    dims = s.dims(x)
    if len(dims) not in (3, 4):
        return s("Identity", x)
    if s.rng.integers(3) == 0:
        x = s("Pad", x, *(None,) * 3, pads=(0, 0, *(1,) * (len(dims) - 2)) * 2)
    bias = (s.normal(2),) if s.rng.integers(2) else ()
    return s("Conv", x, s.normal(2, dims[1], *(1,) * (len(dims) - 2)), *bias)


def _two_transposes(s: Sketch, x: int) -> int:
    """A Transpose, maps, and what brings the axes back, or nearly."""
    perm = tuple(int(axis) for axis in s.rng.permutation(len(s.dims(x))))
    moved = s("Transpose", x, perm=perm)
    for _ in range(int(s.rng.integers(3))):
        moved = s("Add", moved, _constant(s, moved)) if s.rng.integers(2) else _unary(s, moved)
    if s.rng.integers(3) == 0:
        moved = s("Softmax", moved, axis=int(s.rng.integers(len(perm))))
    return s("Transpose", moved, perm=tuple(perm.index(axis) for axis in range(len(perm))))


def _dense(s: Sketch, x: int) -> int:
    """A product of rows, with a bias, in the shape that x has."""
    dims, columns = s.dims(x), int(s.rng.integers(1, 4))
    rows = s("Reshape", x, None, shape=(-1, dims[-1]))
    product = s("Reshape", s("MatMul", rows, s.normal(dims[-1], columns)), None, shape=(*dims[:-1], columns))
    return _unary(s, s("Add", product, s.normal(columns)))


def _attention(s: Sketch, x: int) -> int:
    """x times itself transposed, transposed again."""
    dims = s.dims(x)
    if len(dims) < 2:
        return s("Identity", x)
    back = (*range(len(dims) - 2), len(dims) - 1, len(dims) - 2)
    scores = s("MatMul", x, s("Transpose", x, perm=back))
    return s("Softmax", s("Transpose", scores, perm=back) if s.rng.integers(2) else scores, axis=-1)


def _reduce(s: Sketch, x: int) -> int:
    rank = len(s.dims(x))
    axes = tuple(int(axis) for axis in s.rng.permutation(rank)[: int(s.rng.integers(1, max(rank, 2)))])
    op = str(s.rng.choice(["ReduceSum", "ReduceMean", "ReduceMax"]))
    return s(op, x, None, axes=axes, keepdims=int(s.rng.integers(3) > 0))


def _mean(s: Sketch, x: int) -> int:
    total = s("ReduceSum", s("Mul", x, x), None, axes=(-1,), keepdims=1)
    return s("Mul", total, s.c(1 / s.dims(x)[-1])) if s.rng.integers(2) else s("Sqrt", total)


def _gather(s: Sketch, x: int) -> int:
    axis = int(s.rng.integers(len(s.dims(x))))
    extent = s.dims(x)[axis]
    first, past = sorted(int(n) for n in s.rng.choice(extent + 1, 2, replace=False))
    indices = np.arange(first, past)
    if s.rng.integers(3) == 0:
        indices = np.array(-1) if len(s.dims(x)) > 2 else indices[::-1]
    return s("Gather", x, s.c(indices, DType.I64), axis=axis)


def _update(s: Sketch, x: int) -> int:
    """The oldest of a cache dropped, and something new written at its end."""
    extent = s.dims(x)[0]
    if extent < 2:
        return s("Neg", x)
    newest = s("Relu", _window(s, x, 0, 0, 1))
    shifted = s("Concat", _window(s, x, 0, 1, extent), newest, axis=0)
    return s("ScatterND", shifted, s.c([[int(s.rng.integers(extent))]], DType.I64), newest)


def _window(s: Sketch, x: int, axis: int, first: int, past: int) -> int:
    return s("Slice", x, *(None,) * 4, starts=(first,), ends=(past,), axes=(axis,), steps=(1,))


def _pad(s: Sketch, x: int) -> int:
    rank = len(s.dims(x))
    pads = tuple(int(n) for n in s.rng.integers(0, 2, 2 * rank))
    padded = s("Pad", x, *(None,) * 3, pads=pads)
    axis = int(s.rng.integers(rank))
    return _window(s, padded, axis, int(s.rng.integers(0, 2)), s.dims(x)[axis] + 1) if s.rng.integers(2) else padded


def _power(s: Sketch, x: int) -> int:
    return s("Pow", s("Abs", x), s.c(s.rng.choice([2.0, 0.5, 3.0])))


def _choose(s: Sketch, x: int) -> int:
    smaller = s("Less", x, s.c(0.30103))  # what no value is exactly, which rounding would put on either side
    condition = s("Not", smaller) if s.rng.integers(2) else smaller
    return s("Where", condition, x, _constant(s, x))


def _limit(s: Sketch, x: int) -> int:
    return s(str(s.rng.choice(["Max", "Min"])), x, s.c(s.rng.choice([-1.0, 0.0, 6.0])))


STEPS: Sequence[Step] = (
    _with_constant("Add", swap=True),
    _with_constant("Mul", swap=True),
    _with_constant("Sub", swap=False),
    _divide,
    _binary,
    _unary,
    _unary,
    _clip,
    _gate,
    _gelu,
    _reshape,
    _transpose,
    _slice,
    _split_and_join,
    _norm,
    _matmul,
    _conv,
    _two_transposes,
    _dense,
    _attention,
    _reduce,
    _mean,
    _gather,
    _update,
    _pad,
    _power,
    _choose,
    _limit,
)


def random_graph(s: Sketch, nodes: int) -> Graph:
    """A graph of at least `nodes` nodes.

    Its outputs are the last value and some more, or everything that nothing reads.
    """
    values = [s.x(1, 2, 3, 4), s.x(2, 3)]
    while len(s.nodes) < nodes:
        x = values[-1] if s.rng.integers(3) else int(s.rng.choice(values[-4:]))
        if not s.dims(x) or not 0 < prod(s.dims(x)) <= LARGEST:
            x = values[0]
        values.append(STEPS[int(s.rng.integers(len(STEPS)))](s, x))
    read = {value for node in s.nodes for value in node.used}
    if s.rng.integers(2):
        return s.graph(*(value for node in s.nodes for value in node.outputs if value not in read))
    more = {int(v) for v in s.rng.choice(values, int(s.rng.integers(0, 4)))} - {values[-1]}
    return s.graph(values[-1], *sorted(more))
