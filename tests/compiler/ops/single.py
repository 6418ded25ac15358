"""One operator on its own.

Its node built from arrays, its record checked part against part, and onnx's verdict on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from compiler.frontend.opsets.legalise import plain
from compiler.ir.evaluate import evaluate
from compiler.ir.graph import Attr, Node
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Operator, Types

Inputs = Sequence[np.ndarray | None]
Attrs = Mapping[str, Any]
Shape = tuple[int, ...]


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def octets(seed: int, dtype: Any, *shape: int) -> np.ndarray:
    """All values of a small integer dtype."""
    limits = np.iinfo(dtype)
    return np.asarray(np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape)).astype(dtype)


def scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def defaults(op: str) -> dict[str, Attr]:
    """Attributes with a default in the newest schema; none for an operator of the compiler's own."""
    found: dict[str, Attr] = {}
    if not onnx.defs.has(op):
        return found
    for name, attribute in onnx.defs.get_schema(op).attributes.items():
        if attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            found[name] = plain_attribute(helper.get_attribute_value(attribute.default_value))
    return found


def plain_attribute(value: Any) -> Attr:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return plain(numpy_helper.to_array(value))
    if isinstance(value, list | tuple):
        return tuple(plain_attribute(item) for item in value)
    return value  # type: ignore[no-any-return]


def prepare(
    operator: Operator, arrays: Inputs, attrs: Attrs, outputs: int
) -> tuple[Node, tuple[np.ndarray | None, ...], Types]:
    """The node as the front end would hand it over, the arrays that stay inputs, and their types."""
    inputs = list(arrays)
    filled = {**defaults(operator.name), **attrs}
    for position, name in operator.parameters:
        if position < len(inputs) and (array := inputs[position]) is not None:
            filled[name] = plain(array)
            inputs[position] = None
    ids = tuple(None if array is None else place for place, array in enumerate(inputs))
    node = Node(operator.name, ids, tuple(range(100, 100 + outputs)), filled)
    types = tuple(None if array is None else TensorType(DType.of(array.dtype), array.shape) for array in inputs)
    return node, tuple(inputs), types


def widened(array: np.ndarray | None) -> np.ndarray | None:
    """As the oracle computes: elements of small types stay what they are."""
    if array is None or not DType.of(array.dtype).is_float or DType.of(array.dtype).is_small:
        return array
    return array.astype(np.float64)


def check(
    operator: Operator, arrays: Inputs, attrs: Attrs | None = None, outputs: int = 1, rtol: float = 2e-5
) -> tuple[np.ndarray, ...]:
    """Infers, evaluates the definition and the float64 reference, and returns the results.

    Demands that all three agree.

    `rtol` is relative to the largest value of an output; integers must be equal.
    """
    node, inputs, types = prepare(operator, arrays, attrs or {}, outputs)
    inferred = operator.infer(node, types)
    assert len(inferred) == outputs
    with np.errstate(all="ignore"):
        wide = operator.reference(node, tuple(widened(array) for array in inputs))
    kernel = operator.define(node, types, inferred)
    kernel.verify()
    assert [slot.type for slot in kernel.outputs] == list(inferred)
    results = []
    computed: Sequence[np.ndarray | None] = [None] * outputs
    if isinstance(kernel, Kernel):
        computed = evaluate(kernel, [array for array in inputs if array is not None])
    else:
        assert isinstance(kernel, Routine)
    for type, expected, got in zip(inferred, wide, computed, strict=False):
        assert expected.shape == type.dims, (expected.shape, type)
        with np.errstate(all="ignore"):
            results.append(expected.astype(type.dtype.numpy))
        if got is not None:
            agree(got, expected if type.dtype.is_float else results[-1], rtol)
    return tuple(results)


def agree(got: np.ndarray, expected: np.ndarray, rtol: float) -> None:
    assert got.shape == expected.shape
    if DType.of(got.dtype).is_float:
        finite = np.abs(expected.astype(np.float64))
        scale = float(np.max(finite, initial=0.0, where=np.isfinite(finite)))
        np.testing.assert_allclose(
            got.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=rtol * max(scale, 1e-30)
        )
    else:
        np.testing.assert_array_equal(got, expected)


def by_onnxruntime(
    op: str, arrays: Inputs, attrs: Attrs | None = None, outputs: int = 1, opset: int = 21
) -> tuple[np.ndarray, ...]:
    """What ONNX Runtime computes for the same node."""
    names = ["" if array is None else f"i{place}" for place, array in enumerate(arrays)]
    results = [f"o{place}" for place in range(outputs)]
    given = {name: value for name, value in (attrs or {}).items() if value is not None}
    node = helper.make_node(op, names, results, **given)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays, strict=True)
        if array is not None
    ]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in results])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    feeds = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    return tuple(np.asarray(result) for result in session.run(None, feeds))


def compare(
    operator: Operator,
    arrays: Inputs,
    attrs: Attrs | None = None,
    outputs: int = 1,
    rtol: float = 2e-5,
    opset: int = 21,
) -> None:
    """`check`, and the same against ONNX Runtime."""
    for ours, theirs in zip(
        check(operator, arrays, attrs, outputs, rtol),
        by_onnxruntime(operator.name, arrays, attrs, outputs, opset),
        strict=True,
    ):
        agree(ours, theirs, max(rtol, 2e-5))
