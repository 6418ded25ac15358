"""What one size exceeds a multiple of another by is never more than said, and said where windows need it."""

from __future__ import annotations

import numpy as np

from compiler.forms.size_bounds import Sizes
from compiler.fuse import fuse
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.rewrite.sketch import Sketch

MOST = 20
I64 = DType.I64


def drawn(seed: int) -> Graph:
    """Two sizes, of which each is computed from a given one by random steps."""
    random, s = np.random.default_rng(seed), Sketch(dtype=DType.F32)
    given = s.x(dtype=I64)
    found = [given]
    for _ in range(int(random.integers(2, 7))):
        one = found[int(random.integers(len(found)))]
        number = s.c(int(random.integers(1, 5)), dtype=I64)
        op = str(random.choice(["Add", "Sub", "Mul", "Div", "Div", "Max", "Min"]))
        other = found[int(random.integers(len(found)))] if op in ("Add", "Sub", "Max", "Min") else number
        found.append(s(op, one, number if random.random() < 0.5 else other))
    return s.graph(found[-1], found[-2])


def test_a_bound_holds_at_every_size() -> None:
    judged = 0
    for seed in range(40):
        graph = drawn(seed)
        sizes = Sizes(fuse(graph).kernels)
        one, other = graph.outputs
        bounds = {factor: sizes.excess(one, factor, other) for factor in (1, 2, 3)}
        judged += sum(bound is not None for bound in bounds.values())
        for size in range(MOST):
            values = evaluate_graph(graph, {graph.inputs[0]: np.array(size)}, OPERATORS)
            for factor, bound in bounds.items():
                excess = factor * int(values[one]) - int(values[other])
                assert bound is None or excess <= bound, f"seed {seed}, size {size}, factor {factor}"
    assert judged >= 12


def test_the_bound_of_a_window_is_the_least() -> None:
    """Of a stride of 2 over a size that another stride of 2 left: 2 * floor((s + 1) / 2) <= s + 1."""
    s = Sketch(dtype=DType.F32)
    size, one, two = s.x(dtype=I64), s.c(1, dtype=I64), s.c(2, dtype=I64)
    half = s("Div", s("Add", size, one), two)
    quarter = s("Div", s("Add", half, one), two)
    sizes = Sizes(fuse(s.graph(half, quarter)).kernels)
    assert sizes.excess(half, 2, size) == 1
    assert sizes.excess(quarter, 2, half) == 1
    assert sizes.excess(size, 1, size) == 0
    assert sizes.excess(size, 2, size) is None
    assert sizes.excess(size, 1, half) is None


def test_a_quotient_of_one_below_a_size_is_never_negative() -> None:
    """A window of stride 2 without padding, over a size that may be 0: (0 - 1) / 2 is 0."""
    s = Sketch(dtype=DType.F32)
    given, one, two = s.x(dtype=I64), s.c(1, dtype=I64), s.c(2, dtype=I64)
    least = s("Div", s("Sub", given, one), two)
    size, outputs = s("Add", least, one), s("Add", s("Div", s("Sub", least, one), two), one)
    sizes = Sizes(fuse(s.graph(size, outputs)).kernels)
    assert sizes.excess(outputs, 2, size) == 1
    assert sizes.excess(size, 2, given) is not None


def test_a_size_that_data_say_is_known_beside_its_multiples() -> None:
    """The sum of some numbers, within ends, and four times that: one kernel computes all of them."""
    s = Sketch(dtype=DType.F32)
    numbers = s.x(5, dtype=I64)
    total = s("ReduceSum", numbers, axes=(0,), keepdims=0)
    size = s("Min", s("Max", total, s.c(0, dtype=I64)), s.c(MOST, dtype=I64))
    larger, half = s("Mul", size, s.c(4, dtype=I64)), s("Div", size, s.c(2, dtype=I64))
    graph = s.graph(total, size, larger, half)
    kernels = fuse(graph).kernels
    total, size, larger, half = kernels.outputs
    sizes = Sizes(kernels)
    assert sizes.is_times(larger, size, 4)
    assert size in sizes.parts(larger, 4)
    assert sizes.excess(size, 4, larger) == 0
    assert sizes.excess(half, 2, size) == 0
    assert sizes.excess(size, 1, total) is None, "the sum may be below zero"
    assert not sizes.is_times(larger, total, 4)
