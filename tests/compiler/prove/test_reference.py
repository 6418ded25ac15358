from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from compiler.errors import InputsError, InternalError
from compiler.ir.graph import Node
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.ops.operator import Arrays, Operator
from compiler.prove.reference import evaluate_graph, is_widened_late
from tests.parse import parse_graph

GRAPH = """graph(%0: f32[1, 2, 5, 6], %1: f32[4, 2, 3, 3], %2: f32[4], %3: f32[30, 7]) -> (%7, %8)
  %4: f32[1, 4, 5, 6] = Conv(%0, %1, %2) auto_pad="NOTSET" dilations=(1, 1) group=1 kernel_shape=(3, 3) pads=(1, 1, 1, \
1) strides=(1, 1) from "conv"
  %5: f32[1, 4, 5, 6] = Relu(%4) from "relu"
  %6: f32[4, 30] = Reshape(%5) shape=(4, 30) allowzero=0 from "flat"
  %7: f32[4, 7] = MatMul(%6, %3) from "dense"
  %8: f32[4, 7] = Softmax(%7) axis=1 from "soft"
"""
MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (double[1, 2, 5, 6] x, double[4, 2, 3, 3] w, double[4] b, double[30, 7] d) => (double[4, 7] y, double[4, 7] z)
<int64[2] shape = {4, 30}> {
  c = Conv<pads = [1, 1, 1, 1]>(x, w, b)
  r = Relu(c)
  f = Reshape(r, shape)
  y = MatMul(f, d)
  z = Softmax<axis = 1>(y)
}"""


def arrays() -> dict[int, np.ndarray]:
    random = np.random.default_rng(3)
    shapes = ((1, 2, 5, 6), (4, 2, 3, 3), (4,), (30, 7))
    return {at: random.standard_normal(shape).astype(np.float32) for at, shape in enumerate(shapes)}


def by_onnx(inputs: Mapping[int, np.ndarray]) -> list[np.ndarray]:
    """What the ONNX reference evaluator makes of the same model in double precision."""
    feeds = {name: inputs[at].astype(np.float64) for at, name in enumerate("xwbd")}
    return list(ReferenceEvaluator(onnx.parser.parse_model(MODEL)).run(None, feeds))


def test_a_graph_means_what_the_onnx_reference_evaluator_says() -> None:
    graph = parse_graph(GRAPH)
    graph.verify()
    found = evaluate_graph(graph, arrays(), OPERATORS)
    assert found.keys() == {7, 8}
    for value, expected in zip((7, 8), by_onnx(arrays()), strict=True):
        assert found[value].dtype == np.float64
        np.testing.assert_allclose(found[value], expected, rtol=1e-12, atol=1e-12)


def test_a_narrow_evaluation_has_the_declared_types_and_rounds() -> None:
    graph = parse_graph(GRAPH)
    narrow = evaluate_graph(graph, arrays(), OPERATORS, wide=False)
    wide = evaluate_graph(graph, arrays(), OPERATORS)
    assert narrow[7].dtype == np.float32
    assert 0 < np.abs(narrow[7] - wide[7]).max() < 1e-4


def test_values_asked_for_are_kept_with_the_outputs() -> None:
    found = evaluate_graph(parse_graph(GRAPH), arrays(), OPERATORS, keep=(5, 0))
    assert found.keys() == {0, 5, 7, 8}
    assert found[5].min() == 0


def test_a_value_is_dropped_after_its_last_reader() -> None:
    graph = parse_graph(
        """graph(%0: f32[3]) -> (%3)
      %1: f32[3] = Neg(%0)
      %2: f32[3] = Neg(%1)
      %3: f32[3] = Neg(%2)"""
    )
    alive: list[int] = []
    made: list[weakref.ref[np.ndarray]] = []

    def negate(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        alive.append(sum(earlier() is not None for earlier in made))
        assert arrays[0] is not None
        result = np.negative(arrays[0])
        made.append(weakref.ref(result))
        return (result,)

    evaluate_graph(graph, {0: np.ones(3, np.float32)}, {"Neg": replace(OPERATORS["Neg"], reference=negate)})
    assert alive == [0, 1, 1]  # only the operand of the node that runs is still held


def test_a_cast_to_a_float_type_stays_wide_and_one_to_an_integer_truncates() -> None:
    graph = parse_graph(
        """graph(%0: f32[2]) -> (%2, %3)
      %1: f16[2] = Cast(%0) to=10
      %2: f32[2] = Cast(%1) to=1
      %3: i32[2] = Cast(%0) to=6"""
    )
    x = np.array([1.0001, -2.7], np.float32)
    wide = evaluate_graph(graph, {0: x}, OPERATORS)
    assert np.array_equal(wide[2], x.astype(np.float64))
    assert wide[3].dtype == np.int32
    assert wide[3].tolist() == [1, -2]
    narrow = evaluate_graph(graph, {0: x}, OPERATORS, wide=False)
    assert np.array_equal(narrow[2], x.astype(np.float16).astype(np.float32))


def test_constants_absent_inputs_and_an_input_that_is_an_output() -> None:
    graph = parse_graph(
        """graph(%0: f32[3]) -> (%0, %3)
      %1: f32[] = const {0.5}
      %3: f32[3] = Clip(%0, _, %1)"""
    )
    found = evaluate_graph(graph, {0: np.array([0, 1, -4], np.float32)}, OPERATORS)
    assert found[3].tolist() == [0, 0.5, -4]
    assert found[0].tolist() == [0, 1, -4]


def broken(result: np.ndarray | Exception) -> Mapping[str, Operator]:
    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        if isinstance(result, Exception):
            raise result
        return (result,)

    return {"Neg": replace(OPERATORS["Neg"], reference=reference)}


@pytest.mark.parametrize(
    ("operators", "says"),
    [
        ({}, "node 'n1' has operator Neg, of which there is no record"),
        (broken(ZeroDivisionError("boom")), "the reference of Neg failed at node 'n1': ZeroDivisionError: boom"),
        (broken(np.zeros(2)), r"the reference of Neg gave shape \[2\] at node 'n1', declared f32\[3\]"),
    ],
)
def test_a_fault_of_the_oracle_names_the_node(operators: Mapping[str, Operator], says: str) -> None:
    graph = parse_graph('graph(%0: f32[3]) -> (%1)\n  %1: f32[3] = Neg(%0) from "n1"')
    with pytest.raises(InternalError, match=says):
        evaluate_graph(graph, {0: np.ones(3, np.float32)}, operators)


@pytest.mark.parametrize(("mantissa", "dtype"), [(11, DType.F16), (8, DType.BF16)])
def test_values_are_rounded_to_a_mantissa_as_the_short_floats_round(mantissa: int, dtype: DType) -> None:
    """Except for their range: 1e6 stays."""
    graph = parse_graph('graph(%0: f32[600]) -> (%1)\n  %1: f32[600] "y" = Identity(%0) from "same"\n')
    x = np.random.default_rng(0).standard_normal(600).astype(np.float32)
    x[:3] = 0.0, -0.0, np.inf
    (rounded,) = evaluate_graph(graph, {0: x}, OPERATORS, wide=False, mantissa=mantissa).values()
    np.testing.assert_array_equal(rounded, x.astype(dtype.numpy).astype(np.float32))
    (large,) = evaluate_graph(graph, {0: np.full(600, 1e6, np.float32)}, OPERATORS, mantissa=mantissa).values()
    assert abs(large[0] / 1e6 - 1) < 2.0**-mantissa


def test_inputs_that_lead_outside_are_at_fault_and_the_node_is_named() -> None:
    text = 'graph(%0: i64[1], %1: f32[3, 2]) -> (%2)\n%2: f32[1, 2] = Gather(%1, %0) axis=0 from "rows"'
    graph = parse_graph(text)
    given = {0: np.array([3]), 1: np.ones((3, 2), np.float32)}
    with pytest.raises(InputsError, match=r"lead node 'rows' \(Gather\) to a position that is not there") as caught:
        evaluate_graph(graph, given, OPERATORS)
    assert "samples" in caught.value.fix
    assert evaluate_graph(graph, {**given, 0: np.array([-3])}, OPERATORS)[2].tolist() == [[1, 1]]


def test_who_watches_is_told_of_every_node_and_of_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.ops.pieces.PIECE_ELEMENTS", 2 * (18 + 4) * 6)
    heard: list[tuple[int, float]] = []
    evaluate_graph(parse_graph(GRAPH), arrays(), OPERATORS, watch=lambda at, part: heard.append((at, part)))
    assert [at for at, _ in heard] == sorted(at for at, _ in heard)
    assert [part for at, part in heard if at == 0] == pytest.approx([0.4, 0.8, 1.0, 1.0])
    assert [(at, part) for at, part in heard if at] == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0)]


class Stop(Exception):
    pass


def test_what_a_watch_raises_between_pieces_ends_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.ops.pieces.PIECE_ELEMENTS", 1)

    def stop(position: int, part: float) -> None:
        assert part < 1
        raise Stop

    with pytest.raises(Stop):
        evaluate_graph(parse_graph(GRAPH), arrays(), OPERATORS, watch=stop)


WIDENED = """graph(%0: i64[2], %1: f32[4096, 1200], %2: f32[1200, 4096]) -> (%4)
  %3: f32[2, 1200] = Gather(%1, %0) axis=0 from "rows"
  %4: f32[2, 4096] = MatMul(%3, %2) from "product"
"""


def test_large_constants_are_not_widened_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.ops.pieces.PIECE_ELEMENTS", 2**18)
    graph, random = parse_graph(WIDENED), np.random.default_rng(7)
    constants = {at: random.standard_normal(graph.type(at).dims, np.float32) for at in (1, 2)}
    inputs = {0: np.array([5, 4095])}
    graph = replace(graph, inputs=(0,), constants=constants)
    assert all(is_widened_late(graph, node, node.used[at]) for node, at in zip(graph.nodes, (0, 1), strict=True))
    assert not is_widened_late(graph, graph.nodes[1], 3)
    tracemalloc.start()
    try:
        found = evaluate_graph(graph, inputs, OPERATORS)[4]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(found, constants[1][inputs[0]].astype(np.float64) @ constants[2], rtol=1e-12, atol=1e-12)
    assert found.dtype == np.float64
    assert peak < 4 * 2**18 * found.itemsize < constants[2].nbytes
