"""A graph as an ONNX model: attributes that are inputs of an operator there become constants again."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from compiler.errors import Refusal, UnsupportedModel
from compiler.ir.graph import Attr, Graph, Node
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.ops.operator import NOT_IN_ONNX

OPSET = 21
OF_SWISH = 24
"""The opset that Swish came with; models of older ones have a product and a Sigmoid in its place."""
IR_VERSION = 10
FLOATS = frozenset({"scales", "roi"})
"""Parameters whose numbers are floats; those of the others are integers."""


def to_onnx(graph: Graph, opset: int = OPSET) -> onnx.ModelProto:
    """The model of a graph, inputs and outputs under their names, in OPSET or OF_SWISH.

    Raises UnsupportedModel for an operator that ONNX has not, and for a value whose type numpy has not.
    """
    names = _names(graph)
    initialisers = [numpy_helper.from_array(np.ascontiguousarray(a), names[v]) for v, a in graph.constants.items()]
    nodes: list[NodeProto] = []
    for at, node in enumerate(graph.nodes):
        made, constants = _written(graph, node, at, names, opset)
        nodes += made
        initialisers += constants
    inputs = [_info(graph, value, names) for value in graph.inputs]
    outputs = [_info(graph, value, names) for value in graph.outputs]
    model = helper.make_model(
        helper.make_graph(nodes, "legalised", inputs, outputs, initialisers),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=IR_VERSION,
        producer_name="tilewright",
    )
    onnx.checker.check_model(model)
    return model


def _names(graph: Graph) -> dict[int, str]:
    """Inputs and outputs keep their names; the others get one of their own."""
    border = {value: graph.values[value].name for value in (*graph.inputs, *graph.outputs)}
    taken = set(border.values())
    found = dict(border)
    for value, one in graph.values.items():
        if value not in found:
            name = one.name or f"v{value}"
            found[value] = name if name not in taken else f"{name}_{value}"
            taken.add(found[value])
    return found


def _info(graph: Graph, value: int, names: dict[int, str]) -> ValueInfoProto:
    type = graph.type(value)
    return helper.make_tensor_value_info(names[value], _element(type.dtype), list(type.dims))


def _element(dtype: DType) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype.numpy))


def _written(
    graph: Graph, node: Node, at: int, names: dict[int, str], opset: int
) -> tuple[list[NodeProto], list[TensorProto]]:
    record = OPERATORS.get(node.op)
    if record is None or record.opsets == NOT_IN_ONNX or node.bodies:
        raise UnsupportedModel(
            f"the legalised model cannot be written: ONNX has no {node.op}",
            fix="give a model without loops, branches and sizes that are only known while running",
            refusals=(Refusal("it is no operator of ONNX", "", node.source, node.op),),
        )
    name = f"{node.source or node.op}_{at}"
    outputs = [names[value] for value in node.outputs]
    inputs = ["" if value is None else names[value] for value in node.inputs]
    if node.op == "Swish" and opset < OF_SWISH:
        return _swish(node, name, inputs[0], outputs[0], graph)
    parameters = dict(record.parameters)
    attributes = {
        key: value for key, value in node.attrs.items() if key not in parameters.values() and value is not None
    }
    constants = []
    for position, key in record.parameters:
        if key in node.attrs and node.attrs[key] is not None:
            inputs += [""] * (position + 1 - len(inputs))
            inputs[position] = f"{outputs[0]}_{key}"
            array = np.array(node.attrs[key], np.float32 if key in FLOATS else np.int64)
            constants.append(numpy_helper.from_array(array, inputs[position]))
    if node.op == "Resize" and len(inputs) > 1:
        inputs[1] = ""
    while inputs and not inputs[-1]:
        inputs.pop()
    if node.op == "Split" and "split" in node.attrs:
        attributes.pop("num_outputs", None)
    known = set(onnx.defs.get_schema(node.op, opset).attributes)
    plain = {key: _plain(value) for key, value in attributes.items() if key in known}
    return [helper.make_node(node.op, inputs, outputs, name=name, **plain)], constants


def _plain(value: Attr) -> Any:
    return list(value) if isinstance(value, tuple) else int(value) if isinstance(value, bool) else value


def _swish(node: Node, name: str, x: str, y: str, graph: Graph) -> tuple[list[NodeProto], list[TensorProto]]:
    """x * sigmoid(alpha x)."""
    alpha = node.attrs.get("alpha", 1.0)
    nodes, constants = [], []
    inner = x
    if alpha != 1.0:
        dtype = graph.type(node.outputs[0]).dtype.numpy
        constants.append(numpy_helper.from_array(np.asarray(alpha, dtype), f"{y}_alpha"))
        nodes.append(helper.make_node("Mul", [x, f"{y}_alpha"], [f"{y}_scaled"], name=f"{name}_scale"))
        inner = f"{y}_scaled"
    nodes.append(helper.make_node("Sigmoid", [inner], [f"{y}_gate"], name=f"{name}_gate"))
    nodes.append(helper.make_node("Mul", [x, f"{y}_gate"], [y], name=name))
    return nodes, constants
