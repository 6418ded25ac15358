"""A model of one node: loaded and evaluated by our records, and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from compiler.contract import CompileOptions
from compiler.errors import Refusal, UnsupportedModel
from compiler.frontend import load
from compiler.ir.graph import Graph
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph

Arrays = Sequence[np.ndarray | None]


def model_of(
    op: str,
    arrays: Arrays,
    attrs: Mapping[str, Any] | None = None,
    outputs: int = 1,
    domain: str = "",
    opset: int = 21,
    constants: Sequence[int] = (),
) -> bytes:
    """The node over inputs x0, x1, ..., those in `constants` as initializers."""
    names = ["" if array is None else f"x{position}" for position, array in enumerate(arrays)]
    results = [f"y{position}" for position in range(outputs)]
    node = helper.make_node(op, names, results, name="the node", domain=domain, **(attrs or {}))
    given = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    fixed = {f"x{position}" for position in constants}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
        if name not in fixed
    ]
    weights = [onnx.numpy_helper.from_array(given[name], name) for name in sorted(fixed)]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in results], weights)
    version = {"ai.onnx.ml": 3}.get(domain, 1)
    own = [helper.make_opsetid(domain, version)] if domain else []
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *own], ir_version=8)
    data: bytes = model.SerializeToString()
    return data


def graph_of(model: bytes) -> Graph:
    return load(model, CompileOptions(), OPERATORS).graph


def computed(op: str, arrays: Arrays, *rest: Any, **named: Any) -> list[np.ndarray]:
    """The outputs by our references, in their declared element types; the arguments are those of `model_of`."""
    graph = graph_of(model_of(op, arrays, *rest, **named))
    feeds = {id: arrays[int(graph.values[id].name[1:])] for id in graph.inputs}
    values = evaluate_graph(graph, {id: array for id, array in feeds.items() if array is not None}, OPERATORS)
    return [values[id].astype(graph.type(id).dtype.numpy) for id in graph.outputs]


def by_onnxruntime(op: str, arrays: Arrays, *rest: Any, **named: Any) -> list[np.ndarray]:
    """What ONNX Runtime computes for the same model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model_of(op, arrays, *rest, **named), options, ["CPUExecutionProvider"])
    feeds = {info.name: arrays[int(info.name[1:])] for info in session.get_inputs()}
    return [np.asarray(result) for result in session.run(None, feeds)]


def agree(op: str, arrays: Arrays, *rest: Any, **named: Any) -> list[np.ndarray]:
    """Demands that ours and ONNX Runtime's outputs are the same, but for rounding, and returns them."""
    found = computed(op, arrays, *rest, **named)
    for ours, theirs in zip(found, by_onnxruntime(op, arrays, *rest, **named), strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    return found


def refusal(op: str, arrays: Arrays, *rest: Any, **named: Any) -> Refusal:
    """The one refusal of the model."""
    with pytest.raises(UnsupportedModel) as caught:
        graph_of(model_of(op, arrays, *rest, **named))
    (found,) = caught.value.refusals
    assert found.node == "the node"
    assert found.fix
    return found
