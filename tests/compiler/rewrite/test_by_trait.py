"""Rules that go by traits apply to every operator that has them, and keep what it means."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.ir.tensor import DType
from compiler.ops import having
from compiler.ops.traits import Trait
from compiler.rewrite import Rewritten, rewrite
from tests.compiler.rewrite.sketch import Sketch, assert_same_meaning

LOGICAL_OPERANDS = {"Not": DType.BOOL, "BitwiseNot": DType.I32}


def applied(after: Rewritten) -> set[str]:
    return {application.rule for application in after.log}


@pytest.mark.parametrize("op", sorted(having(Trait.STEPWISE)))
def test_reductions_of_reductions_become_one(op: str) -> None:
    s = Sketch()
    graph = s.graph(s(op, s(op, s.x(2, 3, 4), None, axes=(2,)), None, axes=(0,)))
    after = rewrite(graph)
    assert "reduction_of_reduction" in applied(after)
    assert [node.op for node in after.graph.nodes] == [op]
    assert_same_meaning(graph, after)


@pytest.mark.parametrize("op", sorted(having(Trait.REDUCTION)))
def test_what_is_reduced_is_not_transposed_before(op: str) -> None:
    s = Sketch()
    x = s("Exp", s.x(2, 3, 4))  # a logarithm is taken of what is above 0
    graph = s.graph(s(op, s("Transpose", x, perm=(2, 0, 1)), None, axes=(0,), keepdims=0))
    after = rewrite(graph)
    assert "reduction_of_transpose" in applied(after)
    assert [node.op for node in after.graph.nodes] == ["Exp", op]
    assert_same_meaning(graph, after)


@pytest.mark.parametrize("op", sorted(having(Trait.UNARY) - having(Trait.VIEW)))
def test_a_map_of_all_parts_is_done_before_they_are_split(op: str) -> None:
    s = Sketch(dtype=LOGICAL_OPERANDS.get(op, DType.F64))
    attrs = {"Cast": {"to": 1}, "BitCast": {"to": 7}}.get(op, {})
    bounds = (s.c(-1), s.c(1)) if op == "Clip" else ()
    parts = s.many("Split", s.x(4, 6), None, outputs=2, axis=1, split=(2, 4))
    graph = s.graph(*(s(op, part, *bounds, **attrs) for part in parts))
    after = rewrite(graph)
    assert "map_of_split" in applied(after)
    assert_same_meaning(graph, after, exact=True)


MOVED: dict[str, Callable[[Sketch, int], int]] = {
    "Compress": lambda s, x: s("Compress", x, None, axis=1, condition=(1, 0, 1, 1)),
    "Concat": lambda s, x: s("Concat", x, x, axis=0),
    "DepthToSpace": lambda s, x: s("DepthToSpace", x, blocksize=2),
    "Toeplitz": lambda s, x: s("Toeplitz", s("Slice", x, starts=(0,), ends=(5,), axes=(3,), steps=(1,))),
    "Expand": lambda s, x: s("Expand", x, None, shape=(3, 4, 4, 6)),
    "Flatten": lambda s, x: s("Flatten", x, axis=2),
    "Gather": lambda s, x: s("Gather", x, s.c([2, 0], DType.I64), axis=1),
    "GatherElements": lambda s, x: s("GatherElements", x, s.c(np.zeros((1, 4, 4, 6)), DType.I64), axis=2),
    "GatherND": lambda s, x: s("GatherND", x, s.c([[0, 3], [0, 1]], DType.I64)),
    "Reshape": lambda s, x: s("Reshape", x, None, shape=(2, 48)),
    "ReverseSequence": lambda s, x: s("ReverseSequence", x, s.c([3], DType.I64), batch_axis=0, time_axis=1),
    "Slice": lambda s, x: s("Slice", x, None, None, None, None, starts=(1,), ends=(3,), axes=(2,), steps=(1,)),
    "SpaceToDepth": lambda s, x: s("SpaceToDepth", x, blocksize=2),
    "Squeeze": lambda s, x: s("Squeeze", x, None, axes=(0,)),
    "Tile": lambda s, x: s("Tile", x, None, repeats=(1, 2, 1, 1)),
    "Transpose": lambda s, x: s("Transpose", x, perm=(0, 2, 3, 1)),
    "Unsqueeze": lambda s, x: s("Unsqueeze", x, None, axes=(0,)),
}
"""A node of each moving operator, on an image of four channels."""
NO_RESULT_OF_ITS_OWN = {"Identity", "Split"}
"""One vanishes, the other has several results."""


@pytest.mark.parametrize("op", sorted(having(Trait.MOVES) - NO_RESULT_OF_ITS_OWN))
def test_what_moves_dequantised_elements_moves_their_bytes(op: str) -> None:
    s = Sketch(dtype=DType.F32)
    scales = (s.c(0.25), s.c(3, DType.U8))
    x = s("DequantizeLinear", s.x(1, 4, 4, 6, dtype=DType.U8), *scales)
    graph = s.graph(s("QuantizeLinear", MOVED[op](s, x), *scales))
    after = rewrite(graph)
    assert "bytes_between" in applied(after)
    assert not {node.op for node in after.graph.nodes} & {"QuantizeLinear", "DequantizeLinear"}
    assert_same_meaning(graph, after, exact=True)
