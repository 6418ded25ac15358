"""Functions of one number as tables of the 256 bytes, for formats that have such: whatever the reference computes.

Several operators that together are such a function are one table: a chain, or a value and what is made of it, such as
x * tanh(softplus(x)). Nothing is rounded between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from compiler.accelerate.chips import Chip
from compiler.accelerate.tflite.convert import Converter, refused
from compiler.accelerate.tflite.operators import OPERATORS
from compiler.accelerate.tflite.rounding import HIGH, LOW, away, stored
from compiler.contract import QuantizeOptions
from compiler.errors import UnsupportedModel
from compiler.ops import having
from compiler.ops.traits import Trait
from compiler.quantize.calibrate import Evaluated

Write = Callable[[Converter, NodeProto], None]
"""Writes what a node computes. Raises UnsupportedModel."""


def tabulated(c: Converter, nodes: Sequence[NodeProto]) -> None:
    """What nodes make of the one value that all of them are made of.

    In float64 of each byte, then rounded once. What is not a number there has the byte of 0.
    """
    (value,), last, name = _operands(c, nodes[0]), nodes[-1], nodes[-1].output[0]
    held = c.held[value]
    scale, zero = c.wanted(name)
    real = held.scale[0] * (np.arange(LOW, HIGH + 1) - held.scale[1]).astype(np.float64)
    made = Evaluated(_alone(c, nodes, value), QuantizeOptions()).outputs({"x": real.astype(np.float32)})["y"]
    steps = np.nan_to_num(made / scale, nan=0.0, posinf=512, neginf=-512)
    entries = stored(away(np.clip(steps, -512, 512)), zero)
    inputs = [held.number, c.writer.constant(f"{name}.table", entries)]
    c.emit("TABLE", inputs, last, name, held.shape, last=held.last)
    c.done.update(node.output[0] for node in nodes)


def table_or(write: Write | None) -> Write:
    """A table for several nodes that are one function; for a single one that where nothing else can be written."""

    def written(c: Converter, node: NodeProto) -> None:
        nodes = function_from(c, node)
        if write is not None and len(nodes) < 2:
            try:
                write(c, node)
                return
            except UnsupportedModel:
                if not nodes:
                    raise
        if not nodes:
            raise refused(node, "it is a function of several numbers", "make its other operands constants")
        tabulated(c, nodes)

    return written


def function_from(c: Converter, node: NodeProto) -> list[NodeProto]:
    """A node and those behind it that are made of the same value alone, if nothing else reads what lies between.

    As many as there are; none where the node itself is made of several values. What the model quantises by itself is
    an end.
    """
    made, nodes = _operands(c, node), list[NodeProto]()
    if len(made) != 1:
        return []
    first = next(at for at, one in enumerate(c.network.nodes) if one.output[0] == node.output[0])
    for one in c.network.nodes[first:]:
        if (
            one.output[0] not in c.done
            and not made.isdisjoint(map(c.root, one.input))
            and _is_function_of(c, one, made)
        ):
            nodes.append(one)
            if one.output[0] not in c.schemes:
                made.add(one.output[0])
    if not nodes or nodes[0].output[0] != node.output[0]:
        return []
    ends = (_behind(nodes[:end]) for end in range(len(nodes), 0, -1))
    return next(inside for inside in ends if inside[0] is nodes[0] and _is_closed(c, inside))


def _is_closed(c: Converter, nodes: Sequence[NodeProto]) -> bool:
    """Whether nobody but these nodes reads what they make, but for the last one's."""
    own = {node.output[0] for node in nodes}
    inner = own - {nodes[-1].output[0]}
    readers = (one.output[0] for name in inner for one in c.network.readers.get(name, ()))
    return inner.isdisjoint(c.network.outputs) and own.issuperset(readers)


def _behind(nodes: Sequence[NodeProto]) -> list[NodeProto]:
    """Of nodes in order those that the last one is made of, and itself."""
    needed, found = {nodes[-1].output[0]}, list[NodeProto]()
    for one in reversed(nodes):
        if one.output[0] in needed:
            needed.update(one.input)
            found.insert(0, one)
    return found


def _operands(c: Converter, node: NodeProto) -> set[str]:
    """The values that a node reads and the model does not hold."""
    return {c.root(name) for name in node.input if name and c.fixed(name) is None}


def _is_function_of(c: Converter, node: NodeProto, values: Set[str]) -> bool:
    """Whether a node makes numbers of those at the same place of these values alone, and of single numbers."""
    if node.op_type not in FUNCTIONS:
        return False
    read, shape = _operands(c, node), c.shapes.get(node.output[0])
    held = (c.fixed(name) for name in node.input if name)
    is_plain = all(one is None or np.asarray(one).size == 1 for one in held)
    return read <= values and is_plain and all(c.shapes.get(one) == shape for one in read)


def _alone(c: Converter, nodes: Sequence[NodeProto], value: str) -> bytes:
    """A model of nodes, from 256 numbers `x`, their value, to `y`."""
    names = {value: "x", nodes[-1].output[0]: "y"}
    copies, numbers = list[NodeProto](), list[TensorProto]()
    for node in nodes:
        one = NodeProto()
        one.CopyFrom(node)
        for at, name in enumerate(node.input):
            if name and (number := c.fixed(name)) is not None and name not in names:
                names[name] = f"c{len(numbers)}"
                numbers.append(numpy_helper.from_array(np.asarray(number, np.float32).reshape(()), names[name]))
            one.input[at] = names.get(c.root(name), names.get(name, name))
        one.output[0] = names.setdefault(node.output[0], f"v{len(copies)}")
        copies.append(one)
    graph = helper.make_graph(
        copies,
        "table",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [HIGH - LOW + 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [HIGH - LOW + 1])],
        numbers,
    )
    proto = c.network.proto
    model = helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
    return bytes(model.SerializeToString())


FUNCTIONS = having(Trait.ELEMENTWISE) - having(Trait.LOGICAL) - {"Cast", "BitCast"}
"""Operators of ONNX that are functions of real numbers, element by element."""
TABLES = (FUNCTIONS & having(Trait.UNARY)) - OPERATORS.keys()
"""Of one number, and without an int8 operator of TFLite."""
PARTLY = FUNCTIONS & OPERATORS.keys()
"""With such an operator, for some of what they compute."""


def operators_of(chip: Chip) -> Mapping[str, Write]:
    """What is written for a chip, by ONNX's name."""
    if chip.format != "tosa":
        return OPERATORS
    return {**OPERATORS, **{name: table_or(OPERATORS.get(name)) for name in (*TABLES, *PARTLY)}}
