"""Models for accelerators: written as TFLite, run by LiteRT, compiled by Vela, packed and loaded again."""

from __future__ import annotations

import json
import platform
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import tilewright
from compiler.accelerate.__main__ import main
from compiler.accelerate.chips import CHIPS, chip_of
from compiler.accelerate.compile import compile_for_accelerator, ranges_of
from compiler.accelerate.tflite.convert import Converter
from compiler.accelerate.tflite.operators import OPERATORS
from compiler.accelerate.vela import reasons_of
from compiler.contract import CompileOptions, QuantizeOptions
from compiler.errors import TargetUnavailable, UnsupportedModel
from compiler.pipeline import compile_model
from compiler.quantize.calibrate import Evaluated
from compiler.quantize.network import open_network
from compiler.request import Request
from tests.compiler.accelerate.models import convolution
from tilewright.cli import app

IMAGE = (1, 8, 12, 10)


def _array(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _save(path: Path, nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], shape: tuple[int, ...]) -> Path:
    outputs = [name for node in nodes for name in node.output if name.startswith("y")]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model, data_prop=True), path)
    return path


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "conv": ("Conv", {"w": _array(6, 8, 3, 3)}, {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "conv_odd_pads": ("Conv", {"w": _array(6, 8, 3, 3), "b": _array(6)}, {"pads": [0, 1, 2, 0]}),
    "depthwise": ("Conv", {"w": _array(8, 1, 3, 3)}, {"pads": [1, 1, 1, 1], "group": 8}),
    "depthwise_of_two": ("Conv", {"w": _array(16, 1, 3, 3)}, {"group": 8}),
    "dilated": ("Conv", {"w": _array(6, 8, 3, 3)}, {"dilations": [2, 2]}),
    "transposed": ("ConvTranspose", {"w": _array(8, 5, 2, 2)}, {"strides": [2, 2]}),
    "add": ("Add", {"c": _array(8, 1, 1)}, {}),
    "sub": ("Sub", {"c": _array(1, 8, 12, 10)}, {}),
    "mul": ("Mul", {"c": _array(1, 8, 1, 1)}, {}),
    "relu": ("Relu", {}, {}),
    "abs": ("Abs", {}, {}),
    "max_pool": ("MaxPool", {}, {"kernel_shape": [3, 2], "strides": [2, 2]}),
    "max_pool_padded": ("MaxPool", {}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "average_pool": ("AveragePool", {}, {"kernel_shape": [3, 2], "strides": [2, 2]}),
    "global": ("GlobalAveragePool", {}, {}),
    "mean": ("ReduceMean", {"axes": _ints(1)}, {"keepdims": 0}),
    "flatten": ("Flatten", {}, {}),
    "reshape": ("Reshape", {"shape": _ints(1, 16, 6, 10)}, {}),
    "transpose": ("Transpose", {}, {"perm": [0, 2, 1, 3]}),
    "slice": ("Slice", {"a": _ints(1, 2), "e": _ints(7, 100), "axes": _ints(1, 2), "s": _ints(2, 3)}, {}),
    "pad": ("Pad", {"pads": _ints(0, 1, 2, 0, 0, 0, 1, 3)}, {}),
    "softmax": ("Softmax", {}, {"axis": -1}),
    "sigmoid": ("Sigmoid", {}, {}),
    "tanh": ("Tanh", {}, {}),
    "hard_swish": ("HardSwish", {}, {}),
    "leaky": ("LeakyRelu", {}, {"alpha": 0.2}),
    "prelu": ("PRelu", {"slope": np.abs(_array(8, 1, 1))}, {}),
    "gelu": ("Gelu", {}, {}),
    "bilinear": ("Resize", {"": _ints(), "scales": np.array([1, 1, 2, 2], np.float32)}, {"mode": "linear"}),
    "nearest": (
        "Resize",
        {"": _ints(), "scales": np.array([1, 1, 2, 2], np.float32)},
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "clip": ("Clip", {"low": np.float32(0), "high": np.float32(6)}, {}),
    "clip_around_zero": ("Clip", {"low": np.float32(-0.4), "high": np.float32(1.25)}, {}),
    "clip_below": ("Clip", {"low": np.float32(-0.4)}, {}),
    "squeeze": ("Unsqueeze", {"axes": _ints(1)}, {}),
}


def _run_int8(path: Path, sample: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, float]:
    """What LiteRT makes of one operator, what float64 does of the same rounded input, and the step of the result."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    _, network = open_network(path)
    converted = Converter(network, ranges_of(network, path, QuantizeOptions(), [sample])).convert(OPERATORS)
    runs = litert.Interpreter(
        model_content=converted.model, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
    )
    runs.allocate_tensors()
    (given,), (taken,) = converted.inputs, converted.outputs
    q = np.clip(np.rint(sample["x"] / given.scale[0]) + given.scale[1], -128, 127).astype(np.int8)
    runs.set_tensor(runs.get_input_details()[0]["index"], q.transpose(0, 2, 3, 1) if given.last else q)
    runs.invoke()
    made = runs.get_tensor(runs.get_output_details()[0]["index"]).astype(np.float64)
    made = made.transpose(0, 3, 1, 2) if taken.last else made
    rounded = (given.scale[0] * (q.astype(np.float64) - given.scale[1])).astype(np.float32)
    wanted = Evaluated(path, QuantizeOptions()).outputs({"x": rounded})["y"]
    return taken.scale[0] * (made - taken.scale[1]), wanted, taken.scale[0]


@pytest.mark.parametrize("name", CASES)
def test_an_operator_in_int8_is_near_float64(name: str, tmp_path: Path) -> None:
    kind, constants, attributes = CASES[name]
    node = helper.make_node(kind, ["x", *constants], ["y"], name="one", **attributes)
    kept = {key: array for key, array in constants.items() if key}
    path = _save(tmp_path / "m.onnx", [node], kept, IMAGE)
    made, wanted, step = _run_int8(path, {"x": _array(*IMAGE, seed=5)})
    assert made.shape == wanted.shape
    exact = kind in ("MaxPool", "Flatten", "Reshape", "Transpose", "Slice", "Pad", "Unsqueeze")
    # Constants are rounded to 8 bits too: one step for the result, and what half a step of each weight adds.
    bound = 1e-3 * step if exact else (3.0 if kind.startswith("Conv") else 1.51) * step
    assert np.abs(made - wanted).max() <= bound


def _small(path: Path) -> Path:
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], name="first", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("HardSwish", ["a"], ["b"], name="act"),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="depth", pads=[1, 1, 1, 1], group=16),
        helper.make_node("Add", ["b", "c"], ["d"], name="join"),
        helper.make_node("ConvTranspose", ["d", "w3"], ["e"], name="up", strides=[4, 4]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"], name="pool"),
        helper.make_node("Flatten", ["f"], ["g"], name="flat"),
        helper.make_node("Gemm", ["g", "w4"], ["y"], name="head"),
    ]
    constants = {"w1": _array(16, 3, 3, 3) * 0.3, "b1": _array(16) * 0.1, "w2": _array(16, 1, 3, 3) * 0.3}
    constants |= {"w3": _array(16, 8, 4, 4) * 0.3, "w4": _array(8, 5)}
    return _save(path, nodes, constants, (1, 3, 16, 16))


def test_a_model_is_compiled_placed_and_run_through_its_artifact(tmp_path: Path) -> None:
    pytest.importorskip("ethosu.regor")
    pytest.importorskip("ai_edge_litert.interpreter")
    model, artifact = _small(tmp_path / "m.onnx"), tmp_path / "m.tw"
    x = _array(1, 3, 16, 16, seed=9)
    np.savez(tmp_path / "s.npz", x=x)
    samples = {"s": tmp_path / "s.npz"}
    options = CompileOptions(target="npu:ethos-u55-128", tuning_budget_s=0.0)
    made = compile_for_accelerator(Request(model, artifact, options, samples=samples), compile_model, tolerance=None)
    totals = made.placement["totals"]
    assert totals["cycles"] > 0
    assert totals["calls"] == 2
    left = [row for row in made.placement["operators"] if row["on"] == "cpu"]
    assert [row["node"] for row in left] == ["ConvTranspose up"]
    assert "stride" in left[0]["why"]
    assert left[0]["cpu_s"] == totals["cpu_s"] > 0
    assert "estimated by Vela" in str(made)
    assert [part["on"] for part in made.placement["parts"]] == ["npu:ethos-u55-128", "cpu", "npu:ethos-u55-128"]
    assert [part["bytes_in"] for part in made.placement["parts"]] == [3 * 16 * 16, 16 * 8 * 8, 8 * 32 * 32]
    modelled, others, *measured = made.placement["cpus"]
    assert (modelled["on"], others["on"]) == ("cpu:cortex-a53", "cpu:cortex-a76")
    assert modelled["seconds"] > others["seconds"]
    assert len(measured) == 1
    assert "measured on" in measured[0]["source"]
    (agreed,) = made.agreement
    assert agreed["snr_db"] > 15
    wanted = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    with tilewright.load(artifact) as runs:
        found = runs.run({"x": x})["y"]
        assert runs.bench()["estimated"] is True
        with pytest.raises(runs.errors, match="float32"):
            runs.run({"x": x[0]})
    assert np.abs(found - wanted).max() <= 0.2 * np.abs(wanted).max()
    with zipfile.ZipFile(artifact) as archive:
        assert json.loads(archive.read("placement.json"))["totals"] == totals
        assert all(b"ethos-u" in archive.read(f"accelerator.{number}.tflite") for number in (0, 2))
        assert f"cpu.1.{platform.machine()}.tw" in archive.namelist()


def test_operators_that_the_accelerator_lacks_are_made_of_others_first(tmp_path: Path) -> None:
    pytest.importorskip("ethosu.regor")
    pytest.importorskip("ai_edge_litert.interpreter")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Mish", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Softplus", ["c"], ["y"]),
    ]
    constants = {"w": _array(16, 8, 3, 3) / 8, "v": _array(8, 16, 3, 3, seed=4) / 12}
    model = _save(tmp_path / "m.onnx", nodes, constants, IMAGE)
    samples = tmp_path / "s.npz"
    np.savez(samples, x=np.random.default_rng(5).standard_normal((8, *IMAGE)).astype(np.float32))
    options = CompileOptions(target="npu:ethos-u55-256", tuning_budget_s=0.0)
    made = compile_for_accelerator(Request(model, tmp_path / "m.tw", options, samples={"s": samples}), compile_model)
    report = made.placement["legalised"]
    assert {row["operator"] for row in report["left"] if row["where"] == "cpu"} == {"Mish", "Softplus"}
    assert report["after"]["share"] == 1.0
    assert made.placement["totals"]["on_cpu"] == 0
    (one,) = made.agreement
    assert one["snr_db"] > 20
    assert "legalised: " in str(made)


@pytest.mark.parametrize(("low", "high"), [(0.5, 2.0), (-0.5, 2.0)])
def test_a_clip_that_no_scale_clips_is_refused(low: float, high: float, tmp_path: Path) -> None:
    """Not around 0; or around it, with a scale (here of [-4, 4]) that reaches beyond its ends."""
    node = helper.make_node("Clip", ["x", "low", "high"], ["y"], name="the_clip")
    path = _save(
        tmp_path / "m.onnx", [node], {"low": np.array(low, np.float32), "high": np.array(high, np.float32)}, IMAGE
    )
    _, network = open_network(path)
    with pytest.raises(UnsupportedModel, match="the_clip"):
        Converter(network, {"x": (-4.0, 4.0), "y": (0.0, high) if low > 0 else (-4.0, 4.0)}).convert(OPERATORS)


def test_what_has_no_int8_operator_is_refused_by_its_name(tmp_path: Path) -> None:
    node = helper.make_node("Erf", ["x"], ["y"], name="the_erf")
    path = _save(tmp_path / "m.onnx", [node], {}, IMAGE)
    _, network = open_network(path)
    with pytest.raises(UnsupportedModel, match="Erf 'the_erf'"):
        Converter(network, {"x": (-1.0, 1.0)}).convert(OPERATORS)


def test_an_open_size_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="r")
    path = _save(tmp_path / "m.onnx", [node], {}, ("n", 3))  # type: ignore[arg-type]
    _, network = open_network(path)
    with pytest.raises(UnsupportedModel, match="open size"):
        Converter(network, {"x": (-1.0, 1.0)})


def test_accelerators_are_named_and_others_refused() -> None:
    assert {"npu:ethos-u55-128", "npu:ethos-u65-256", "npu:ethos-u85-256"} <= {chip.target for chip in CHIPS}
    with pytest.raises(TargetUnavailable, match="npu:ethos-u99"):
        chip_of("npu:ethos-u99")


def test_reasons_are_read_from_what_vela_prints() -> None:
    said = ["noise", "Warning (supported operators) operator: SQRT, ofm: 'y'", "Reason: not supported", " at all", ""]
    assert reasons_of(said) == (("SQRT", "y", "not supported; at all"),)


def test_the_command_fixes_open_sizes_and_its_artifact_runs_with_a_time_that_is_said_to_be_estimated(
    tmp_path: Path,
) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="c")
    model = _save(tmp_path / "m.onnx", [node], {"w": _array(6, 8, 3, 3)}, ("n", 8, "h", 10))  # type: ignore[arg-type]
    asked = ["accelerate", str(model), "--target", "npu:ethos-u55-128", "--format", "tosa", "--dim", "n=1", "--dim"]
    done = CliRunner().invoke(app, [*asked, "h=12", "--json"])
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert made["placement"]["totals"]["on_cpu"] == 0
    assert made["placement"]["format"] == "tosa"
    ran = CliRunner().invoke(app, ["run", made["artifact"], "--bench"])
    assert "latency estimated by Vela" in ran.output
    assert "[1, 6, 10, 8]" in ran.output
    refused = CliRunner().invoke(app, [*asked, "q=2", "--json"])
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["error"]["fix"] == "those are: h, n"


def test_a_command_is_given_ranges_equalisation_and_what_outputs_must_have(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("ethosu.regor")
    model = convolution(tmp_path / "m.onnx")
    x = np.stack([_array(1, 3, 8, 8, seed=seed) for seed in range(4)])
    x[0, 0, 0, 0, 0] = 10.0
    np.savez(tmp_path / "s.npz", x=x)
    words = [str(model), "--target", "npu:ethos-u55-32", "--samples", str(tmp_path / "s.npz"), "--dim", "batch=1"]
    said = []
    for more in (["--ranges", "minmax"], ["--ranges", "mse", "--equalise"]):
        assert main([*words, *more, "--snr-db", "90"]) == 1
        said.append(capsys.readouterr().err)
        assert "in int8, less than 90" in said[-1]
    assert said[0] != said[1]
    assert main([*words, "--ranges", "most"]) == 1
    assert "ranges is 'most'" in capsys.readouterr().err
