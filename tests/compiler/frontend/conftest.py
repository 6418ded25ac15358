"""Operators backed by onnx's reference evaluator, and a runner of Graphs.

With them the front end is tested apart from `compiler.ops`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Never

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.ir.graph import Graph, Node
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Arrays, Operator, Types, Unsupported

PARAMETERS: dict[str, tuple[tuple[int, str], ...]] = {
    "DFT": ((1, "dft_length"), (2, "axis")),
    "Expand": ((1, "shape"),),
    "OneHot": ((1, "depth"),),
    "Pad": ((1, "pads"), (2, "value"), (3, "axes")),
    "Reshape": ((1, "shape"),),
    "Resize": ((1, "roi"), (2, "scales"), (3, "sizes")),
    "Slice": ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps")),
    "Split": ((1, "split"),),
    "Squeeze": ((1, "axes"),),
    "Tile": ((1, "repeats"),),
    "TopK": ((1, "k"),),
    "Unsqueeze": ((1, "axes"),),
    **{
        f"Reduce{name}": ((1, "axes"),)
        for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
}
FLOAT_PARAMETERS = {"roi", "scales", "value"}
WITHOUT_RECORD = {
    "Elu",
    "Gelu",
    "MeanVarianceNormalization",
    "Selu",
    "Softsign",
    "ThresholdedRelu",
    "HardSwish",
    "GreaterOrEqual",
}
"""Left out, so that the bodies of their schemas are used."""


@cache
def _attribute_types(op: str) -> Mapping[str, int]:
    schema: Any = onnx.defs.get_schema(op, 28, "")
    return {name: attribute.type.value for name, attribute in schema.attributes.items()}


def _run(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    feeds: dict[str, np.ndarray] = {}
    names: list[str] = []
    parameters = dict(PARAMETERS.get(node.op, ()))
    for position in range(max([len(node.inputs), *(position + 1 for position in parameters)], default=0)):
        array = arrays[position] if position < len(arrays) else None
        parameter = parameters.get(position, "")
        if array is None and node.attrs.get(parameter) is not None:
            array = np.asarray(node.attrs[parameter], np.float32 if parameter in FLOAT_PARAMETERS else np.int64)
        names.append("" if array is None else f"x{position}")
        if array is not None:
            feeds[f"x{position}"] = array
    attrs = {name: value for name, value in node.attrs.items() if name not in parameters.values()}
    attribute_types = _attribute_types(node.op)
    while names and not names[-1]:
        names.pop()
    outputs = [f"y{position}" for position in range(len(node.outputs))]
    proto = onnx.NodeProto(op_type=node.op, input=names, output=outputs)
    for name, value in attrs.items():
        kind = int(attribute_types[name])
        if value is not None and (value != () or kind):
            proto.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in feeds.items()
    ]
    graph = helper.make_graph([proto], "one", infos, [onnx.ValueInfoProto(name=name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)], ir_version=14)
    return tuple(np.asarray(array) for array in ReferenceEvaluator(model).run(None, feeds))


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    zeros = tuple(None if found is None else np.zeros(found.dims, found.dtype.numpy) for found in types)
    with np.errstate(all="ignore"):
        return tuple(TensorType(DType.of(array.dtype), array.shape) for array in _run(node, zeros))


def _undefined(node: Node, inputs: Types, outputs: tuple[TensorType, ...]) -> object:
    raise Unsupported("these records are for the front end alone")


@cache
def onnx_operators() -> Mapping[str, Operator]:
    names = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""} - WITHOUT_RECORD
    return {
        name: Operator(name, _infer, _run, _undefined, PARAMETERS.get(name, ()))  # type: ignore[arg-type]
        for name in sorted(names)
    }


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """Turns a model on which the front end hangs into a failure instead of a stuck run."""

    def stop(*_: object) -> Never:
        raise AssertionError("the front end hangs on this model")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def operators() -> Mapping[str, Operator]:
    return onnx_operators()


Runner = Callable[[Graph, Mapping[str, np.ndarray]], dict[str, np.ndarray]]


@pytest.fixture
def run_graph() -> Runner:
    """Outputs by name of a Graph on arrays by input name."""

    def run(graph: Graph, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        arrays: dict[int, np.ndarray] = {**graph.constants}
        arrays.update({id: feeds[graph.values[id].name] for id in graph.inputs})
        for node in graph.nodes:
            given = tuple(None if id is None else arrays[id] for id in node.inputs)
            arrays.update(zip(node.outputs, _run(node, given), strict=True))
        for id in graph.outputs:
            assert arrays[id].shape == graph.type(id).dims
        return {graph.values[id].name: arrays[id] for id in graph.outputs}

    return run


ModelMaker = Callable[..., bytes]


@pytest.fixture
def make_model() -> ModelMaker:
    """Bytes of a model from nodes and from shapes of inputs and names of outputs."""

    def make(
        nodes: list[onnx.NodeProto],
        inputs: Mapping[str, object],
        outputs: list[str],
        opset: int = 17,
        initializers: Mapping[str, np.ndarray] | None = None,
        functions: list[onnx.FunctionProto] | None = None,
        domains: list[str] | None = None,
        ir_version: int = 8,
        dtypes: Mapping[str, int] | None = None,
    ) -> bytes:
        infos = [
            helper.make_tensor_value_info(name, (dtypes or {}).get(name, TensorProto.FLOAT), shape)  # type: ignore[arg-type]
            for name, shape in inputs.items()
        ]
        tensors = [numpy_helper.from_array(array, name) for name, array in (initializers or {}).items()]
        graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name=name) for name in outputs], tensors)
        opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains or [])]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, functions=functions or [])
        return bytes(model.SerializeToString())

    return make
