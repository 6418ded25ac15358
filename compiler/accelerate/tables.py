"""Functions of one number as tables of the 256 bytes, for formats that have such: whatever the reference computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from onnx import NodeProto, TensorProto, helper

from compiler.accelerate.chips import Chip
from compiler.accelerate.convert import Converter
from compiler.accelerate.operators import OPERATORS
from compiler.accelerate.rounding import HIGH, LOW, away, stored
from compiler.contract import QuantizeOptions
from compiler.ops import having
from compiler.ops.traits import Trait
from compiler.quantize.calibrate import Evaluated


def tabulated(c: Converter, node: NodeProto) -> None:
    """In float64 of each byte, then rounded once. What is not a number there has the byte of 0."""
    held = c.held[c.root(node.input[0])]
    scale, zero = c.wanted(node.output[0])
    real = held.scale[0] * (np.arange(LOW, HIGH + 1) - held.scale[1]).astype(np.float64)
    made = Evaluated(_alone(c, node), QuantizeOptions()).outputs({"x": real.astype(np.float32)})["y"]
    steps = np.nan_to_num(made / scale, nan=0.0, posinf=512, neginf=-512)
    entries = stored(away(np.clip(steps, -512, 512)), zero)
    inputs = [held.number, c.writer.constant(f"{node.output[0]}.table", entries)]
    c.emit("TABLE", inputs, node, node.output[0], held.shape, last=held.last)


def _alone(c: Converter, node: NodeProto) -> bytes:
    """A model of the node, from `x` of 256 numbers to `y`."""
    one = NodeProto()
    one.CopyFrom(node)
    one.input[0], one.output[0] = "x", "y"
    graph = helper.make_graph(
        [one],
        "table",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [HIGH - LOW + 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [HIGH - LOW + 1])],
    )
    proto = c.network.proto
    model = helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
    return bytes(model.SerializeToString())


TABLES = having(Trait.UNARY) - OPERATORS.keys()
"""Operators of ONNX that are functions of one number, and have no int8 operator of TFLite."""


def operators_of(chip: Chip) -> Mapping[str, Callable[[Converter, NodeProto], None]]:
    """What is written for a chip, by ONNX's name."""
    return {**dict.fromkeys(TABLES, tabulated), **OPERATORS} if chip.format == "tosa" else OPERATORS
