"""A model pruned, in blocks and anywhere, then compiled in bytes and in bf16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.compress import compress
from compiler.compress.forms import mask_of
from compiler.contract import CompileOptions, CompressOptions, Event, QuantizeOptions
from compiler.devices.cpu.target import this_machine
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.tile import Tile
from compiler.pack.loader import Model
from compiler.preflight import preflight
from compiler.quantize import quantize
from tests.compiling import compile_file
from tests.peers import exact_session

UNMEASURED = CompileOptions(threads=1, tuning_budget_s=0)
LEFT_OUT = "multiply no zero weights"
KEPT = "kept and multiplied without zeros"
STEPS = 2
"""Of a result in bytes, by which another runtime's rounding may differ after a few layers."""


def dense() -> onnx.ModelProto:
    """Convolutions of 3x3, of stride 2 and of 1x1, between a first and a last one."""
    random = np.random.default_rng(0)
    shapes = ((32, 4, 3, 3), (64, 32, 3, 3), (64, 64, 3, 3), (128, 64, 1, 1), (16, 128, 1, 1))
    constants, nodes, last = {}, [], "x"
    for at, shape in enumerate(shapes):
        constants[f"w{at}"] = random.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape).astype(np.float32)
        constants[f"b{at}"] = np.linspace(-0.1, 0.1, shape[0], dtype=np.float32)
        pads, strides = [shape[2] // 2] * 4, [2 if at == 2 else 1] * 2
        nodes.append(
            helper.make_node("Conv", [last, f"w{at}", f"b{at}"], [f"c{at}"], f"conv{at}", pads=pads, strides=strides)
        )
        nodes.append(helper.make_node("Relu", [f"c{at}"], [f"r{at}"]))
        last = f"r{at}"
    graph = helper.make_graph(
        nodes,
        "blocked",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 16, 16])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture(scope="module")
def pruned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Layers but for the first and the last one, four fifths of each in blocks of 4 inputs by 16 results."""
    folder = tmp_path_factory.mktemp("blocked")
    (folder / "dense.onnx").write_bytes(dense().SerializeToString())
    options = CompressOptions(sparsity=0.8, form="4x16", tuning_budget_s=0.0)
    compress(folder / "dense.onnx", folder / "pruned.onnx", options)
    return folder / "pruned.onnx"


@pytest.fixture(scope="module")
def quantised(pruned: Path) -> Path:
    quantize(pruned, pruned.with_name("int8.onnx"), QuantizeOptions())
    return pruned.with_name("int8.onnx")


def judged(model: Path, artifact: Path, tolerance: float) -> None:
    """The artifact gives what another runtime gives, but for so much of the largest value."""
    with Model(artifact, lanes=1) as ours:
        inputs = ours.random_inputs(5)
        (want,) = exact_session(model).run(None, inputs)
        (got,) = ours.run(inputs).values()
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * float(np.abs(want).max()))


def explained(folder: Path) -> str:
    text = next(folder.glob("*_explanation.txt")).read_text()
    return text[text.index("Weights with many zeros") :]


def test_bytes_leave_blocks_of_zeros_out_and_say_so(quantised: Path, tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    report = compile_file(quantised, tmp_path / "sparse.tw", UNMEASURED, dump=tmp_path / "dump")
    judged(quantised, tmp_path / "sparse.tw", STEPS / 255)
    said = explained(tmp_path / "dump")
    assert "i8[64, 64, 3, 3]: 16x4 blocks" in said
    assert KEPT in said
    assert not any(LEFT_OUT in notice for notice in report.notices), "no byte is NaN"
    full = compile_file(quantised, tmp_path / "dense.tw", replace(UNMEASURED, sparsity="off"))
    judged(quantised, tmp_path / "dense.tw", STEPS / 255)
    assert report.weight_bytes < 0.5 * full.weight_bytes


def test_they_are_measured_on_weights_like_those_of_the_model(quantised: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    options = replace(UNMEASURED, tuning_budget_s=60.0, tuning_trials=12, scheduler="sequential")
    compile_file(quantised, tmp_path / "measured.tw", options, observe=events.append)
    judged(quantised, tmp_path / "measured.tw", STEPS / 255)
    kernels = [event.data for event in events if event.kind == "record" and event.data["kind"] == "kernel"]
    assert "sparse_integer" in {Tile.from_json(record["variant"]).algorithm for record in kernels}
    texts = [event.data["text"] for event in events if event.kind == "workload"]
    assert any(str(parse_workload(text)) == text and "blocks_0_1_4_" in text for text in texts)


@pytest.mark.skipif(not this_machine().multiplies_bf16, reason="this machine multiplies no bf16")
def test_bf16_leaves_them_out_too(pruned: Path, tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    options = replace(UNMEASURED, precision="bf16")
    report = compile_file(pruned, tmp_path / "sparse.tw", options, dump=tmp_path / "dump")
    judged(pruned, tmp_path / "sparse.tw", 2e-2)
    assert "sparse_bf16" in next((tmp_path / "dump").glob("*_tile.txt")).read_text()
    assert KEPT in explained(tmp_path / "dump")
    assert any(LEFT_OUT in notice for notice in report.notices)


@pytest.mark.skipif(not this_machine().multiplies_bytes, reason="this machine adds no dot products of bytes")
def test_zeros_anywhere_are_left_out_of_bytes(pruned: Path, tmp_path: Path) -> None:
    options = CompressOptions(sparsity=0.9, method="magnitude", precision="int8", tuning_budget_s=0.0)
    report = compress(pruned.with_name("dense.onnx"), tmp_path / "any.onnx", options)
    assert report.predicted_ms < 0.8 * report.dense_ms
    quantize(tmp_path / "any.onnx", tmp_path / "int8.onnx", QuantizeOptions())
    compile_file(tmp_path / "int8.onnx", tmp_path / "sparse.tw", UNMEASURED, dump=tmp_path)
    judged(tmp_path / "int8.onnx", tmp_path / "sparse.tw", STEPS / 255)
    tiles = next(tmp_path.glob("*_tile.txt")).read_text()
    assert "sparse_near_integer" in tiles or "sparse_far_integer" in tiles
    assert KEPT in explained(tmp_path)


def test_a_preflight_says_that_zeros_lie_in_blocks(quantised: Path) -> None:
    forms = [one["form"] for one in preflight(quantised, CompileOptions())["sparse"]]
    assert len(forms) == 3
    assert all("16x4 blocks" in form for form in forms)


def test_a_dense_layer_with_combined_columns_brings_its_inputs_into_their_order(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    source = random.normal(size=(192, 480)).astype(np.float32)
    weights = source * mask_of(np.abs(source), "combined", 0.8)
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], "dense", transB=1)]
    graph = helper.make_graph(
        nodes,
        "combined",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 480])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(weights[:, 0] + 1, "b")],
    )
    model = tmp_path / "combined.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), model)
    report = compile_file(model, tmp_path / "sparse.tw", UNMEASURED, dump=tmp_path)
    judged(model, tmp_path / "sparse.tw", 1e-5)
    tiles = next(tmp_path.glob("*_tile.txt")).read_text()
    assert "sparse_picked_gemv" in tiles
    assert "uint16_t *const order" in next(tmp_path.glob("*_emit.txt")).read_text()
    assert "480 columns combined in 96, 100 % filled" in explained(tmp_path)
    assert KEPT in explained(tmp_path)
    assert any("multiplies no zero weights" in notice for notice in report.notices)
    (found,) = preflight(model, CompileOptions())["sparse"]
    assert (found["form"], found["columns"], found["packed"], found["filled"]) == ("combined", 480, 96, 1.0)
    full = compile_file(model, tmp_path / "dense.tw", replace(UNMEASURED, sparsity="off"))
    judged(model, tmp_path / "dense.tw", 1e-5)
    assert report.weight_bytes < 0.5 * full.weight_bytes
