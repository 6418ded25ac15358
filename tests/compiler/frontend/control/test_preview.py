from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph

FLOAT = onnx.TensorProto.FLOAT
KINDS = {np.float32: FLOAT, np.float16: onnx.TensorProto.FLOAT16, np.float64: onnx.TensorProto.DOUBLE}


def body(name: str, nodes: Sequence[onnx.NodeProto], *constants: onnx.TensorProto, kind: int = FLOAT) -> Any:
    ends = [helper.make_tensor_value_info(f"{name} {end}", kind, [None] * 4) for end in ("in", "out")]
    return helper.make_graph(nodes, name, ends[:1], ends[1:], list(constants))


def model_of(q: Sequence[int], k: Sequence[int], v: Sequence[int], dtype: Any = np.float32, **attrs: Any) -> Any:
    """The node, with a tensor `bias` in scope for its bodies."""
    infos = [
        helper.make_tensor_value_info(name, KINDS[dtype], shape) for name, shape in zip("QKV", (q, k, v), strict=True)
    ]
    node = helper.make_node("FlexAttention", ["Q", "K", "V"], ["Y"], "flex", domain="ai.onnx.preview", **attrs)
    bias = onnx.numpy_helper.from_array(np.linspace(-1, 1, k[2]).astype(np.float32), "bias")
    y = helper.make_tensor_value_info("Y", KINDS[dtype], None)
    opsets = [helper.make_opsetid("", 26), helper.make_opsetid("ai.onnx.preview", 1)]
    return helper.make_model(helper.make_graph([node], "g", infos, [y], [bias]), opset_imports=opsets, ir_version=11)


def agree(model: Any, seed: int, rtol: float = 1e-5) -> None:
    random = np.random.default_rng(seed)
    graph = load(model.SerializeToString(), CompileOptions(), OPERATORS).graph
    feeds = {
        graph.values[id].name: random.standard_normal(graph.type(id).dims).astype(graph.type(id).dtype.numpy)
        for id in graph.inputs
    }
    results: Any = ReferenceEvaluator(model).run(None, feeds)
    (theirs,) = results
    values = evaluate_graph(graph, {id: feeds[graph.values[id].name] for id in graph.inputs}, OPERATORS)
    ours = values[graph.outputs[0]].astype(graph.type(graph.outputs[0]).dtype.numpy)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_heads_of_queries_share_those_of_keys(heads: int) -> None:
    agree(model_of((2, 4, 3, 8), (2, heads, 5, 8), (2, heads, 5, 6)), seed=heads)


def test_precision_and_scale_are_the_nodes_own() -> None:
    agree(model_of((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8), np.float16, scale=0.5), seed=5, rtol=2e-3)
    double = onnx.TensorProto.DOUBLE
    agree(model_of((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8), np.float64, softmax_precision=double), seed=6)


def test_bodies_change_scores_and_probabilities() -> None:
    tanh = [helper.make_node("Tanh", ["score in"], ["capped"]), helper.make_node("Neg", ["capped"], ["score out"])]
    half = onnx.numpy_helper.from_array(np.array(0.5, np.float32), "half")
    scaled = [helper.make_node("Mul", ["prob in", "half"], ["prob out"])]
    shapes = (1, 2, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4)
    agree(model_of(*shapes, score_mod=body("score", tanh), prob_mod=body("prob", scaled, half)), seed=7)


def test_a_body_reads_what_is_defined_outside_of_it() -> None:
    model = model_of((1, 1, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4), score_mod=body("score", [
        helper.make_node("Add", ["score in", "bias"], ["score out"])
    ]))  # fmt: skip
    graph = load(model.SerializeToString(), CompileOptions(), OPERATORS).graph
    zeros = {id: np.zeros(graph.type(id).dims, np.float32) for id in graph.inputs}
    rows = np.arange(20, dtype=np.float32).reshape(1, 1, 5, 4)
    bias = np.exp(np.linspace(-1, 1, 5))
    found = evaluate_graph(graph, {**zeros, graph.inputs[2]: rows}, OPERATORS)[graph.outputs[0]]
    np.testing.assert_allclose(found[0, 0, 0], (bias / bias.sum()) @ rows[0, 0], rtol=1e-6)


def test_what_does_not_fit_is_refused() -> None:
    reshaping = body("score", [helper.make_node("ReduceSum", ["score in"], ["score out"])])
    shapes = (1, 2, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4)
    for model, said in (
        (model_of(*shapes, score_mod=reshaping), "its score_mod gives"),
        (model_of((1, 3, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)), "no multiple"),
        (model_of((1, 2, 3, 4), (1, 2, 5, 5), (1, 2, 5, 4)), "do not fit"),
        (model_of(*shapes, softmax_precision=7), "softmax_precision"),
    ):
        with pytest.raises(UnsupportedModel) as caught:
            load(model.SerializeToString(), CompileOptions(), OPERATORS)
        (refusal,) = caught.value.refusals
        assert said in refusal.reason
        assert refusal.node.startswith("flex")
