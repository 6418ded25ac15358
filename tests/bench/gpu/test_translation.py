"""Translated graphs carried out in NumPy, beside ONNX Runtime: the calls are those that every peer makes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

from bench.gpu.array_network import Around, Arrays, array_table
from bench.gpu.subjects import NETWORKS, inputs_of
from bench.gpu.translation import NotTranslated, Program, Ref, evaluate, translate
from bench.zoo import build


def windows(x: np.ndarray, kernel: Sequence[int], strides: Sequence[int], around: Around, beyond: float) -> np.ndarray:
    """[N, C, *out, *kernel]."""
    padded = np.pad(x, [(0, 0), (0, 0), *around], constant_values=beyond)
    return sliding_window_view(padded, tuple(kernel), axis=(2, 3))[:, :, :: strides[0], :: strides[1]]


def convolve(
    x: np.ndarray, w: np.ndarray, strides: Sequence[int], around: Around, dilations: Sequence[int], groups: int
) -> np.ndarray:
    wide = np.zeros((*w.shape[:2], *(d * (k - 1) + 1 for d, k in zip(dilations, w.shape[2:], strict=True))), w.dtype)
    wide[:, :, :: dilations[0], :: dilations[1]] = w
    found = windows(x, wide.shape[2:], strides, around, 0.0)
    parts = [
        np.einsum("nchwrs,kcrs->nkhw", part, filters, optimize=True)
        for part, filters in zip(np.split(found, groups, 1), np.split(wide, groups, 0), strict=True)
    ]
    return np.concatenate(parts, axis=1)


def pool(x: np.ndarray, kernel: Sequence[int], strides: Sequence[int], around: Around, kind: str) -> np.ndarray:
    found = windows(x, kernel, strides, around, -np.inf if kind == "max" else 0.0)
    result: np.ndarray = found.max((4, 5)) if kind == "max" else found.sum((4, 5))
    return result


TABLE = array_table(Arrays(np, np.vectorize(math.erf, otypes=[np.float32]), convolve, pool, np.float32))


def compared(model: onnx.ModelProto) -> float:
    """The largest relative norm of the difference from ONNX Runtime."""
    given = inputs_of(model, 3)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    program = translate(model)
    found = evaluate(program, TABLE, [given[name] for name in program.inputs], program.weights)
    wanted = session.run(list(program.outputs), given)
    return max(
        float(np.linalg.norm(one - other) / np.linalg.norm(other)) for one, other in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tiny_cnn", {}),
        ("tiny_inception", {}),
        ("tiny_transformer", {}),
        ("squeezenet1_0", {"size": 64}),
        ("mobilenet_v2", {"size": 64}),
        ("bert_base", {"blocks": 1, "vocabulary": 100, "seq": 16}),
        ("nasnet_a_mobile", {"size": 64}),
        ("randwire_small", {"size": 64}),
    ],
)
def test_a_translated_network_computes_what_onnx_runtime_does(name: str, options: dict[str, int]) -> None:
    assert compared(build(name, **options)) < 1e-5


def pooling(op: str, extent: int, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, extent, extent])
    graph = helper.make_graph([node], "g", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 0, 1, 1)])
@pytest.mark.parametrize(("extent", "kernel", "stride"), [(8, 3, 2), (7, 3, 2), (9, 2, 3), (6, 3, 1)])
@pytest.mark.parametrize("ceil", [0, 1])
def test_windows_at_the_edge_count_what_onnx_says(
    op: str, pads: tuple[int, ...], extent: int, kernel: int, stride: int, ceil: int
) -> None:
    window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads, "ceil_mode": ceil}
    assert compared(pooling(op, extent, **window)) < 1e-6
    if op == "AveragePool":
        assert compared(pooling(op, extent, **window, count_include_pad=1)) < 1e-6


def test_the_networks_of_the_check_need_no_operator_that_is_not_there() -> None:
    small = {"bert_base": {"vocabulary": 100}}
    for name in NETWORKS:
        steps = translate(build(name, **small.get(name, {}))).steps
        assert {step.op for step in steps} <= TABLE.keys(), name


def with_reshape(shape: onnx.TensorProto | None) -> Program:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    if shape is None:
        inputs.append(helper.make_tensor_value_info("s", TensorProto.INT64, [1]))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [6])
    graph = helper.make_graph(nodes, "g", inputs, [y], initializer=[shape] if shape else [])
    return translate(helper.make_model(graph))


def test_what_shapes_a_computation_becomes_plain_numbers() -> None:
    program = with_reshape(numpy_helper.from_array(np.array([-1], np.int64), "s"))
    assert program.steps[0].operands == (Ref("x"), (-1,))
    assert program.weights == {}
    with pytest.raises(NotTranslated, match="operand 1 of Reshape is computed"):
        with_reshape(None)
