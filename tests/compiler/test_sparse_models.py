"""Pruned models from ONNX file to artifact: what is told of their zeros, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions, CompileReport, Event
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.tile import Tile
from compiler.pack.loader import Model
from compiler.preflight import preflight
from tests.compiling import compile_file

UNMEASURED = CompileOptions(threads=1, tuning_budget_s=0)
LEFT_OUT = "multiply no zero weights"


def weights(*shape: int, share: float = 0.08, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.asarray((random.normal(size=shape) * (random.random(shape) < share)).astype(np.float32))


def pruned() -> onnx.ModelProto:
    """Convolutions of 3x3, of stride 2 and of 1x1, and a product; the last weights are a tensor and its mask."""
    last = np.random.default_rng(9).normal(size=(64, 96)).astype(np.float32)
    constants = {
        "w0": weights(64, 32, 3, 3, seed=1),
        "b0": np.linspace(-1, 1, 64, dtype=np.float32),
        "w1": weights(64, 64, 3, 3, seed=2),
        "w2": weights(64, 64, 1, 1, share=0.1, seed=3),
        "w3": last,
        "mask": (np.random.default_rng(4).random((64, 96)) < 0.1).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["a"], name="first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["s"], name="strided", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["s"], ["c"]),
        helper.make_node("Conv", ["c", "w2"], ["d"], name="pointwise"),
        helper.make_node("Add", ["d", "c"], ["e"]),
        helper.make_node("Transpose", ["e"], ["f"], perm=[0, 2, 3, 1]),
        helper.make_node("Mul", ["w3", "mask"], ["w4"]),
        helper.make_node("MatMul", ["f", "w4"], ["y"], name="product"),
    ]
    graph = helper.make_graph(
        nodes,
        "pruned",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 32, 20, 20])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pruned") / "pruned.onnx"
    path.write_bytes(pruned().SerializeToString())
    return path


def judged(model: Path, artifact: Path) -> None:
    """The artifact gives what another runtime gives."""
    with Model(artifact, lanes=1) as ours:
        inputs = ours.random_inputs(5)
        (want,) = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, inputs)
        (got,) = ours.run(inputs).values()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * float(np.abs(want).max()))


def reported(report: CompileReport) -> bool:
    return any(LEFT_OUT in notice for notice in report.notices)


def test_zeros_are_left_out_told_of_and_take_no_room(model: Path, tmp_path: Path) -> None:
    sparse, dense = tmp_path / "sparse.tw", tmp_path / "dense.tw"
    report = compile_file(model, sparse, UNMEASURED, dump=tmp_path)
    judged(model, sparse)
    assert reported(report)
    explained = next(tmp_path.glob("*_explanation.txt")).read_text()
    said = explained[explained.index("Weights with many zeros (4)") :]
    assert "f32[64, 64, 3, 3]: unstructured" in said
    assert "such as at strided" in said
    assert "kept and multiplied without zeros" in said
    full = compile_file(model, dense, replace(UNMEASURED, sparsity="off"))
    judged(model, dense)
    assert not reported(full)
    assert report.weight_bytes < 0.3 * full.weight_bytes


def test_kernels_that_leave_zeros_out_are_measured_on_weights_like_those_of_the_model(
    model: Path, tmp_path: Path
) -> None:
    events: list[Event] = []
    options = replace(UNMEASURED, tuning_budget_s=60.0, tuning_trials=12, scheduler="sequential")
    compile_file(model, tmp_path / "measured.tw", options, observe=events.append)
    judged(model, tmp_path / "measured.tw")
    kernels = [event.data for event in events if event.kind == "record" and event.data["kind"] == "kernel"]
    tried = [Tile.from_json(record["variant"]) for record in kernels]
    assert "sparse" in {tile.algorithm for tile in tried}
    texts = [event.data["text"] for event in events if event.kind == "workload"]
    assert any(str(parse_workload(text)) == text and "sparse_0_" in text for text in texts)
    assert not any("blocks_" in text or "picks_" in text for text in texts), "fp32 has no use for groups"


def test_a_preflight_lists_weights_with_many_zeros_by_size(model: Path) -> None:
    answer = preflight(model, CompileOptions())
    assert [(one["name"], one["shape"], one["form"]) for one in answer["sparse"]] == [
        ("w1", [64, 64, 3, 3], "unstructured"),
        ("w0", [64, 32, 3, 3], "unstructured"),
        ("mask", [64, 96], "unstructured"),
        ("w2", [64, 64, 1, 1], "unstructured"),
    ]
    assert answer["sparse"][0]["share"] == pytest.approx(0.92, abs=0.01)


def recurrent(share: float) -> onnx.ModelProto:
    """An LSTM of 64 units in both directions, of whose weights a share is kept in blocks of 16 gates."""
    random = np.random.default_rng(3)

    def blocked(inputs: int) -> np.ndarray:
        blocks = (random.random((2, 16, inputs)) < share).repeat(16, 1)
        return np.asarray((0.2 * random.normal(size=blocks.shape) * blocks).astype(np.float32))

    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], name="lstm", hidden_size=64, direction="bidirectional")
    graph = helper.make_graph(
        [node],
        "recurrent",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [7, 1, 48])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [7, 2, 1, 64])],
        [numpy_helper.from_array(blocked(48), "w"), numpy_helper.from_array(blocked(64), "r")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


@pytest.mark.parametrize("transposed", [0, 1])
def test_products_of_one_row_leave_zeros_anywhere_out(transposed: int, tmp_path: Path) -> None:
    random, model, artifact = np.random.default_rng(6), tmp_path / "row.onnx", tmp_path / "row.tw"
    weights = random.normal(size=(200, 96)) * (random.random((200, 96)) < 0.1)
    arrays = {"w": weights if transposed else weights.T, "b": random.normal(size=200)}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=transposed)],
        "row",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 96])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 200])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), model)
    report = compile_file(model, artifact, UNMEASURED)
    judged(model, artifact)
    assert any("multiplies no zero weights" in notice for notice in report.notices)
    whole = compile_file(model, artifact, replace(UNMEASURED, sparsity="off"))
    assert report.weight_bytes < 0.45 * whole.weight_bytes


def test_recurrent_layers_leave_zeros_anywhere_out(tmp_path: Path) -> None:
    model, artifact = tmp_path / "recurrent.onnx", tmp_path / "recurrent.tw"
    pruned = recurrent(1.0)
    for tensor in pruned.graph.initializer:
        array = numpy_helper.to_array(tensor)
        mask = np.random.default_rng(4).random(array.shape) < 0.1
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(array * mask), tensor.name))
    onnx.save(pruned, model)
    report = compile_file(model, artifact, UNMEASURED, dump=tmp_path)
    judged(model, artifact)
    assert "kept and multiplied without zeros" in next(tmp_path.glob("*_explanation.txt")).read_text()
    whole = compile_file(model, artifact, replace(UNMEASURED, sparsity="off"))
    assert report.weight_bytes < 0.45 * whole.weight_bytes


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_recurrent_layers_leave_blocks_of_zeros_out(share: float, tmp_path: Path) -> None:
    model, artifact = tmp_path / "recurrent.onnx", tmp_path / "recurrent.tw"
    onnx.save(recurrent(share), model)
    report = compile_file(model, artifact, UNMEASURED, dump=tmp_path)
    judged(model, artifact)
    explained = next(tmp_path.glob("*_explanation.txt")).read_text()
    assert ("f32[2, 256, 64]: 16x1 vectors" in explained) == (share < 1)
    assert ("kept and multiplied without zeros" in explained) == (share < 1)
    assert any("multiplies no zero weights" in notice for notice in report.notices) == (share < 1)
    whole = compile_file(model, artifact, replace(UNMEASURED, sparsity="off"))
    assert report.weight_bytes < (0.3 if share < 1 else 1.01) * whole.weight_bytes


def test_recurrent_layers_tell_of_their_zeros_in_their_workloads(tmp_path: Path) -> None:
    model, events = tmp_path / "recurrent.onnx", list[Event]()
    onnx.save(recurrent(0.1), model)
    options = replace(UNMEASURED, tuning_budget_s=60.0, tuning_trials=6, scheduler="sequential")
    compile_file(model, tmp_path / "measured.tw", options, observe=events.append)
    judged(model, tmp_path / "measured.tw")
    kernels = [event.data for event in events if event.kind == "record" and event.data["kind"] == "kernel"]
    assert "sparse_recurrent" in {Tile.from_json(record["variant"]).algorithm for record in kernels}
    texts = [event.data["text"] for event in events if event.kind == "workload"]
    assert any(str(parse_workload(text)) == text and "blocks_1_2_1_" in text for text in texts)
