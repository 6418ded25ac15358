"""What the left sides of several subjects are drawn with."""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.graph import Graph
from tests.compiler.rewrite.sketch import Sketch

Drawing = Callable[[Sketch], Graph]
"""A program drawn at random."""

Refusal = tuple[Drawing, str]
"""A program at which a rule must do nothing, and what its reason says; empty where the left side is not there."""


def shape(s: Sketch, low: int = 1, high: int = 3, rank: int | None = None) -> tuple[int, ...]:
    return tuple(int(n) for n in s.rng.integers(low, high + 1, rank or int(s.rng.integers(1, 4))))


def conv(
    s: Sketch, x: int, bias: bool | None = None, op: str = "Conv", groups: int | None = None, **attrs: object
) -> int:
    channels = s.dims(x)[1]
    groups = groups or (2 if channels % 2 == 0 and s.rng.integers(2) else 1)
    kernel = tuple(int(k) for k in s.rng.integers(1, 4, len(s.dims(x)) - 2))
    filters = 2 * groups
    shape = (filters, channels // groups, *kernel) if op == "Conv" else (channels, filters // groups, *kernel)
    b = s.normal(filters) if (s.rng.integers(2) if bias is None else bias) else None
    inputs = (x, s.normal(*shape)) if b is None else (x, s.normal(*shape), b)
    pads = tuple(int(p) for p in s.rng.integers(0, 2, 2 * len(kernel)))
    return s(op, *inputs, group=groups, **{"pads": pads, **attrs})


def plus(s: Sketch, a: int, b: int) -> int:
    return s("Add", a, b) if s.rng.integers(2) else s("Add", b, a)


def inner_output(graph: Graph, steps: int) -> Graph:
    """The same program, of which the value `steps` nodes before the last is a graph output as well."""
    return Graph(
        graph.values, graph.nodes, graph.inputs, (*graph.outputs, graph.nodes[-1 - steps].outputs[0]), graph.constants
    )
