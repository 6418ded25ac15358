from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.errors import VerifyError
from compiler.ir.graph import Graph, Node
from tests.parse import parse_graph

TEXT = """
graph(%0: f32[2, 3] "data") -> (%3)
  %1: f32[3] "scale" = const {1.0, 2.0, 3.0}
  %2: f32[2, 3] = Mul(%0, %1) from "m"
  %3: f32[2, 3] "out" = Relu(%2)
"""


def graph() -> Graph:
    return parse_graph(TEXT)


def test_a_sound_graph_passes() -> None:
    graph().verify()


def test_producers_and_readers_are_found() -> None:
    g = graph()
    assert g.producer == {2: g.nodes[0], 3: g.nodes[1]}
    assert g.readers == {0: (g.nodes[0],), 1: (g.nodes[0],), 2: (g.nodes[1],), 3: ()}
    assert g.next_id == 4
    assert replace(g, values={}).next_id == 0


def test_a_value_read_twice_by_one_node_has_two_readings() -> None:
    g = parse_graph("graph(%0: f32[2]) -> (%1) %1: f32[2] = Add(%0, %0)")
    assert g.readers[0] == (g.nodes[0], g.nodes[0])


def test_values_nothing_mentions_are_dropped_with_their_constants() -> None:
    g = graph()
    smaller = g.with_nodes((replace(g.nodes[1], inputs=(0,)),))
    assert set(smaller.values) == {0, 3}
    assert smaller.constants == {}
    smaller.verify()


def test_an_absent_optional_input_is_not_read() -> None:
    node = Node("Clip", (0, None, 2), (3,))
    assert node.used == (0, 2)
    assert str(node) == "%3 = Clip(%0, _, %2)"


def test_reading_before_defining_is_refused_and_shown() -> None:
    g = graph()
    with pytest.raises(VerifyError) as refusal:
        replace(g, nodes=(g.nodes[1], g.nodes[0])).verify()
    assert str(refusal.value).splitlines() == [
        "node 0 `%3 = Relu(%2)` reads %2 before it is defined",
        "  > %3 = Relu(%2)",
        "    %2 = Mul(%0, %1)",
    ]


def test_defining_twice_is_refused() -> None:
    g = graph()
    with pytest.raises(VerifyError, match=r"node 2 .* defines %3 a second time"):
        replace(g, nodes=(*g.nodes, g.nodes[1])).verify()
    with pytest.raises(VerifyError, match="defines %0 a second time"):
        replace(g, nodes=(*g.nodes, replace(g.nodes[1], outputs=(0,)))).verify()


def test_a_value_without_a_type_is_refused() -> None:
    g = graph()
    with pytest.raises(VerifyError, match="defines %7, which has no type"):
        replace(g, nodes=(*g.nodes, replace(g.nodes[1], outputs=(7,)))).verify()
    with pytest.raises(VerifyError, match="graph input %7 has no type"):
        replace(g, inputs=(0, 7)).verify()


def test_an_output_that_is_never_defined_is_refused() -> None:
    with pytest.raises(VerifyError, match="graph output %9 is never defined"):
        replace(graph(), outputs=(3, 9)).verify()


def test_a_constant_that_is_not_what_it_is_declared_is_refused() -> None:
    with pytest.raises(VerifyError, match=r"constant %1 has shape \[2\] but is declared %1: f32\[3\]"):
        replace(graph(), constants={1: np.zeros(2, np.float32)}).verify()
    with pytest.raises(VerifyError, match="constant %1 has dtype float64 but is declared"):
        replace(graph(), constants={1: np.zeros(3)}).verify()
    with pytest.raises(VerifyError, match=r"constant %8 has shape .* but is declared None"):
        replace(graph(), constants={8: np.zeros(3)}).verify()
