"""Which maps follow a sum."""

from __future__ import annotations

import pytest

from compiler.fuse import fuse
from compiler.ir.graph import Node
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS, having
from compiler.ops.traits import Trait
from compiler.rewrite import rewrite
from compiler.rewrite.maps import FOLLOWING, MAPS, SUMS, alone, distance
from compiler.rewrite.measure import ALONE, measure, weight
from compiler.rewrite.program import Program
from compiler.rewrite.view import Rewrite
from tests.compiler.rewrite.random_graphs import random_graph
from tests.compiler.rewrite.sketch import Sketch


def how_far(s: Sketch) -> int | None:
    """From the last value of a sketch to the sum above it."""
    view = Program(s.graph())
    return distance(max(view.made_by), view.producer, view.type)


def test_every_map_and_sum_is_an_operator_and_none_is_both() -> None:
    assert set(OPERATORS) >= MAPS | SUMS
    assert not MAPS & SUMS


def _sum(s: Sketch, op: str) -> int:
    """A node of an operator that sums, and what brings its result to float32."""
    x, w = (1, 4, 6, 6), ((4, 8, 3, 3) if op.startswith("ConvTranspose") else (8, 4, 3, 3))
    shapes = (x, w) if op in having(Trait.WINDOW) else ((4, 8), (8, 6))
    if op in having(Trait.QUANTISED):
        a, b = (s.x(*shape, dtype=DType.U8) for shape in shapes)
        scale, zero = s.c(0.5), s.c(3, DType.U8)
        scales = (a, scale, zero, b, scale, zero, scale, zero)
        return s("Cast", s(op, *(scales if op.startswith("QLinear") else (a, b))), to=1)
    if op in having(Trait.CONTRACTION):
        return s(op, *(s.x(*shape) for shape in shapes), **({"equation": "ij,jk->ik"} if op == "Einsum" else {}))
    if op in having(Trait.POOL):
        return s(op, s.x(*x), **({"kernel_shape": (2, 2)} if op in having(Trait.WINDOW) else {}))
    return s(op, s.x(4, 8), None, axes=(1,)) if op in having(Trait.REDUCTION) else s(op, s.x(4, 8), s.x(8))


@pytest.mark.parametrize("op", sorted(SUMS | having(Trait.CONTRACTION) | having(Trait.POOL) | having(Trait.REDUCTION)))
def test_one_kernel_computes_a_sum_and_the_map_behind_it(op: str) -> None:
    s = Sketch(dtype=DType.F32)
    s("Tanh", _sum(s, op))
    assert how_far(s) == 1 + (op in having(Trait.QUANTISED))
    assert len(fuse(s.graph()).kernels.calls) == 1


def test_maps_are_counted_from_the_nearest_sum() -> None:
    s = Sketch()
    x = s("MatMul", s.x(2, 3), s.normal(3, 3))
    assert how_far(s) == 0
    y = s("Relu", s("Add", x, s.normal(3)))
    assert how_far(s) == 2
    s("Mul", y, s("Neg", x))
    assert how_far(s) == 2


def test_a_view_ends_the_maps_that_follow() -> None:
    s = Sketch()
    s("Relu", s("Transpose", s("MatMul", s.x(2, 3), s.normal(3, 3)), perm=(1, 0)))
    assert how_far(s) is None


def test_what_is_broadcast_is_not_followed() -> None:
    s = Sketch()
    gate = s("ReduceMean", s.x(2, 3), None, axes=(1,))
    s("Mul", s.x(2, 3), gate)
    assert how_far(s) is None


@pytest.mark.parametrize("maps", [FOLLOWING, FOLLOWING + 1])
def test_a_kernel_runs_so_many_maps_and_no_more(maps: int) -> None:
    s = Sketch()
    x = s("MatMul", s.x(2, 3), s.normal(3, 3))
    for _ in range(maps):
        x = s("Neg", x)
    assert how_far(s) == (maps if maps == FOLLOWING else None)


def test_the_measure_of_the_whole_graph_falls_with_every_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `Program.falls` compares around one node is the measure of the graph before and after."""
    apply, applied = Program.apply, 0

    def checked(self: Program, root: Node, found: Rewrite) -> list[Node]:
        nonlocal applied
        before = measure(self.graph())
        changed = apply(self, root, found)
        assert measure(self.graph()) <= before, root
        applied += 1
        return changed

    monkeypatch.setattr(Program, "apply", checked)
    for seed in range(60):
        rewrite(random_graph(Sketch(seed), 20))
    assert applied > 100


def test_a_map_that_follows_no_sum_weighs_more() -> None:
    s = Sketch()
    graph = s.graph(s("Relu", s("MatMul", s("Relu", s.x(2, 3)), s.normal(3, 3))))
    program = Program(graph)
    alone_ones = [node for node in graph.nodes if alone(node, program.producer, program.type)]
    assert [node.outputs for node in alone_ones] == [graph.nodes[0].outputs]
    assert measure(graph) == weight(graph.nodes, graph.type, graph.constants.get) + ALONE
