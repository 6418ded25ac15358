"""An artifact of which nothing shows that it is right: refused, taken on request, or shown by samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.errors import Unverified
from compiler.pipeline import compile_model

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
    with pytest.raises(Unverified, match=r"'y'.*rounding alone") as caught:
        compile_model(model, tmp_path / "m.tw", CompileOptions.from_json(QUICK))
    assert "samples" in caught.value.fix
    assert "tolerance" in caught.value.fix
    assert caught.value.fault == "caller"
    assert not (tmp_path / "m.tw").exists()


def test_it_is_taken_on_request_and_the_report_says_of_every_case_why_it_shows_nothing(
    model: Path, tmp_path: Path
) -> None:
    report = compile_model(model, tmp_path / "m.tw", CompileOptions.from_json({**QUICK, "unverified": "allow"}))
    assert (report.verified, report.unshown) == (False, ("y",))
    assert any("not verified" in notice for notice in report.notices)
    assert {case.inputs for case in report.cases} >= {"random", "one sign", "zeros"}
    assert all(case.why_not for case in report.cases if not case.decided)
    assert (tmp_path / "m.tw").exists()


def test_a_sample_that_rounding_does_not_decide_verifies_it(model: Path, tmp_path: Path) -> None:
    x = np.zeros((1, 64), np.float32)
    x[0, 3] = 1.0
    tame = onnx.load(model)
    next(one for one in tame.graph.initializer if one.name == "large").CopyFrom(
        numpy_helper.from_array(np.array(0.25, np.float32), "large")
    )
    onnx.save(tame, model)
    np.savez(tmp_path / "x.npz", x=x)
    report = compile_model(model, tmp_path / "m.tw", CompileOptions.from_json(QUICK), samples={"x": tmp_path / "x.npz"})
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
    report = compile_model(
        tmp_path / "m.onnx",
        tmp_path / "m.tw",
        CompileOptions.from_json(QUICK),
        observe=lambda event: phases.append(event.message if event.kind == "notice" else event.phase),
    )
    told = next(at for at, text in enumerate(phases) if "node 'logarithm' (Log) is the first" in text)
    assert "tile" not in phases[:told]
    assert report.verified
