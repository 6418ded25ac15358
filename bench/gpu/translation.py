"""An ONNX graph as a list of calls that any array library can carry out: each operator's function comes from a table.

What shapes the computation (axes, shapes, pads) becomes a plain Python value; weights stay arrays. So a table's
functions get what a person would write by hand in that library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Table = Mapping[str, Callable[..., Any]]
"""By ONNX operator: a function of its operands in ONNX's order, attributes by keyword. Several results come as a
tuple."""
STATIC: Mapping[str, frozenset[int]] = {
    "Clip": frozenset({1, 2}),
    "Expand": frozenset({1}),
    "Pad": frozenset({1, 2, 3}),
    "ReduceMean": frozenset({1}),
    "Reshape": frozenset({1}),
    "Slice": frozenset({1, 2, 3, 4}),
    "Split": frozenset({1}),
    "Squeeze": frozenset({1}),
    "Unsqueeze": frozenset({1}),
}
"""Operands that must be constants and are given as Python numbers or tuples of them."""
LEAST_SCALAR_RANK = 1
"""Float constants of a lower rank are given as Python numbers, which take the precision of what they meet."""


class NotTranslated(ValueError):
    """A node that the calls cannot express."""


@dataclass(frozen=True)
class Ref:
    """A value of the graph as an operand."""

    name: str


@dataclass(frozen=True)
class Step:
    """One call: `outputs = table[op](*operands, **attributes)`.

    Operands are Refs, Python values, or None where absent.
    """

    op: str
    operands: tuple[Any, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """Calls in an order in which they can be made; `weights` are arrays by name."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]
    weights: Mapping[str, np.ndarray]


def translate(model: onnx.ModelProto) -> Program:
    """A model without control flow. Raises NotTranslated where an operand that must be constant is not."""
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    steps: list[Step] = []
    for node in graph.node:
        attributes = {attribute.name: _value(attribute) for attribute in node.attribute}
        if node.op_type == "Constant":
            constants[node.output[0]] = np.asarray(attributes["value"])
            continue
        operands = tuple(_operand(node, at, name, constants) for at, name in enumerate(node.input))
        steps.append(Step(node.op_type, operands, attributes, tuple(node.output)))
    read = {operand.name for step in steps for operand in step.operands if isinstance(operand, Ref)}
    return Program(
        tuple(value.name for value in graph.input if value.name not in constants),
        tuple(value.name for value in graph.output),
        tuple(steps),
        {name: array for name, array in constants.items() if name in read},
    )


def evaluate(program: Program, table: Table, inputs: Sequence[Any], weights: Mapping[str, Any]) -> tuple[Any, ...]:
    """The outputs, each step carried out by the table's function. Raises KeyError for an operator that it lacks."""
    values = {**weights, **dict(zip(program.inputs, inputs, strict=True))}
    for step in program.steps:
        operands = [values[one.name] if isinstance(one, Ref) else one for one in step.operands]
        result = table[step.op](*operands, **step.attributes)
        results = result if isinstance(result, tuple) else (result,)
        values.update(zip(step.outputs, results, strict=False))
    return tuple(values[name] for name in program.outputs)


def _operand(node: onnx.NodeProto, at: int, name: str, constants: Mapping[str, np.ndarray]) -> Any:
    if not name:
        return None
    if at in STATIC.get(node.op_type, ()):
        if name not in constants:
            raise NotTranslated(f"operand {at} of {node.op_type} is computed, and must be a constant")
        return _plain(constants[name])
    array = constants.get(name)
    if array is not None and array.ndim < LEAST_SCALAR_RANK and array.dtype.kind == "f":
        return float(array)
    return Ref(name)


def _plain(array: np.ndarray) -> Any:
    return tuple(array.tolist()) if array.ndim else array.item()


def _value(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return tuple(value) if isinstance(value, list) else value
