"""Models given to Vela as TOSA: the same outputs as by TFLite, on every family, with what TOSA lacks on the CPU."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import tilewright
from compiler.accelerate import formats, vela
from compiler.accelerate.chips import Chip
from compiler.accelerate.compile import Accelerated, compile_for_accelerator
from compiler.accelerate.tosa.execute import read
from compiler.contract import CompileOptions
from compiler.errors import InternalError
from compiler.pipeline import compile_model
from compiler.request import Request
from tests.compiler.accelerate.models import array, saved

FAMILIES = ("npu:ethos-u55-128", "npu:ethos-u65-256", "npu:ethos-u85-256")
IMAGE = (1, 3, 16, 16)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A convolution with its clamp, a residual, pools and a layer, and samples."""
    folder = tmp_path_factory.mktemp("tosa")
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], "first", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"], "clamp"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "depthwise", pads=[1, 1, 1, 1], group=8),
        helper.make_node("Add", ["b", "c"], ["d"], "join"),
        helper.make_node("MaxPool", ["d"], ["e"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("HardSwish", ["e"], ["f"], "table"),
        helper.make_node("GlobalAveragePool", ["f"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["h"], "flat"),
        helper.make_node("Gemm", ["h", "w3"], ["y"], "last"),
    ]
    weights = {"w1": array(8, 3, 3, 3), "b1": array(8), "w2": array(8, 1, 3, 3), "w3": array(8, 5)}
    model = saved(folder / "m.onnx", nodes, weights, IMAGE)
    drawn = np.random.default_rng(7).standard_normal((3, *IMAGE)).astype(np.float32)
    np.savez(folder / "s.npz", x=drawn)
    return model, folder / "s.npz"


def _made(network: tuple[Path, Path], target: str, format: str, out: Path) -> Accelerated:
    pytest.importorskip("ethosu")
    model, samples = network
    options = CompileOptions(target=target, format=format, tuning_budget_s=0.0)
    return compile_for_accelerator(Request(model, out, options, samples={"s": samples}), compile_model, tolerance=None)


@pytest.mark.parametrize("target", FAMILIES)
def test_a_network_is_compiled_from_tosa_with_the_outputs_of_tflite(
    target: str, network: tuple[Path, Path], tmp_path: Path
) -> None:
    by = {format: tmp_path / f"{format}.tw" for format in ("tflite", "tosa")}
    placed = {format: _made(network, target, format, out).placement for format, out in by.items()}
    totals = {format: one["totals"] for format, one in placed.items()}
    assert totals["tosa"]["on_cpu"] == 0
    assert (totals["tosa"]["calls"], totals["tosa"]["handovers"]) == (1, 0)
    assert 0 < totals["tosa"]["cycles"] < 2 * totals["tflite"]["cycles"]
    nodes = {row["node"] for row in placed["tosa"]["operators"]}
    assert {
        "Conv first",
        "Conv depthwise",
        "Add join",
        "HardSwish table",
        "GlobalAveragePool mean",
        "Gemm last",
    } <= nodes
    sample = {"x": np.load(network[1])["x"][0]}
    with tilewright.load(by["tosa"]) as tosa:
        found = tosa.run(sample)["y"]
        (step,) = (port["scale"] for port in tosa.manifest["outputs"])
    pytest.importorskip("ai_edge_litert")
    with tilewright.load(by["tflite"]) as tflite:
        assert np.abs(found - tflite.run(sample)["y"]).max() <= 1.001 * step


def test_the_artifact_holds_the_file_that_was_compiled_and_what_runs_it(
    network: tuple[Path, Path], tmp_path: Path
) -> None:
    made = _made(network, FAMILIES[2], "tosa", tmp_path / "m.tw")
    with zipfile.ZipFile(tmp_path / "m.tw") as archive:
        manifest = json.loads(archive.read("manifest.json"))
        (part,) = manifest["parts"]
        graph = read(archive.read(part["model"]))
        assert {"tosa.py", "model.tosa", "accelerator.tflite", "placement.json"} <= {*archive.namelist()}
        assert made.weight_bytes == len(archive.read("model.tosa"))
    assert {"CONV2D", "DEPTHWISE_CONV2D", "RESCALE", "ADD", "MAX_POOL2D", "TABLE"} <= {
        one.kind for one in graph.operators
    }
    assert made.agreement[0]["snr_db"] > 20


def test_what_vela_refuses_of_tosa_runs_on_the_cpu_with_its_reason(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("ConvTranspose", ["a", "up"], ["b"], "up", strides=[3, 3]),
        helper.make_node("Conv", ["b", "w2"], ["y"], "last"),
    ]
    weights = {"w": array(16, 3, 3, 3), "up": array(16, 4, 2, 2), "w2": array(4, 4, 1, 1)}
    model = saved(tmp_path / "m.onnx", nodes, weights, IMAGE)
    np.savez(tmp_path / "s.npz", x=np.random.default_rng(7).standard_normal((2, *IMAGE)).astype(np.float32))
    made = _made((model, tmp_path / "s.npz"), FAMILIES[0], "tosa", tmp_path / "m.tw")
    left = {row["node"]: row["why"] for row in made.placement["operators"] if row["on"] == "cpu"}
    assert "TransposeConv2D" in left["ConvTranspose up"]
    assert made.placement["totals"]["accelerated"] > 0


def test_a_file_that_vela_refuses_without_an_operator_at_fault_ends_the_job(
    network: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses_several(content: bytes, chip: Chip) -> vela.Compiled:
        if len(read(content).operators) > 40:
            raise vela.FileRefused("Vela refuses the file: no reason")
        return vela.compile_file(content, chip)

    monkeypatch.setattr(formats, "compile_file", refuses_several)
    with pytest.raises(InternalError, match="no reason"):
        _made(network, FAMILIES[2], "tosa", tmp_path / "m.tw")
