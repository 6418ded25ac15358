"""The cases of onnx's conformance suite that consist of one node of a family, made in memory."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from compiler.ir.evaluate import evaluate
from compiler.ir.graph import Attr
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from compiler.ops.operator import Operator, Unsupported
from tests.compiler.ops.single import agree, plain_attribute, prepare, widened
from tests.conformance import collected


@dataclass(frozen=True)
class Case:
    """One node with its inputs and the outputs that the suite expects."""

    name: str
    op: str
    opset: int
    attrs: dict[str, Attr]
    inputs: tuple[np.ndarray | None, ...]
    outputs: tuple[np.ndarray | None, ...]
    """None for one that the node leaves out."""
    rtol: float


@functools.cache
def cases() -> tuple[Case, ...]:
    """Single-node cases whose tensors all have a dtype of ours, in the newest form of their operator."""
    found = []
    for case in collected():
        if case.model is None or not case.data_sets or len(case.model.graph.node) != 1:
            continue
        graph, opset = case.model.graph, case.model.opset_import[0].version
        node = graph.node[0]
        if node.domain or not _is_newest(node.op_type, opset):
            continue
        arrays, results = (tuple(map(_array, side)) for side in case.data_sets[0])
        if None in (type_of(array) for array in (*arrays, *results)):
            continue
        named = dict(zip((info.name for info in graph.input), arrays, strict=False))
        inputs = tuple(named[name] if name else None for name in node.input)
        expected = dict(zip((info.name for info in graph.output), results, strict=False))
        outputs = tuple(expected.get(name) for name in node.output)
        attrs = {attr.name: plain_attribute(onnx.helper.get_attribute_value(attr)) for attr in node.attribute}
        found.append(Case(case.name, node.op_type, opset, attrs, inputs, outputs, max(case.rtol, 1e-5)))
    return tuple(found)


def _is_newest(op: str, opset: int) -> bool:
    newest = onnx.defs.get_schema(op).since_version
    return onnx.defs.get_schema(op, opset).since_version == newest


def _array(item: Any) -> Any:
    item = numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item
    return np.asarray(item) if isinstance(item, np.generic) else item


def type_of(array: Any) -> DType | None:
    """The dtype of an array; None for what is no array or has no dtype of ours."""
    try:
        return DType.of(array.dtype) if isinstance(array, np.ndarray) else None
    except (KeyError, TypeError):
        return None


def run(case: Case, operator: Operator) -> str:
    """Checks reference and definition against the suite.

    Returns "" or the reason for which the operator refuses the node.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        node, inputs, types = prepare(operator, case.inputs, case.attrs, len(case.outputs))
        try:
            inferred = operator.infer(node, types)
            kernel = operator.define(node, types, inferred)
        except Unsupported as refusal:
            return refusal.reason
        reference = operator.reference(node, tuple(widened(array) for array in inputs))
    computed = [reference]
    if isinstance(kernel, Kernel):
        computed.append(evaluate(kernel, [array for array in inputs if array is not None]))
    for results in computed:
        for type, expected, got in zip(inferred, case.outputs, results, strict=True):
            if expected is not None:
                assert (type.dtype.numpy, type.dims) == (expected.dtype, expected.shape)
                _agree(got, expected, case.rtol)
    return ""


def _agree(got: np.ndarray, expected: np.ndarray, rtol: float) -> None:
    half = type_of(expected) in (DType.F16, DType.BF16)
    agree(np.asarray(got).astype(expected.dtype), expected, 2e-2 if half else rtol)
