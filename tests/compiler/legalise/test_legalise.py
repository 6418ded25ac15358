from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from compiler.contract import LegaliseOptions
from compiler.contract.legalisation import PROFILES
from compiler.errors import InputsError, OptionsError, UnsupportedModel
from compiler.legalise import legalise
from compiler.legalise.__main__ import main
from tests.compiler.quantize.models import Drawn


def written(folder: Path, activation: str = "Mish", normalised: bool = False) -> Path:
    """A residual block, a transposed convolution and a head."""
    d = Drawn()
    d.node("Conv", ["x", d.weights("w", 8, 3, 3, 3)], "c", "stem", pads=[1] * 4, strides=[2, 2])
    d.node(activation, ["c"], "h", "first")
    d.node("Conv", ["h", d.weights("w2", 8, 1, 3, 3)], "c2", "depthwise", pads=[1] * 4, group=8)
    d.node(activation, ["c2"], "h2", "second")
    d.node("Conv", ["h2", d.weights("w3", 8, 8, 1, 1)], "c3", "pointwise")
    d.node("Add", ["c3", "h"], "s", "sum")
    d.node("ConvTranspose", ["s", d.weights("wt", 8, 4, 3, 3)], "t", "up", strides=[2, 2], pads=[1] * 4)
    d.node("Flatten", [d.node("GlobalAveragePool", ["t"], "g", "mean")], "f", "flat")
    d.node("Gemm", ["f", d.weights("wg", 4, 6), d.weights("bg", 6)], "y", "head")
    if normalised:
        d.node("LayerNormalization", ["y", d.constant("scale", np.ones(6))], "z", "norm")
    path = folder / "model.onnx"
    onnx.save(d.model({"x": (1, 3, 16, 16)}, {"z" if normalised else "y": (1, 6)}, opset=20), path)
    return path


def archive(folder: Path, count: int = 4) -> Path:
    path = folder / "samples.npz"
    np.savez(path, x=np.random.default_rng(3).normal(size=(count, 1, 3, 16, 16)).astype(np.float32))
    return path


def run(path: Path, x: np.ndarray) -> Any:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.mark.parametrize("activation", ["HardSwish", "Mish", "Gelu", "Softplus"])
@pytest.mark.parametrize("name", PROFILES)
def test_the_legalised_model_runs_in_onnx_runtime_and_is_as_near_as_is_said(
    name: str, activation: str, tmp_path: Path
) -> None:
    model, out, samples = written(tmp_path, activation), tmp_path / "out.onnx", archive(tmp_path)
    report = legalise(model, out, LegaliseOptions(name, whole=True), {"s": samples})
    onnx.checker.check_model(out, full_check=True)
    assert report["after"]["share"] == 1.0
    assert report["after"]["handovers"] == 0
    (said,) = report["outputs"]
    worst = max(np.abs(run(out, x) - run(model, x)).max() for x in np.load(samples)["x"])
    assert worst <= said["sampled"] + 1e-4 * said["largest"]
    assert said["sampled"] <= 0.05 * said["largest"]
    assert said["proved"] is None or said["sampled"] <= said["proved"] + 1e-4 * said["largest"]


def test_what_a_caller_has_beside_the_profile_stays_as_it_is(tmp_path: Path) -> None:
    model, out, samples = written(tmp_path), tmp_path / "o.onnx", archive(tmp_path)
    report = legalise(model, out, LegaliseOptions("edgetpu"), {"s": samples}, besides=("Mish", "Swish"))
    assert report["before"]["share"] == 1.0
    assert "sigmoid_form" not in report["rules"]
    legal = onnx.load(out)
    assert [node.op_type for node in legal.graph.node].count("Mish") == 2
    assert [one.version for one in legal.opset_import] == [24]


def test_a_swish_is_written_as_it_is_where_there_is_one(tmp_path: Path) -> None:
    d = Drawn()
    gate = d.node("Sigmoid", ["x"], "s", "gate")
    d.node("Mul", ["x", gate], "y", "silu")
    model, out = tmp_path / "model.onnx", tmp_path / "o.onnx"
    onnx.save(d.model({"x": (2, 3)}, {"y": (2, 3)}, opset=20), model)
    found = []
    for besides in ((), ("Swish",)):
        legalise(model, out, LegaliseOptions("edgetpu"), besides=besides)
        found.append([node.op_type for node in onnx.load(out).graph.node])
    assert found == [["Sigmoid", "Mul"], ["Swish"]]


def test_the_table_says_where_each_node_runs_and_why(tmp_path: Path) -> None:
    report = legalise(written(tmp_path), tmp_path / "o.onnx", LegaliseOptions("edgetpu"), {"s": archive(tmp_path)})
    left = {row["node"]: row for row in report["left"]}
    assert left["stem"]["where"] == "accelerator"
    assert left["first"]["reason"] == "edgetpu has no Mish"
    assert left["depthwise"]["reason"] == "it comes after Mish 'first', and edgetpu has one part alone"
    assert report["before"]["handovers"] == 1
    (gate,) = [row for row in report["placement"] if row["node"] == "second" and row["bound"] is not None]
    assert gate["rules"] == ["sigmoid_form"]
    assert 0 < gate["bound"] < 0.032
    assert report["before"]["seconds"]["cortex-a53"] > report["before"]["seconds"]["cortex-a76"] > 0


def test_a_tight_tolerance_takes_more_terms_and_one_too_tight_is_refused(tmp_path: Path) -> None:
    model, samples = written(tmp_path), {"s": archive(tmp_path)}
    terms = []
    for tolerance in (0.1, 0.01):
        report = legalise(model, None, LegaliseOptions("relu-conv-add", tolerance), samples)
        terms.append(max(row["terms"] or 0 for row in report["placement"]))
        assert report["outputs"][0]["sampled"] <= tolerance * report["outputs"][0]["largest"]
    assert terms[0] < terms[1]
    with pytest.raises(UnsupportedModel) as caught:
        legalise(model, None, LegaliseOptions("relu-conv-add", 0.01, terms=4, whole=True), samples)
    assert caught.value.refusals[0].node == "first"
    assert caught.value.refusals[0].operator == "Mish"
    assert "would do" in caught.value.fix


def test_a_proved_bound_is_judged_where_it_is_asked_for(tmp_path: Path) -> None:
    model, samples = written(tmp_path), {"s": archive(tmp_path)}
    report = legalise(model, None, LegaliseOptions("relu-conv-add", 2.0, judge="proved", terms=64), samples)
    said = report["outputs"][0]
    assert said["sampled"] < said["proved"] <= 2.0 * said["largest"]
    normalised = written(tmp_path, "Erf", normalised=True)
    with pytest.raises(UnsupportedModel, match="'first'"):
        legalise(normalised, None, LegaliseOptions("edgetpu", 0.5, judge="proved", terms=4, whole=True), samples)


def test_exact_rules_alone_leave_what_has_no_exact_form(tmp_path: Path) -> None:
    model, samples = written(tmp_path), {"s": archive(tmp_path)}
    report = legalise(model, None, LegaliseOptions("relu-conv-add", method="exact"), samples)
    assert {row["node"] for row in report["placement"] if row["where"] == "cpu"} == {"first", "second"}
    assert report["outputs"][0]["sampled"] < 1e-5
    with pytest.raises(UnsupportedModel, match=r"Mish 'first', relu-conv-add has no Mish"):
        legalise(model, None, LegaliseOptions("relu-conv-add", method="exact", whole=True), samples)


@pytest.mark.parametrize(
    "wrong", [{"judge": "hoped"}, {"method": "magic"}, {"tolerance": 0.0}, {"terms": 0}, {"profile": "none"}]
)
def test_wrong_options_are_named(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(OptionsError) as caught:
        legalise(written(tmp_path), None, LegaliseOptions(**{"profile": "edgetpu", **wrong}))
    assert caught.value.fix


def test_the_command_prints_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = written(tmp_path, "HardSwish"), tmp_path / "o.onnx"
    assert main([str(model), "--for", "edgetpu", "-o", str(out)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert ("HardSwish", "first", "edgetpu has no HardSwish") in [
        (row["operator"], row["node"], row["reason"]) for row in report["left"]
    ]
    assert out.exists()
    assert main([str(model), "--for", "edgetpu", "-o", str(out), "--json", "--samples", str(archive(tmp_path))]) == 0
    assert json.loads(capsys.readouterr().out)["after"]["share"] == 1.0
    assert main([str(model), "--for", "nothing", "--json"]) == 1
    assert "take one of" in json.loads(capsys.readouterr().out)["error"]["fix"]


def test_the_command_says_what_is_wrong_with_a_sample_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "x.npz", x=np.full((1, 3, 16, 16), np.nan, np.float32))
    words = [str(written(tmp_path)), "--for", "edgetpu", "--samples", str(tmp_path / "x.npz")]
    assert main(words) == 1
    assert capsys.readouterr().err.count("input 'x' holds NaN or infinity") == 1


@pytest.mark.parametrize("operator", ["Log", "Acosh"])
def test_a_sample_that_leads_to_no_number_is_refused_with_the_first_such_node(operator: str, tmp_path: Path) -> None:
    d = Drawn()
    d.node("Relu", [d.node(operator, ["x"], "a", "first")], "y", "second")
    onnx.save(d.model({"x": (1, 4)}, {"y": (1, 4)}, opset=17), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.array([[[1, 1, 2, 3]], [[-1, 1, 2, 3]]], np.float32))
    with pytest.raises(InputsError, match=rf"node 'first' \({operator}\) gives NaN on sample 1"):
        legalise(tmp_path / "m.onnx", None, LegaliseOptions("relu-conv-add"), {"s": tmp_path / "x.npz"})
