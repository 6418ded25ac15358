"""Graphs drawn node by node, and what rewriting must keep of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.ir.graph import Graph, Node, Value
from compiler.ir.tensor import DType, TensorType
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from compiler.rewrite import Rewritten
from tests.compiler.ops.single import defaults

EDGES = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, -3e38, 0.5, 3.0, -3.0, 6.0, 7.0)
"""Numbers at which careless equations fail."""


EIGHTH = 0.125


class Sketch:
    """A graph under construction. `dtype` is that of inputs and constants unless told otherwise; `rng` is for random choices.

    `in_eighths` rounds drawn numbers to multiples of EIGHTH: sums of their products are exact, so no order of summing, which is
    another in each machine's BLAS, shows in them.
    """

    def __init__(self, seed: int = 0, dtype: DType = DType.F64, *, in_eighths: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.in_eighths = in_eighths
        self.values: dict[int, Value] = {}
        self.nodes: list[Node] = []
        self.inputs: list[int] = []
        self.constants: dict[int, np.ndarray] = {}

    def _value(self, type: TensorType, name: str = "") -> int:
        id = len(self.values)
        self.values[id] = Value(id, type, name)
        return id

    def x(self, *shape: int, dtype: DType | None = None) -> int:
        """A graph input."""
        self.inputs.append(self._value(TensorType(dtype or self.dtype, shape), f"in{len(self.inputs)}"))
        return self.inputs[-1]

    def c(self, number: Any, dtype: DType | None = None) -> int:
        """A constant."""
        array = np.asarray(number, (dtype or self.dtype).numpy)
        id = self._value(TensorType(DType.of(array.dtype), array.shape))
        self.constants[id] = array
        return id

    def normal(self, *shape: int) -> int:
        """A constant of random numbers."""
        return self.c(self.rounded(self.rng.normal(size=shape)))

    def positive(self, *shape: int) -> int:
        return self.c(self.rounded(self.rng.uniform(0.5, 2, shape)))

    def rounded(self, numbers: np.ndarray) -> np.ndarray:
        """To two decimals, or to eighths."""
        return np.rint(numbers / EIGHTH) * EIGHTH if self.in_eighths else numbers.round(2)

    def many(self, op: str, *inputs: int | None, outputs: int, **attrs: Any) -> tuple[int, ...]:
        """A node; its outputs."""
        node = Node(
            op,
            inputs,
            tuple(range(len(self.values), len(self.values) + outputs)),
            {**defaults(op), **attrs},
            f"n{len(self.nodes)}",
        )
        types = tuple(None if value is None else self.values[value].type for value in inputs)
        for type in OPERATORS[op].infer(node, types):
            self._value(type)
        self.nodes.append(node)
        return node.outputs

    def __call__(self, op: str, *inputs: int | None, **attrs: Any) -> int:
        """A node of one output; that output."""
        return self.many(op, *inputs, outputs=1, **attrs)[0]

    def dims(self, value: int) -> tuple[int, ...]:
        return self.values[value].type.dims

    def graph(self, *outputs: int) -> Graph:
        """The graph with these outputs, or the last value; verified."""
        chosen = outputs or (len(self.values) - 1,)
        graph = Graph(self.values, tuple(self.nodes), tuple(self.inputs), chosen, self.constants)
        graph.verify()
        return graph.with_nodes(graph.nodes)


def sums_are_exact(graph: Graph) -> bool:
    """Whether no weight has more than 12 significant bits, so that float64 holds their products and sums of many of these exactly."""
    weights = [array for array in graph.constants.values() if array.dtype.kind == "f" and array.size > 1]
    parts = [np.frexp(array[np.isfinite(array)])[0] * 2**12 for array in weights]
    return all((part == np.rint(part)).all() for part in parts)


def feeds(graph: Graph, seed: int, edges: bool = False) -> dict[int, np.ndarray]:
    """Inputs for a graph; with `edges`, floats are drawn from EDGES."""
    rng = np.random.default_rng(seed)
    found = {}
    for value in graph.inputs:
        type = graph.type(value)
        if type.dtype.is_float:
            array = rng.choice(EDGES, type.dims) if edges else rng.normal(size=type.dims) * 3
        else:
            array = rng.integers(0, 2 if type.dtype is DType.BOOL else 50, type.dims)
        with np.errstate(all="ignore"):
            found[value] = np.asarray(array).astype(type.dtype.numpy)
    return found


def assert_same_meaning(
    before: Graph, after: Rewritten, seed: int = 0, exact: bool = False, rtol: float = 1e-9
) -> None:
    """`assert_same_values` for what rewriting made of a graph."""
    assert_same_values(before, after.graph, seed, exact, rtol)


def assert_same_values(before: Graph, graph: Graph, seed: int = 0, exact: bool = False, rtol: float = 1e-9) -> None:
    """Inputs and outputs stay, and every id that is in both graphs has the same value in both.

    `exact` compares bit by bit (any NaN equals any other) on edge values in the declared types; otherwise in float64, relative to the
    largest value of each tensor.
    """
    graph.verify()
    assert (graph.inputs, graph.outputs) == (before.inputs, before.outputs)
    for id in (*before.inputs, *before.outputs):
        assert graph.values[id] == before.values[id]
    common = sorted(graph.values.keys() & before.values.keys())
    assert all(graph.type(id) == before.type(id) for id in common)
    inputs = feeds(before, seed, edges=exact)
    wanted = evaluate_graph(before, inputs, OPERATORS, wide=not exact, keep=common)
    found = evaluate_graph(graph, inputs, OPERATORS, wide=not exact, keep=common)
    for id in common:
        if exact:
            wide = np.dtype(np.float64) if before.type(id).dtype.is_float else before.type(id).dtype.numpy
            one, other = found[id].astype(wide), wanted[id].astype(wide)
            np.testing.assert_array_equal(one, other, err_msg=f"%{id}")
            signs = [np.signbit(array[~np.isnan(array)]) for array in (one, other)]
            np.testing.assert_array_equal(signs[0], signs[1], err_msg=f"sign of %{id}")
        else:
            largest = float(np.max(np.abs(wanted[id]), initial=0.0)) if wanted[id].size else 0.0
            np.testing.assert_allclose(
                found[id], wanted[id], rtol=rtol, atol=rtol * max(largest, 1.0), err_msg=f"%{id}"
            )
