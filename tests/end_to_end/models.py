"""Models for the whole house: small good ones, and what is sent by strangers."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bench.zoo import build

TINY = ("tiny_cnn", "tiny_mobile", "tiny_transformer", "tiny_detector", "tiny_lstm")
QUICK = "tiny_lstm"
"""Few kernels: the one to compile where it does not matter which."""
LONG = "tiny_cnn"
"""More kernels, each with several candidates to build and measure."""
ALL_CANDIDATES_S = 600
"""A tuning budget that no tiny model spends: measuring ends when every candidate is measured."""
RELATIVE = 1e-4
"""Of the largest value of an output."""

Arrays = Mapping[str, NDArray[Any]]


@functools.cache
def tiny(name: str, **options: int) -> bytes:
    """A network of the zoo."""
    return bytes(build(name, **options).SerializeToString())


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str] | None],
    outputs: Sequence[str],
    *,
    opset: int = 17,
    tensors: Sequence[TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> bytes:
    """An ONNX file; nothing is checked. Inputs are float32 and stand by name and shape."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    graph = helper.make_graph(list(nodes), "g", infos, [onnx.ValueInfoProto(name=n) for n in outputs], list(tensors))
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid("local", 1)] if functions else [])]
    whole = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))
    return bytes(whole.SerializeToString())


RELU = helper.make_node("Relu", ["x"], ["y"], name="act")


def relu(shape: Sequence[int | str] | None, opset: int = 17) -> bytes:
    """One Relu."""
    return model([RELU], {"x": shape}, ["y"], opset=opset)


def cyclic() -> bytes:
    """Two nodes that feed each other."""
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="left"),
        helper.make_node("Relu", ["a"], ["b"], name="right"),
    ]
    return model(nodes, {"x": [4]}, ["b"])


def immense() -> bytes:
    """An output of 10^15 elements out of a hundred bytes."""
    shape = numpy_helper.from_array(np.array([10**5, 10**5, 10**5]), "s")
    return model([helper.make_node("Expand", ["x", "s"], ["y"], name="swell")], {"x": [1]}, ["y"], tensors=[shape])


def doubling(levels: int = 30) -> bytes:
    """Local functions, each calling the one below it twice: two to the power of `levels` nodes."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]

    def body(level: int) -> list[onnx.NodeProto]:
        if level == 0:
            return [helper.make_node("Relu", ["x"], ["y"])]
        below = f"F{level - 1}"
        return [
            helper.make_node(below, ["x"], ["m"], domain="local"),
            helper.make_node(below, ["m"], ["y"], domain="local"),
        ]

    functions = [helper.make_function("local", f"F{n}", ["x"], ["y"], body(n), opsets) for n in range(levels)]
    call = helper.make_node(f"F{levels - 1}", ["x"], ["y"], domain="local", name="top")
    return model([call], {"x": [4]}, ["y"], functions=functions)


def foreign() -> bytes:
    """An operator that nobody knows, behind one that everybody does."""
    return model([RELU, helper.make_node("Frobnicate", ["y"], ["z"], name="odd one")], {"x": [4]}, ["z"])


def outside(location: str) -> bytes:
    """Weights that lie in the file `location`."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [4]}, ["y"], tensors=[tensor])


HOSTILE_INPUT = 'x"; }\n*/ #include "/etc/passwd"\0%s'
HOSTILE_OUTPUT = "y'\\\n\t$(id)`id`\0</script>"


def hostile_names() -> bytes:
    """A good model whose names would break out of strings, comments, lines and C code."""
    nodes = [
        helper.make_node("Relu", [HOSTILE_INPUT], ["mid\0\n"], name='no"de\n*/\0'),
        helper.make_node("Softmax", ["mid\0\n"], [HOSTILE_OUTPUT], name="'; DROP TABLE jobs; --"),
    ]
    return model(nodes, {HOSTILE_INPUT: [2, 8]}, [HOSTILE_OUTPUT])


def reference(model: bytes, inputs: Arrays) -> Arrays:
    """What ONNX Runtime computes."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, dict(inputs))), strict=True))


def assert_agrees(found: Arrays, expected: Arrays) -> None:
    """The same outputs, equal to `RELATIVE` of the largest value of each."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].shape == value.shape
        assert found[name].dtype == value.dtype
        largest = float(np.abs(value).max())
        assert largest > 0
        assert float(np.abs(found[name] - value).max()) <= RELATIVE * largest, name
