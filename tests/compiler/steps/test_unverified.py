"""An artifact of which nothing shows that it is right: refused, taken on request, or shown by samples."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.devices.cpu.target import this_machine
from compiler.errors import Unverified
from compiler.pack.loader import Model
from tests.compiling import compile_file

QUICK = {"threads": 1, "tuning_budget_s": 0}
MAGNIFIED = 1e7


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The sines of 1e7 W x where x is above a half: rounding decides each of them, and of zeros there is none."""
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    constants = {
        "w": weights,
        "half": np.float32(0.5),
        "large": np.float32(MAGNIFIED),
        "flat": np.array([64], np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Mul", ["m", "large"], ["q"]),
        helper.make_node("Sin", ["q"], ["s"]),
        helper.make_node("Greater", ["x", "half"], ["above"]),
        helper.make_node("Reshape", ["above", "flat"], ["which"]),
        helper.make_node("Reshape", ["s", "flat"], ["each"]),
        helper.make_node("Compress", ["each", "which"], ["y"], axis=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["k"])
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_model_that_only_an_empty_output_has_passed_is_not_verified(model: Path, tmp_path: Path) -> None:
    with pytest.raises(Unverified, match=r"'y'.*rounding errors") as caught:
        compile_file(model, tmp_path / "m.tw", CompileOptions.from_json(QUICK))
    assert "samples" in caught.value.fix
    assert "tolerance" in caught.value.fix
    assert caught.value.fault == "caller"
    assert not (tmp_path / "m.tw").exists()


def test_it_is_taken_on_request_and_the_report_says_of_every_case_why_it_shows_nothing(
    model: Path, tmp_path: Path
) -> None:
    report = compile_file(model, tmp_path / "m.tw", CompileOptions.from_json({**QUICK, "unverified": "allow"}))
    assert (report.verified, report.unshown) == (False, ("y",))
    assert any("not verified" in notice for notice in report.notices)
    assert {case.inputs for case in report.cases} >= {"random", "one sign", "zeros"}
    assert all(case.why_not for case in report.cases if not case.decided)
    with zipfile.ZipFile(tmp_path / "m.tw") as archive:
        manifest = json.loads(archive.read("manifest.json"))
        page = archive.read("report.html")
    assert (manifest["verified"], manifest["unshown"]) == (False, ["y"])
    assert manifest["files"]["report.html"]["sha256"] == hashlib.sha256(page).hexdigest()
    assert b"Not verified: nothing shows that <code>y</code>" in page
    assert hashlib.sha256((tmp_path / "m.tw").read_bytes()).hexdigest() == report.artifact_digest
    with Model(tmp_path / "m.tw") as runs:
        assert runs.run({"x": np.ones((1, 64), np.float32)})["y"].shape == (64,)


@pytest.mark.parametrize("first", [1, 2])
def test_an_artifact_of_several_bindings_says_which_one_nothing_shows(model: Path, tmp_path: Path, first: int) -> None:
    """Of the sines of n - 1 times as much: of one row nothing is magnified."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Shape", ["x"], ["n"], start=0, end=1),
        helper.make_node("Cast", ["n"], ["rows"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["rows", "one"], ["more"]),
        helper.make_node("Mul", ["more", "large"], ["times"]),
        helper.make_node("Mul", ["m", "times"], ["q"]),
        helper.make_node("Sin", ["q"], ["y"]),
    ]
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    constants = {"w": weights, "one": np.float32(1), "large": np.float32(MAGNIFIED)}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), model)
    options = CompileOptions.from_json({**QUICK, "unverified": "allow", "dims": {"n": [first, 3 - first]}})
    assert not compile_file(model, tmp_path / "m.tw", options).verified
    with zipfile.ZipFile(tmp_path / "m.tw") as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert (manifest["verified"], manifest["unshown"]) == (False, ["y"])
    assert [one.get("verified", True) for one in manifest["bindings"]] == [first == 1, first == 2]


@pytest.mark.parametrize("unverified", ["refuse", "allow"])
def test_what_the_precisions_rounding_leaves_undecided_is_compiled_again_without_it(
    unverified: str, tmp_path: Path
) -> None:
    """Sines of numbers in the hundreds: bf16 decides none of them, float32 all."""
    if not this_machine().multiplies_bf16:
        pytest.skip("this machine multiplies no bf16")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Sin", ["m"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 256])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 256])
    weights = 30 * np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "m.onnx")
    options = CompileOptions.from_json({**QUICK, "precision": "bf16", "unverified": unverified})
    report = compile_file(tmp_path / "m.onnx", tmp_path / "m.tw", options)
    assert report.verified
    assert any("compiled again without" in notice for notice in report.notices)


def test_a_sample_that_rounding_does_not_decide_verifies_it(model: Path, tmp_path: Path) -> None:
    x = np.zeros((1, 64), np.float32)
    x[0, 3] = 1.0
    tame = onnx.load(model)
    next(one for one in tame.graph.initializer if one.name == "large").CopyFrom(
        numpy_helper.from_array(np.array(0.25, np.float32), "large")
    )
    onnx.save(tame, model)
    np.savez(tmp_path / "x.npz", x=x)
    report = compile_file(model, tmp_path / "m.tw", CompileOptions.from_json(QUICK), samples={"x": tmp_path / "x.npz"})
    assert report.verified
    assert any(case.inputs.startswith("sample") and case.decided == ("y",) for case in report.cases)


def test_what_the_reference_shows_not_to_be_finite_is_told_before_anything_is_built(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Log", ["m"], ["y"], name="logarithm"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])
    w = numpy_helper.from_array(np.eye(8, dtype=np.float32) - 0.01, "w")
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "m.onnx")
    phases: list[str] = []
    report = compile_file(
        tmp_path / "m.onnx",
        tmp_path / "m.tw",
        CompileOptions.from_json(QUICK),
        observe=lambda event: phases.append(event.message if event.kind == "notice" else event.phase),
    )
    told = next(at for at, text in enumerate(phases) if "node 'logarithm' (Log) is the first" in text)
    assert "tile" not in phases[:told]
    assert report.verified
