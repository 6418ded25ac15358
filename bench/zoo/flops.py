"""Arithmetic of a model: two operations for each multiply-accumulate of its convolutions, products and recurrences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import onnx

from compiler.ops import OPERATORS, having
from compiler.ops.traits import Trait

Shapes = Mapping[str, tuple[int, ...]]


class Uncountable(ValueError):
    """A node's work cannot be told: its operator is not known here, or a shape is not static."""


def gflop(model: onnx.ModelProto) -> float:
    """Billions of floating-point operations (2 per multiply-accumulate; elementwise work and pooling not counted).

    Needs static shapes; infers those the file does not state. Raises Uncountable, naming the node.
    """
    shapes = static_shapes(model)
    return 2e-9 * sum(macs(node, shapes) for node in model.graph.node)


def macs(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Multiply-accumulates of one node. Raises Uncountable, naming it."""
    if node.op_type in FREE:
        return 0
    if node.op_type not in MACS:
        raise Uncountable(f"node {node.name!r}: no rule for the work of {node.op_type}; add one to MACS")
    try:
        return MACS[node.op_type](node, shapes)
    except KeyError as unknown:
        raise Uncountable(f"node {node.name!r}: the shape of {unknown} is not static; bind the inputs") from None


def _conv(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Each output element is a dot product with one filter, [C/groups, *kernel]."""
    return math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])


def _conv_transpose(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Each input element is spread through one filter, [K/groups, *kernel]."""
    return math.prod(shapes[node.input[0]]) * math.prod(shapes[node.input[1]][1:])


def _matmul(node: onnx.NodeProto, shapes: Shapes) -> int:
    return math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]


def _gemm(node: onnx.NodeProto, shapes: Shapes) -> int:
    transposed = any(a.name == "transA" and a.i for a in node.attribute)
    return math.prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if transposed else 1]


def _recurrent(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Every time step multiplies W and R: x is [T, N, I], W [directions, gates * H, I], R [directions, gates * H, H]."""
    steps, batch, _ = shapes[node.input[0]]
    return steps * batch * (math.prod(shapes[node.input[1]]) + math.prod(shapes[node.input[2]]))


MACS: Mapping[str, Callable[[onnx.NodeProto, Shapes], int]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "LSTM": _recurrent,
    "GRU": _recurrent,
}

FREE = frozenset(OPERATORS) - having(Trait.CONTRACTION) - having(Trait.RECURRENT) | {
    "Constant",
    "ConstantOfShape",
    "Dropout",
}
"""Operators that multiply no two tensors: those with a record, and those that are resolved before there is one."""


def static_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Shape by value name, where it is static: as the file states it, else inferred."""
    stated = _stated(model.graph)
    if any(name and name not in stated for node in model.graph.node for name in node.output):
        stated = {**_stated(onnx.shape_inference.infer_shapes(model, data_prop=True).graph), **stated}
    return stated


def _stated(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    found = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            found.setdefault(value.name, tuple(d.dim_value for d in dims))
    return found
