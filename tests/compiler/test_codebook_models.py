from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.engines.tilewright import calls
from compiler.contract import CompileOptions
from compiler.contract.events import Event
from compiler.ir.parsing.parse import parse_workload
from compiler.pack.loader import Model
from compiler.preflight import preflight
from tests.compiling import compile_file

OPTIONS = CompileOptions(threads=1, tuning_budget_s=0.0)
INPUTS, HIDDEN, OUTPUTS = 320, 256, 200


@pytest.fixture(autouse=True)
def lookups_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked up wherever it is possible: with vectors of eight floats it seldom pays."""
    monkeypatch.setattr("compiler.devices.cpu.algorithms.coded_gemv.LOOKUPS", dict.fromkeys((4, 8, 16), 0.0))


def written(folder: Path, nodes: Sequence[onnx.NodeProto], tensors: dict[str, np.ndarray]) -> Path:
    """A model from x[1, INPUTS] to y[1, OUTPUTS]."""
    graph = helper.make_graph(
        nodes,
        "clustered",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, INPUTS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, OUTPUTS])],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path = folder / "clustered.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def tensors() -> dict[str, np.ndarray]:
    """Weights of 16 values as one look-up table, and of 16 values for each output channel."""
    rng = np.random.default_rng(7)
    book = (0.1 * rng.normal(size=16)).astype(np.float32)
    places = rng.integers(0, 16, (HIDDEN, INPUTS)).astype(np.uint8)
    own = (0.1 * rng.normal(size=(OUTPUTS, 16))).astype(np.float32)
    second = np.take_along_axis(own, rng.integers(0, 16, (OUTPUTS, HIDDEN)), 1)
    bias = rng.normal(size=HIDDEN).astype(np.float32)
    return {"book": book, "places": places, "second": second, "bias": bias}


def clustered(folder: Path, *, gathered: bool) -> Path:
    """Two layers; the first's weights `gathered` from their codebook and reshaped, as tools that cluster write it."""
    given = tensors()
    nodes = [
        helper.make_node("Gemm", ["x", "first", "bias"], ["sum"], transB=1),
        helper.make_node("Relu", ["sum"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "second"], ["y"], transB=1),
    ]
    book, places = given.pop("book"), given.pop("places")
    if not gathered:
        return written(folder, nodes, {**given, "first": book[places]})
    gather = [
        helper.make_node("Cast", ["places"], ["indices"], to=TensorProto.INT32),
        helper.make_node("Gather", ["book", "indices"], ["flat"]),
        helper.make_node("Reshape", ["flat", "shape"], ["first"]),
    ]
    shape = np.array([HIDDEN, INPUTS])
    return written(folder, [*gather, *nodes], {**given, "book": book, "places": places.reshape(-1), "shape": shape})


@pytest.mark.parametrize("gathered", [False, True])
def test_products_of_one_row_look_their_weights_up_and_the_artifact_holds_indices(
    gathered: bool, tmp_path: Path
) -> None:
    model, artifact = clustered(tmp_path, gathered=gathered), tmp_path / "model.tw"
    report = compile_file(model, artifact, OPTIONS)
    assert [call["tile"].split()[0] for call in calls(artifact)] == ["gemv_codebook"] * 2
    dense = 4 * (INPUTS * HIDDEN + HIDDEN * OUTPUTS)
    assert report.weight_bytes < 0.25 * dense
    given = tensors()
    x = np.random.default_rng(8).normal(size=(1, INPUTS)).astype(np.float32)
    wide = np.maximum(x.astype(np.float64) @ given["book"][given["places"]].T.astype(np.float64) + given["bias"], 0)
    want = wide @ given["second"].T.astype(np.float64)
    with Model(artifact) as loaded:
        got = loaded.run({"x": x})["y"]
    assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()


def test_what_shares_values_is_told_before_and_after(tmp_path: Path) -> None:
    model = clustered(tmp_path, gathered=True)
    found = preflight(model, OPTIONS)["shared"]
    assert [(one["shape"], one["values"], one["bits"], one["codebooks"], one["axis"]) for one in found] == [
        ([HIDDEN, INPUTS], 16, 4, 1, None),
        ([OUTPUTS, HIDDEN], 16, 4, OUTPUTS, 0),
    ]
    assert [one["saved_bytes"] for one in found] == [
        HIDDEN * INPUTS * 7 // 2 - 64,
        OUTPUTS * (HIDDEN * 7 // 2 - 64),
    ]
    compile_file(model, tmp_path / "model.tw", OPTIONS, dump=tmp_path)
    said = next(tmp_path.glob("*_explanation.txt")).read_text()
    said = said[said.index("Weights of few values (2)") :]
    assert f"f32[{HIDDEN}, {INPUTS}]: indices of 4 bits, one codebook: 16 values; 0.04 MB for 0.33 MB in fp32" in said
    assert f"f32[{OUTPUTS}, {HIDDEN}]: indices of 4 bits, a codebook for each index of axis 0: 16 values" in said
    assert said.count("kept as indices and looked up") == 2


def test_weights_are_tried_with_as_many_values_as_the_model_has(tmp_path: Path) -> None:
    events: list[Event] = []
    options = replace(OPTIONS, tuning_budget_s=60.0, tuning_trials=8, scheduler="sequential")
    compile_file(clustered(tmp_path, gathered=False), tmp_path / "measured.tw", options, observe=events.append)
    texts = [event.data["text"] for event in events if event.kind == "workload"]
    assert any(str(parse_workload(text)) == text and "codebook_4_0 constant" in text for text in texts)
    tried = [event.data for event in events if event.kind == "record" and event.data["kind"] == "kernel"]
    assert any(record["variant"]["algorithm"] == "gemv_codebook" for record in tried)


def test_other_weights_are_neither_told_of_nor_looked_up(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    weights = rng.normal(size=(OUTPUTS, INPUTS)).astype(np.float32)
    model = written(tmp_path, [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)], {"w": weights})
    assert preflight(model, OPTIONS)["shared"] == []
    compile_file(model, tmp_path / "model.tw", OPTIONS)
    assert [call["tile"].split()[0] for call in calls(tmp_path / "model.tw")] == ["gemv"]


def convolutional(folder: Path) -> Path:
    """Convolutions by weights of 256, of 16 and of two values, and a product of many rows by 4 values."""
    rng = np.random.default_rng(10)

    def of(values: int, *dims: int) -> np.ndarray:
        return np.asarray((0.1 * rng.normal(size=values)).astype(np.float32)[rng.integers(0, values, dims)])

    nodes = [
        helper.make_node("Conv", ["image", "first"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "second"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "third"], ["d"], strides=[2, 2], kernel_shape=[1, 1]),
        helper.make_node("Transpose", ["d"], ["e"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["e", "last"], ["y"]),
    ]
    weights = {
        "first": of(256, 64, 32, 3, 3),
        "second": of(16, 256, 64, 1, 1),
        "third": of(2, 128, 256, 1, 1),
        "last": of(4, 128, 200),
    }
    graph = helper.make_graph(
        nodes,
        "clustered",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 32, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 8, 200])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "convolutional.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_kernels_that_multiply_dense_weights_find_them_expanded_to_the_bit(tmp_path: Path) -> None:
    model, small, dense = convolutional(tmp_path), tmp_path / "small.tw", tmp_path / "dense.tw"
    kept = compile_file(model, small, OPTIONS)
    whole = compile_file(model, dense, replace(OPTIONS, weights="ready"))
    assert kept.weight_bytes < 0.4 * whole.weight_bytes
    assert small.stat().st_size < dense.stat().st_size
    assert [call["tile"] for call in calls(small)] == [call["tile"] for call in calls(dense)]
    x = np.random.default_rng(11).normal(size=(1, 32, 16, 16)).astype(np.float32)
    with Model(small) as first, Model(small) as second, Model(dense) as other:
        expected = other.run({"image": x})["y"]
        for one in (first, second):
            np.testing.assert_array_equal(one.run({"image": x})["y"], expected)


def test_several_bindings_share_the_indices_of_an_artifact(tmp_path: Path) -> None:
    given = tensors()
    weights = given["book"][given["places"]]
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)],
        "clustered",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", INPUTS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", HIDDEN])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = tmp_path / "rows.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.write_bytes(made.SerializeToString())
    artifact = tmp_path / "rows.tw"
    options = CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0, "dims": {"rows": [1, 16, 32]}})
    report = compile_file(model, artifact, options)
    assert report.weight_bytes < 0.5 * weights.nbytes
    rng = np.random.default_rng(12)
    with Model(artifact) as loaded:
        for rows in (1, 16, 32):
            x = rng.normal(size=(rows, INPUTS)).astype(np.float32)
            want = x.astype(np.float64) @ weights.T.astype(np.float64)
            assert np.abs(loaded.run({"x": x})["y"] - want).max() <= 2e-6 * np.abs(want).max()


@pytest.mark.parametrize("rows", [1, 16])
def test_loops_that_data_end_look_weights_up_or_find_them_expanded(rows: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(13)
    weights = (0.05 * rng.normal(size=16)).astype(np.float32)[rng.integers(0, 16, (256, 256))]
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["goes"]),
            helper.make_node("MatMul", ["state", "w"], ["product"]),
            helper.make_node("Tanh", ["product"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [rows, 256]),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [rows, 256]),
        ],
        [numpy_helper.from_array(weights, "w")],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "yes", "x"], ["y"], body=body)],
        "steps",
        [
            helper.make_tensor_value_info("count", TensorProto.INT64, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 256]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 256])],
        [numpy_helper.from_array(np.array(True), "yes")],
    )
    model = tmp_path / "loop.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.write_bytes(made.SerializeToString())
    report = compile_file(model, tmp_path / "loop.tw", OPTIONS)
    assert report.weight_bytes < 0.25 * weights.nbytes
    x = rng.normal(size=(rows, 256)).astype(np.float32)
    want = x.astype(np.float64)
    for _ in range(5):
        want = np.tanh(want @ weights.astype(np.float64))
    with Model(tmp_path / "loop.tw") as loaded:
        got = loaded.run({"count": np.array(5), "x": x})["y"]
    assert np.abs(got - want).max() <= 2e-6
