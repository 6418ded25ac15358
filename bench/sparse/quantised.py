"""A model from bytes to bytes, as a layer lies in the midst of a quantised network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from compiler.contract import QuantizeOptions
from compiler.quantize import quantize


def in_bytes(model: onnx.ModelProto, x: np.ndarray, folder: Path, *, channels_last: bool) -> bytes:
    """A model of one input in fp32 quantised on it, without the operators that round its input and widen its result.

    `channels_last` says whether those lie last on both sides, of a model in NCHW.
    """
    source, out = folder / "fp32.onnx", folder / "int8.onnx"
    source.write_bytes(model.SerializeToString())
    (given,), (taken,) = model.graph.input, model.graph.output
    quantize(source, out, QuantizeOptions(outputs=True), [{given.name: x}])
    made = onnx.load(out)
    graph = made.graph
    (first,) = (node for node in graph.node if given.name in node.input)
    (last,) = (node for node in graph.node if taken.name in node.output)
    assert (first.op_type, last.op_type) == ("QuantizeLinear", "DequantizeLinear"), "both ends are rounded"
    for node in (first, last):
        graph.node.remove(node)
    graph.input[0].name, graph.output[0].name = first.output[0], last.input[0]
    for value in (graph.input[0], graph.output[0]):
        value.type.tensor_type.elem_type = TensorProto.UINT8
    if channels_last:
        _transpose(graph)
    return bytes(made.SerializeToString())


def _transpose(graph: onnx.GraphProto) -> None:
    """Moves the channels of the input and the result behind all other axes."""
    given, taken = graph.input[0], graph.output[0]
    first = helper.make_node("Transpose", ["given"], [given.name], perm=[0, 3, 1, 2])
    last = helper.make_node("Transpose", [taken.name], ["taken"], perm=[0, 2, 3, 1])
    nodes = [first, *graph.node, last]
    del graph.node[:]
    graph.node.extend(nodes)
    for value, name, order in ((given, "given", (0, 2, 3, 1)), (taken, "taken", (0, 2, 3, 1))):
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        value.name = name
        for dim, at in zip(value.type.tensor_type.shape.dim, order, strict=False):
            dim.dim_value = dims[at]
