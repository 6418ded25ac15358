"""Every entry of the upgrade table: the model at its old opset in ONNX Runtime against the loaded Graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import load
from compiler.frontend.opsets.six import OPSET_SIX
from compiler.frontend.opsets.table import COMPOSED, UPGRADES
from compiler.ir.graph import Graph
from compiler.ops.operator import Operator

Operators = Mapping[str, Operator]
Maker = Callable[..., bytes]
Case = tuple[str, int, dict[str, Any], list[Any], int]
"""Operator, opset, attributes, shape of each input (or a constant, or None), and how many outputs."""


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CASES: list[Case] = [
    *(
        ("Softmax", opset, attrs, [[2, 3, 4]], 1)
        for opset in (7, 11, 12)
        for attrs in ({}, {"axis": 0}, {"axis": 1}, {"axis": 2})
    ),
    ("Softmax", 11, {"axis": -1}, [[2, 3, 4]], 1),
    ("Softmax", 11, {"axis": -2}, [[2, 3, 4]], 1),
    ("Softmax", 9, {}, [[1, 10, 1, 1]], 1),
    ("Softmax", 9, {}, [[2, 1, 1, 1]], 1),
    ("Softmax", 13, {}, [[2, 3, 4]], 1),
    *(("LogSoftmax", 11, attrs, [[2, 3, 4]], 1) for attrs in ({}, {"axis": 0}, {"axis": 2})),
    *(("Hardmax", 11, attrs, [[2, 3, 4]], 1) for attrs in ({}, {"axis": 2})),
    ("BatchNormalization", 7, {}, [[2, 3, 4, 4], [3], [3], [3], f32(1, 2, 3)], 1),
    ("BatchNormalization", 9, {"epsilon": 1e-2}, [[2, 3, 4], [3], [3], [3], f32(1, 2, 3)], 1),
    ("BatchNormalization", 14, {}, [[2, 3], [3], [3], [3], f32(1, 2, 3)], 1),
    ("Clip", 7, {"min": -0.5}, [[3, 4]], 1),
    ("Clip", 10, {"min": -0.5, "max": 0.25}, [[3, 4]], 1),
    ("Clip", 10, {}, [[3, 4]], 1),
    ("Clip", 11, {}, [[3, 4], f32(0).reshape(())], 1),
    ("Pad", 7, {"pads": [0, 1, 2, 0]}, [[3, 4]], 1),
    ("Pad", 10, {"pads": [1, 0, 0, 2], "value": 3.5}, [[3, 4]], 1),
    ("Pad", 10, {"pads": [1, 0, 0, 2], "mode": "reflect"}, [[3, 4]], 1),
    ("Pad", 11, {"mode": "edge"}, [[3, 4], i64(1, 0, 0, 2)], 1),
    ("ReduceSum", 7, {"axes": [1]}, [[2, 3, 4]], 1),
    ("ReduceSum", 11, {"axes": [-1], "keepdims": 0}, [[2, 3, 4]], 1),
    ("ReduceSum", 12, {}, [[2, 3, 4]], 1),
    ("ReduceSum", 13, {"keepdims": 0}, [[2, 3, 4], i64(0, 2)], 1),
    *(
        (f"Reduce{name}", opset, {"axes": [0, 2], "keepdims": keep}, [[2, 3, 4]], 1)
        for name in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
        for opset, keep in ((11, 1), (13, 0))
    ),
    ("ReduceMean", 18, {"keepdims": 0}, [[2, 3, 4], i64(0, 2)], 1),
    ("Resize", 10, {"mode": "nearest"}, [[1, 2, 3, 4], f32(1, 1, 2, 3)], 1),
    ("Resize", 10, {"mode": "nearest"}, [[1, 2, 4, 8], f32(1, 1, 0.6, 0.6)], 1),
    ("Resize", 10, {"mode": "linear"}, [[1, 2, 3, 4], f32(1, 1, 2, 2)], 1),
    ("Resize", 11, {"mode": "nearest", "nearest_mode": "floor"}, [[1, 2, 3, 4], f32(), f32(1, 1, 2, 2)], 1),
    ("Resize", 11, {"mode": "linear"}, [[1, 2, 3, 4], f32(), f32(), i64(1, 2, 5, 7)], 1),
    ("Resize", 13, {"mode": "linear"}, [[1, 2, 3, 4], None, f32(1, 1, 2, 2)], 1),
    ("Upsample", 7, {"scales": [1.0, 1.0, 2.0, 3.0]}, [[1, 2, 3, 4]], 1),
    ("Upsample", 9, {"mode": "nearest"}, [[1, 2, 3, 4], f32(1, 1, 2, 2)], 1),
    ("Upsample", 9, {"mode": "linear"}, [[1, 2, 3, 4], f32(1, 1, 2, 2)], 1),
    ("Slice", 7, {"starts": [0, 1], "ends": [2, 1000]}, [[3, 4]], 1),
    ("Slice", 9, {"starts": [-2], "ends": [-1], "axes": [1]}, [[3, 4]], 1),
    ("Slice", 10, {}, [[3, 4], i64(3), i64(-100), i64(1), i64(-2)], 1),
    ("Split", 7, {}, [[4, 6]], 2),
    ("Split", 11, {"axis": 1, "split": [1, 2, 3]}, [[4, 6]], 3),
    ("Split", 13, {"axis": -1}, [[4, 6]], 3),
    ("Split", 13, {"axis": 1}, [[4, 6], i64(2, 4)], 2),
    ("Split", 18, {"axis": 1, "num_outputs": 4}, [[4, 7]], 4),
    ("Squeeze", 7, {"axes": [0, 2]}, [[1, 3, 1]], 1),
    ("Squeeze", 11, {"axes": [-1]}, [[1, 3, 1]], 1),
    ("Squeeze", 12, {}, [[1, 3, 1]], 1),
    ("Squeeze", 13, {}, [[1, 3, 1], i64(0)], 1),
    ("Unsqueeze", 7, {"axes": [0, 2]}, [[3, 4]], 1),
    ("Unsqueeze", 13, {}, [[3, 4], i64(-1)], 1),
    ("TopK", 7, {"k": 2}, [[3, 5]], 2),
    ("TopK", 10, {"axis": 0}, [[3, 5], i64(2)], 2),
    ("TopK", 11, {"largest": 0}, [[3, 5], i64(2)], 2),
    ("Scatter", 9, {"axis": 1}, [[3, 5], np.array([[1, 0]]), [1, 2]], 1),
    ("CastLike", 15, {}, [[3, 5], i64(1)], 1),
    ("GridSample", 16, {"mode": "bilinear"}, [[1, 2, 4, 4], [1, 3, 3, 2]], 1),
    ("GridSample", 16, {"mode": "nearest"}, [[1, 2, 4, 4], [1, 3, 3, 2]], 1),
    (
        "RoiAlign",
        10,
        {"output_height": 2, "output_width": 2, "sampling_ratio": 2},
        [[1, 2, 6, 6], f32(0, 0, 4, 5).reshape(1, 4), i64(0)],
        1,
    ),
    ("Elu", 7, {"alpha": 0.5}, [[3, 5]], 1),
    ("Selu", 9, {}, [[3, 5]], 1),
    ("Softsign", 11, {}, [[3, 5]], 1),
    ("ThresholdedRelu", 12, {"alpha": 0.2}, [[3, 5]], 1),
    ("MeanVarianceNormalization", 9, {}, [[2, 3, 4, 5]], 1),
    ("MeanVarianceNormalization", 13, {"axes": [1]}, [[2, 3, 4]], 1),
    ("HardSwish", 14, {}, [[3, 5]], 1),
    ("Gelu", 20, {"approximate": "tanh"}, [[3, 5]], 1),
    ("GreaterOrEqual", 12, {}, [[3, 5], [5]], 1),
    ("Gemm", 7, {"transB": 1}, [[2, 3], [4, 3], [4]], 1),
    ("Max", 8, {}, [[2, 3], [3], [2, 1]], 1),
    ("Sum", 8, {}, [[2, 3], [3], [2, 1]], 1),
    ("Dropout", 7, {"ratio": 0.3}, [[2, 3]], 1),
    ("Dropout", 12, {}, [[2, 3], f32(0.3).reshape(())], 1),
]


@pytest.mark.parametrize(("op", "opset", "attrs", "inputs", "outputs"), CASES)
def test_a_node_of_an_old_opset_means_the_same(
    op: str, opset: int, attrs: dict[str, Any], inputs: list[Any], outputs: int,
    operators: Operators, run_graph: Callable[[Graph, Mapping[str, np.ndarray]], dict[str, np.ndarray]],
    make_model: Maker,
) -> None:  # fmt: skip
    names = ["" if given is None else f"x{position}" for position, given in enumerate(inputs)]
    shapes = {name: given for name, given in zip(names, inputs, strict=True) if isinstance(given, list)}
    constants = {name: given for name, given in zip(names, inputs, strict=True) if isinstance(given, np.ndarray)}
    results = [f"y{position}" for position in range(outputs)]
    nodes = [helper.make_node(op, names, results, name="old", **attrs)]
    model = make_model(nodes, shapes, results, opset=opset, initializers=constants, ir_version=8)
    graph = load(model, CompileOptions(), operators).graph
    rng = np.random.default_rng(7)
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    expected = onnxruntime.InferenceSession(model, _quiet(), providers=["CPUExecutionProvider"]).run(results, feeds)
    got = run_graph(graph, feeds)
    assert [graph.values[id].name for id in graph.outputs] == results
    for name, array in zip(results, expected, strict=True):
        np.testing.assert_allclose(got[name], array, rtol=2e-5, atol=2e-6)
        assert got[name].dtype == array.dtype


def _quiet() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return options


def test_every_upgrade_has_a_case() -> None:
    tried = {op for op, *_ in CASES}
    alone = {
        "DFT",
        "GroupNormalization",
        "ReduceLogSum",
    }  # no kernel of that opset in ONNX Runtime, or values out of its domain
    elsewhere = {*(op for op, _ in OPSET_SIX), *COMPOSED}  # test_opset_six, test_composed and test_spectra
    assert {op for op, _, _ in UPGRADES} <= tried | alone | elsewhere


def test_group_normalization_of_opset_18_repeats_its_scale_over_channels(
    operators: Operators,
    run_graph: Callable[[Graph, Mapping[str, np.ndarray]], dict[str, np.ndarray]],
    make_model: Maker,
) -> None:
    nodes = [helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)]
    scale, bias = f32(2, 3), f32(-1, 1)
    model = make_model(nodes, {"x": [1, 4, 3]}, ["y"], opset=18, initializers={"s": scale, "b": bias})
    graph = load(model, CompileOptions(), operators).graph
    x = np.random.default_rng(0).normal(size=(1, 4, 3)).astype(np.float32)
    grouped = x.reshape(1, 2, 6)
    normal = (grouped - grouped.mean(2, keepdims=True)) / np.sqrt(grouped.var(2, keepdims=True) + 1e-5)
    expected = (normal * scale[:, None] + bias[:, None]).reshape(x.shape)
    np.testing.assert_allclose(run_graph(graph, {"x": x})["y"], expected, rtol=1e-5, atol=1e-5)


def test_dft_of_opset_17_takes_its_axis_from_the_attribute(
    operators: Operators,
    run_graph: Callable[[Graph, Mapping[str, np.ndarray]], dict[str, np.ndarray]],
    make_model: Maker,
) -> None:
    model = make_model([helper.make_node("DFT", ["x"], ["y"], axis=1)], {"x": [2, 6, 3, 1]}, ["y"], opset=17)
    graph = load(model, CompileOptions(), operators).graph
    x = np.random.default_rng(0).normal(size=(2, 6, 3, 1)).astype(np.float32)
    expected = np.fft.fft(x[..., 0], axis=1)
    np.testing.assert_allclose(run_graph(graph, {"x": x})["y"], np.stack([expected.real, expected.imag], -1), atol=1e-4)


@pytest.mark.parametrize(
    ("op", "opset", "attrs", "inputs", "outputs", "says"),
    [
        ("BatchNormalization", 9, {}, [[2, 3], [3], [3], [3], [3]], 3, "training form"),
        ("BatchNormalization", 7, {"spatial": 0}, [[2, 3], [3], [3], [3], [3]], 1, "training form"),
        ("Softmax", 11, {"axis": 5}, [[2, 3]], 1, "axis 5"),
        ("Split", 11, {}, [[5, 3]], 2, "equal parts"),
        ("Gelu", 11, {}, [[2]], 1, "opset 20 or newer"),
        ("NoSuchThing", 11, {}, [[2]], 1, "no such operator"),
        ("Relu", 11, {"slope": 1.0}, [[2]], 1, "'slope' is unknown"),
        ("Relu", 11, {}, [], 1, "0 inputs"),
        ("Relu", 11, {}, [[2], [2]], 1, "2 inputs"),
        ("Relu", 11, {}, [None], 1, "absent"),
        ("Transpose", 11, {"perm": "abc"}, [[2, 3]], 1, "not of kind INTS"),
        ("Concat", 11, {}, [[2], [2]], 1, "'axis' is missing"),
        ("Add", 14, {}, [[2], i64(1, 2)], 1, "must be equal"),
        ("Conv", 11, {}, [i64(1), [1, 1, 1]], 1, "does not take"),
        ("Reshape", 14, {}, [[4], "x0"], 1, "does not take"),
    ],
)
def test_what_cannot_be_brought_forward_is_refused_naming_the_node(
    op: str, opset: int, attrs: dict[str, Any], inputs: list[Any], outputs: int, says: str,
    operators: Operators, make_model: Maker,
) -> None:  # fmt: skip
    names = ["" if given is None else given if isinstance(given, str) else f"x{i}" for i, given in enumerate(inputs)]
    shapes = {name: given for name, given in zip(names, inputs, strict=True) if isinstance(given, list)}
    constants = {name: given for name, given in zip(names, inputs, strict=True) if isinstance(given, np.ndarray)}
    results = [f"y{position}" for position in range(outputs)]
    node = helper.make_node(op, names, results, name="culprit", **attrs)
    node.input[:] = names
    with pytest.raises(UnsupportedModel) as caught:
        load(
            make_model([node], shapes, results[:1] if outputs == 1 else results, opset=opset, initializers=constants),
            CompileOptions(),
            operators,
        )
    (reason,) = caught.value.refusals
    assert (reason.node, reason.operator) == ("culprit", op)
    assert says in f"{reason.reason} {reason.fix}"
    assert reason.fix


def test_an_operator_removed_from_onnx_keeps_its_last_meaning(
    operators: Operators,
    run_graph: Callable[[Graph, Mapping[str, np.ndarray]], dict[str, np.ndarray]],
    make_model: Maker,
) -> None:
    nodes = [helper.make_node("Upsample", ["x", "s"], ["y"])]
    model = make_model(nodes, {"x": [1, 1, 2, 2]}, ["y"], opset=12, initializers={"s": f32(1, 1, 2, 2)})
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    got = run_graph(load(model, CompileOptions(), operators).graph, {"x": x})["y"]
    np.testing.assert_array_equal(got, x.repeat(2, axis=2).repeat(2, axis=3))


def test_defaults_of_the_schema_are_filled_in(operators: Operators, make_model: Maker) -> None:
    nodes = [helper.make_node("LeakyRelu", ["x"], ["a"]), helper.make_node("Concat", ["a", "a"], ["y"], axis=0)]
    graph = load(make_model(nodes, {"x": [4]}, ["y"]), CompileOptions(), operators).graph
    assert graph.nodes[0].attrs["alpha"] == pytest.approx(0.01)


def test_float16_keeps_its_type_through_an_upgrade(operators: Operators, make_model: Maker) -> None:
    nodes = [helper.make_node("Clip", ["x"], ["y"], min=-1.0, max=70000.0)]
    model = make_model(nodes, {"x": [4]}, ["y"], opset=10, dtypes={"x": TensorProto.FLOAT16})
    graph = load(model, CompileOptions(), operators).graph
    assert {str(graph.type(id)) for id in graph.constants} == {"f16[]"}
