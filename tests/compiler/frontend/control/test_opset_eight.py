from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph

FLOAT = onnx.TensorProto.FLOAT


def scan_model(lengths: str = "", batch: int = 3, **attrs: Any) -> bytes:
    """Running sums over [batch, 4, 2], from a state [batch, 2]; results the last sum, and all of them."""
    state, source, total, row = (helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("s", "x", "t", "r"))
    nodes = [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Identity", ["t"], ["r"])]
    body = helper.make_graph(nodes, "body", [state, source], [total, row])
    node = helper.make_node(
        "Scan", [lengths, "first", "all"], ["last", "sums"], "scan", body=body, num_scan_inputs=1, **attrs
    )
    inputs = [
        helper.make_tensor_value_info("first", FLOAT, [batch, 2]),
        helper.make_tensor_value_info("all", FLOAT, [batch, 4, 2]),
        *([helper.make_tensor_value_info(lengths, onnx.TensorProto.INT64, [batch])] if lengths else []),
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("last", "sums")]
    graph = helper.make_graph([node], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data


@pytest.mark.parametrize("backwards", [False, True])
def test_scan_of_opset_8_goes_through_each_element_of_the_batch(backwards: bool) -> None:
    random = np.random.default_rng(3)
    first, rows = (random.standard_normal(shape).astype(np.float32) for shape in ((3, 2), (3, 4, 2)))
    attrs: dict[str, Any] = {"directions": [1]} if backwards else {}
    graph = load(scan_model(**attrs), CompileOptions(), OPERATORS).graph
    values = evaluate_graph(graph, dict(zip(graph.inputs, (first, rows), strict=True)), OPERATORS)
    sums = first[:, None] + np.cumsum(rows[:, ::-1] if backwards else rows, axis=1)
    last, all_ = (values[id] for id in graph.outputs)
    np.testing.assert_allclose(last, sums[:, -1], rtol=1e-6)
    np.testing.assert_allclose(all_, sums, rtol=1e-6)


@pytest.mark.parametrize(("model", "said"), [(scan_model("n"), "lengths of their own"), (scan_model(batch=0), "batch")])
def test_what_opset_8_leaves_open_is_refused(model: bytes, said: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        load(model, CompileOptions(), OPERATORS)
    assert said in caught.value.refusals[0].reason


def old_model(opset: int, op: str, *shapes: tuple[int, ...], **attrs: Any) -> bytes:
    inputs = [helper.make_tensor_value_info(f"x{at}", FLOAT, shape) for at, shape in enumerate(shapes)]
    node = helper.make_node(op, [one.name for one in inputs], ["y"], "old", **attrs)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)
    data: bytes = model.SerializeToString()
    return data


@pytest.mark.parametrize("opset", [1, 4, 5])
def test_operators_of_the_first_opsets_that_did_not_change_are_those_of_opset_6(opset: int) -> None:
    for model, meant in (
        (
            old_model(opset, "Elu", (2, 3), alpha=0.5, consumed_inputs=[0]),
            lambda x: np.where(x > 0, x, np.expm1(x) / 2),
        ),
        (old_model(opset, "Neg", (2, 3)), np.negative),
    ):
        graph = load(model, CompileOptions(), OPERATORS).graph
        x = np.random.default_rng(opset).standard_normal((2, 3)).astype(np.float32)
        found = evaluate_graph(graph, {graph.inputs[0]: x}, OPERATORS)[graph.outputs[0]]
        np.testing.assert_allclose(found, meant(x), rtol=1e-6)


@pytest.mark.parametrize(
    "model",
    [old_model(1, "Reshape", (2, 3), shape=[3, 2]), old_model(1, "Cast", (2,), to="INT64"), old_model(1, "Pad", (2,))],
)
def test_operators_that_changed_before_opset_6_are_refused(model: bytes) -> None:
    with pytest.raises(UnsupportedModel):
        load(model, CompileOptions(), OPERATORS)
