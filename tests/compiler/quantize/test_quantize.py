from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from compiler.contract import CompileOptions, QuantizeOptions
from compiler.errors import InputsError, OptionsError, UnsupportedModel
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.pack.loader import Model
from compiler.quantize import quantize
from compiler.quantize.calibrate import Calibration, Evaluated
from compiler.quantize.quantize import TRIED
from compiler.rewrite import rewrite
from tests.compiler.quantize.models import Drawn, attention, network, samples, saved, unlike_channels
from tests.compiling import compile_file
from tests.peers import exact_session


def quantised(
    model: onnx.ModelProto, folder: Path, archive: Path | None = None, **options: Any
) -> tuple[Path, dict[str, Any]]:
    out = folder / "quantised.onnx"
    report = quantize(saved(model, folder), out, QuantizeOptions(**options), {"s.npz": archive} if archive else {})
    onnx.checker.check_model(out, full_check=True)
    return out, report.to_json()


def stored(path: Path) -> dict[str, np.ndarray]:
    return {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}


def of_runtime(path: Path, **inputs: np.ndarray) -> np.ndarray:
    return np.asarray(exact_session(path).run(None, inputs)[0])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("whole")
    return quantised(network(), folder, samples(folder / "s.npz"), outputs=True)


X = np.random.default_rng(1).normal(size=(3, 2, 3, 16, 16)).astype(np.float32)


@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_a_bias_that_an_add_gives_costs_no_rounding_of_its_own(activations: str, tmp_path: Path) -> None:
    """A bias far larger than the products that it is added to: rounded between them, these would be lost."""
    made = []
    for apart in (False, True):
        d = Drawn()
        first, bias = d.weights("w1", 6, 3, 3, 3), d.constant("b1", d.random.normal(size=6) * 20 - 20)
        if apart:
            d.constant("b1", d.arrays["b1"].reshape(1, 6, 1, 1))
            d.node("Add", [d.node("Conv", ["x", first], "c1"), bias], "a1")
            d.node("Relu", [d.node("Identity", ["a1"], "i1")], "r1")
        else:
            d.node("Relu", [d.node("Conv", ["x", first, bias], "c1")], "r1")
        d.node("Conv", ["r1", d.weights("w2", 4, 6, 1, 1)], "y")
        folder = tmp_path / str(apart)
        folder.mkdir()
        model = d.model({"x": (2, 3, 16, 16)}, {"y": (2, 4, 14, 14)})
        path, report = quantised(model, folder, samples(folder / "s.npz"), activations=activations)
        assert report["tensors"] == 2
        made.append(of_runtime(path, x=X[0]))
    assert np.array_equal(made[0], made[1])


def test_every_layer_of_a_network_is_int8_and_its_output_near(whole: tuple[Path, dict[str, Any]]) -> None:
    path, report = whole
    assert [(row["node"], row["precision"], row["reason"]) for row in report["layers"]] == [
        (name, "int8", None) for name in ("stem", "depthwise", "pointwise", "again", "head", "gemm")
    ]
    assert all(row["weights_db"] > 35 for row in report["layers"])
    assert report["outputs"][0]["snr_db"] > 35
    assert (report["samples"], report["derived"]) == (3, False)
    assert report["bytes"] == path.stat().st_size


def test_onnx_runtime_gives_the_same_up_to_one_step(whole: tuple[Path, dict[str, Any]]) -> None:
    path, _ = whole
    step = stored(path)["y_scale"]
    for x in X:
        wanted = Evaluated(path, QuantizeOptions()).outputs({"x": x})["y"]
        steps = np.abs(of_runtime(path, x=x) - wanted) / step
        assert steps.max() < 1.01
        assert (steps > 0.01).mean() < 0.02


def test_the_compiler_computes_every_layer_from_the_bytes(whole: tuple[Path, dict[str, Any]]) -> None:
    path, _ = whole
    loaded = load(path, CompileOptions.from_json({"inputs": {"x": [2, 3, 16, 16]}}), OPERATORS)
    counted = Counter(node.op for node in rewrite(loaded.graph).graph.nodes)
    assert counted["ConvInteger"] + counted["MatMulInteger"] == 6
    assert not counted["Conv"] + counted["Gemm"] + counted["MatMul"]


def test_an_artifact_gives_what_onnx_runtime_gives_up_to_one_step(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    path, _ = whole
    options = CompileOptions.from_json({"inputs": {"x": [2, 3, 16, 16]}, "tuning_budget_s": 0, "threads": 1})
    compile_file(path, tmp_path / "model.tw", options)
    with zipfile.ZipFile(tmp_path / "model.tw") as archive:
        calls = json.loads(archive.read("plan.json"))["calls"]
    by_bytes = [call for call in calls if call["tile"].startswith(("integer", "amx_integer"))]
    assert all("Integer" in call["family"] for call in by_bytes)
    assert len(by_bytes) >= 4
    with Model(tmp_path / "model.tw") as model:
        found = model.run({"x": X[0]})["y"]
    steps = np.abs(found - of_runtime(path, x=X[0])) / stored(path)["y_scale"]
    assert steps.max() < 1.01


def test_onnx_runtime_computes_every_layer_from_the_bytes(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path, _ = whole
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    counted = Counter(node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node)
    assert (counted["QLinearConv"], counted["QGemm"], counted["Conv"], counted["Gemm"]) == (5, 1, 0, 0)


def test_weights_biases_and_tensors_have_the_types_that_runtimes_expect(whole: tuple[Path, dict[str, Any]]) -> None:
    path, _ = whole
    model = onnx.load(path)
    arrays = stored(path)
    by_output = {name: node for node in model.graph.node for name in node.output}
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    assert len(layers) == 6
    for node in layers:
        x, weights, bias = (by_output[name] for name in node.input)
        assert arrays[x.input[2]].dtype == np.uint8
        assert arrays[weights.input[0]].dtype == np.int8
        assert arrays[bias.input[0]].dtype == np.int32
        channels = arrays[weights.input[0]].shape[0]
        assert arrays[weights.input[1]].shape == arrays[bias.input[1]].shape == (channels,)
        assert np.array_equal(arrays[bias.input[1]], arrays[x.input[1]] * arrays[weights.input[1]])
        assert not arrays[weights.input[2]].any()


def test_layers_that_share_weights_share_their_bytes(whole: tuple[Path, dict[str, Any]]) -> None:
    model = onnx.load(whole[0])
    by_output = {name: node for node in model.graph.node for name in node.output}
    layers = {node.name: node for node in model.graph.node}
    stores = {name: by_output[layers[name].input[1]].input[0] for name in ("pointwise", "again", "head")}
    assert stores["pointwise"] == stores["again"] != stores["head"]
    assert "w2" not in stored(whole[0])


def test_a_maximum_gives_bytes_with_the_scale_of_those_it_takes(whole: tuple[Path, dict[str, Any]]) -> None:
    model = onnx.load(whole[0])
    pool = next(node for node in model.graph.node if node.op_type == "MaxPool")
    by_output = {name: node for node in model.graph.node for name in node.output}
    behind = next(node for node in model.graph.node if list(node.input[:1]) == list(pool.output))
    assert list(by_output[pool.input[0]].input[1:]) == list(behind.input[1:])


def test_a_budget_leaves_the_most_costly_layer_in_floating_point(tmp_path: Path) -> None:
    d = Drawn()
    wild = d.random.normal(size=(8, 3, 3, 3)) * 0.01
    wild[:, 0, 0, 0] = 30.0  # one weight takes the whole range, and what it meets is nearly nothing
    d.node("Conv", ["x", d.constant("w1", wild)], "c1", "wild")
    d.node("Conv", [d.node("Relu", ["c1"], "r1"), d.weights("w2", 4, 8, 1, 1)], "y", "tame")
    model = d.model({"x": (1, 3, 8, 8)}, {"y": (1, 4, 6, 6)})
    x = d.random.normal(size=(2, 1, 3, 8, 8)).astype(np.float32)
    x[:, :, 0] *= 1e-4
    archive = samples(tmp_path / "s.npz", x=x)
    _, free = quantised(model, tmp_path, archive)
    path, held = quantised(model, tmp_path, archive, snr_db=25.0)
    rows = {row["node"]: row for row in held["layers"]}
    assert free["outputs"][0]["snr_db"] < 25 <= held["outputs"][0]["snr_db"]
    assert (rows["wild"]["precision"], rows["tame"]["precision"]) == ("float32", "int8")
    assert rows["wild"]["outputs_db"] < rows["tame"]["outputs_db"]
    assert "budget" in rows["wild"]["reason"]
    assert "w1" in stored(path)
    loaded = Evaluated(path, QuantizeOptions()).outputs({"x": x[0]})["y"]
    assert np.abs(of_runtime(path, x=x[0]) - loaded).max() < 0.02 * np.abs(loaded).max()


def test_bias_correction_takes_the_shift_of_rounded_weights_out(tmp_path: Path) -> None:
    d = Drawn()
    weights = np.full((4, 64), 0.004)
    weights[:, 0] = 1.0  # a step is 1/127, so that every other weight is rounded up by half of it
    d.node("MatMul", ["x", d.weights("w0", 8, 64)], "h")
    d.node("Gemm", [d.node("Relu", ["h"], "r"), d.constant("w", weights)], "y", "shifted", transB=1)
    model = d.model({"x": (16, 8)}, {"y": (16, 4)})
    archive = samples(tmp_path / "s.npz", x=d.random.normal(size=(4, 16, 8)).astype(np.float32))
    plain = quantised(model, tmp_path, archive, bias_correction=False)[1]["outputs"][0]["snr_db"]
    corrected = quantised(model, tmp_path, archive)[1]["outputs"][0]["snr_db"]
    assert corrected > plain + 3


def test_outputs_are_judged_on_samples_that_ranges_were_not_taken_from(tmp_path: Path) -> None:
    d = Drawn()
    d.node("Gemm", ["x", d.weights("w", 8, 8)], "y")
    model = d.model({"x": (16, 8)}, {"y": (16, 8)})
    x = d.random.normal(size=(4, 16, 8)).astype(np.float32)
    _, like = quantised(model, tmp_path, samples(tmp_path / "s.npz", x=x))
    x[3] *= 10
    _, unlike = quantised(model, tmp_path, samples(tmp_path / "s.npz", x=x))
    assert (like["samples"], like["held_out"], unlike["held_out"]) == (4, 1, 1)
    assert like["outputs"][0]["snr_db"] > 30
    assert unlike["outputs"][0]["snr_db"] < 10
    _, few = quantised(model, tmp_path, samples(tmp_path / "s.npz", x=x[1:]))
    assert few["held_out"] == 0
    assert any("none is held out" in notice for notice in few["notices"])


@pytest.mark.parametrize(("power", "method"), [(5.0, "mse"), (1.0, "minmax")])
def test_samples_held_out_decide_how_ranges_are_chosen(tmp_path: Path, power: float, method: str) -> None:
    d = Drawn()
    d.node("MatMul", ["x", d.constant("w", np.eye(16))], "h")
    d.node("MatMul", ["h", d.constant("v", np.eye(16))], "i")
    d.node("Pow", ["i", d.constant("power", power)], "y")  # to the fifth the large values are the signal
    model = d.model({"x": (256, 16)}, {"y": (256, 16)})
    x = d.random.normal(size=(4, 256, 16)).astype(np.float32)
    x[:, 0, 0] = 15.0
    archive = samples(tmp_path / "s.npz", x=x)
    alone = {one: quantised(model, tmp_path, archive, ranges=one)[1]["outputs"] for one in TRIED}
    _, best = quantised(model, tmp_path, archive)
    assert max(alone, key=lambda one: alone[one][0]["snr_db"]) == method
    assert best["outputs"] == alone[method]
    assert any(f"ranges are those of {method}" in notice for notice in best["notices"])


def test_a_correction_that_does_not_hold_on_other_samples_is_left_out(tmp_path: Path) -> None:
    d = Drawn()
    weights = np.full((4, 64), 0.004)
    weights[:, 0] = 1.0
    d.node("Gemm", ["x", d.constant("w", weights)], "y", "shifted", transB=1)
    model = d.model({"x": (16, 64)}, {"y": (16, 4)})
    x = d.random.normal(size=(4, 16, 64)).astype(np.float32) + 1
    x[3] -= 2  # the held-out sample has the other sign
    archive = samples(tmp_path / "s.npz", x=x)
    found, plain = (quantised(model, tmp_path, archive, bias_correction=on)[1]["outputs"] for on in (True, False))
    assert found == plain


def test_shifts_of_means_are_made_smaller_by_what_chance_explains() -> None:
    rng = np.random.default_rng(0)
    certain = np.array([0.5, -0.25])
    found = Calibration(shifts={"same": [certain] * 4, "one": [certain]})
    found.shifts["chance"] = [*rng.normal(size=(8, 512))]
    found.shifts["both"] = [certain[:1] + one for one in rng.normal(size=(8, 512))]
    assert np.array_equal(found.shift("same"), certain)
    assert np.array_equal(found.shift("one"), certain)
    assert np.square(found.shift("chance")).mean() < 0.1 * np.square(np.mean(found.shifts["chance"], axis=0)).mean()
    mean = np.mean(found.shifts["both"], axis=0)
    assert np.square(found.shift("both") - 0.5).mean() < np.square(mean - 0.5).mean()


def test_equalisation_helps_channels_of_different_sizes(tmp_path: Path) -> None:
    model, random = unlike_channels()
    archive = samples(tmp_path / "s.npz", x=random.normal(size=(4, 1, 3, 8, 8)).astype(np.float32))
    plain, equal = (quantised(model, tmp_path, archive, equalise=on)[1]["outputs"][0]["snr_db"] for on in (False, True))
    assert equal > plain + 10


def test_channels_and_tensors_of_zeros_stay_zero(tmp_path: Path) -> None:
    d = Drawn()
    weights = d.random.normal(size=(4, 3, 1, 1))
    weights[2] = 0
    d.node("Conv", ["x", d.constant("w", weights), d.constant("b", [0.5, 0, -1.25, 2])], "c", "holed")
    d.node("Conv", ["c", d.constant("w0", np.zeros((2, 4, 1, 1)))], "y", "zero")
    model = d.model({"x": (1, 3, 4, 4)}, {"y": (1, 2, 4, 4), "c": (1, 4, 4, 4)})
    path, report = quantised(model, tmp_path, samples(tmp_path / "s.npz", x=np.zeros((1, 3, 4, 4), np.float32)))
    assert [row["precision"] for row in report["layers"]] == ["int8", "int8"]
    found = Evaluated(path, QuantizeOptions()).outputs({"x": np.zeros((1, 3, 4, 4), np.float32)})
    assert not found["y"].any()
    assert np.allclose(found["c"][0, :, 0, 0], [0.5, 0, -1.25, 2], atol=1e-4)


@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_products_of_matrices_and_transposed_convolutions_are_quantised(activations: str, tmp_path: Path) -> None:
    d = Drawn()
    d.node("ConvTranspose", ["x", d.weights("wt", 4, 3, 2, 2), d.weights("bt", 6)], "t", "up", strides=[2, 2], group=2)
    d.node("Reshape", ["t", d.constant("shape", [1, 6, 64], np.int64)], "flat")
    d.node("Add", [d.node("MatMul", ["flat", d.weights("w", 64, 5)], "m", "product"), d.weights("b", 5)], "y")
    x = d.random.normal(size=(3, 1, 4, 4, 4)).astype(np.float32)
    model = d.model({"x": (1, 4, 4, 4)}, {"y": (1, 6, 5)})
    path, report = quantised(model, tmp_path, samples(tmp_path / "s.npz", x=x), activations=activations)
    assert [row["precision"] for row in report["layers"]] == ["int8", "int8"]
    assert report["outputs"][0]["snr_db"] > 30
    wanted = Evaluated(path, QuantizeOptions()).outputs({"x": x[0]})["y"]
    assert np.abs(of_runtime(path, x=x[0]) - wanted).max() < 1e-2 * np.abs(wanted).max()


def test_attention_is_computed_from_bytes_and_its_scores_are_not_rounded(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(4, 2, 6, 8)).astype(np.float32)
    path, report = quantised(attention(), tmp_path, samples(tmp_path / "s.npz", x=x))
    rows = {row["node"]: row for row in report["layers"]}
    assert {row["precision"] for row in rows.values()} == {"int8"}
    assert (rows["scores"]["weights"], rows["scores"]["weights_db"]) == (None, None)
    graph = onnx.load(path).graph
    maker = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        if node.name in ("scores", "mixed"):
            assert [maker[name].op_type for name in node.input] == ["DequantizeLinear"] * 2
    (scores,) = (node for node in graph.node if node.name == "scores")
    behind = {node.op_type for node in graph.node if scores.output[0] in node.input}
    assert behind == {"Mul"}, "the factors of both operands, and no rounding"
    factor = stored(path)[next(node for node in graph.node if scores.output[0] in node.input).input[1]]
    assert np.allclose(factor, 8**-0.5)
    assert report["outputs"][0]["snr_db"] > 25
    wanted = Evaluated(path, QuantizeOptions()).outputs({"x": x[0]})["y"]
    assert np.abs(of_runtime(path, x=x[0]) - wanted).max() < 1e-2 * np.abs(wanted).max()


@pytest.mark.parametrize("kept", ["scores", "mixed"])
def test_a_product_of_attention_may_be_kept_in_floating_point(kept: str, tmp_path: Path) -> None:
    _, report = quantised(attention(), tmp_path, dims={}, derived_samples=2, keep=(kept,))
    assert [row["node"] for row in report["layers"] if row["precision"] == "float32"] == [kept]
    _, report = quantised(attention(), tmp_path, dims={}, derived_samples=2, attention=False)
    left = {row["node"]: row["reason"] for row in report["layers"] if row["precision"] == "float32"}
    assert left == dict.fromkeys(("scores", "mixed"), "its weights are not constant, or quantised already")


def test_factors_stay_where_others_read_the_scaled_operand(tmp_path: Path) -> None:
    model = attention()
    model.graph.output.append(onnx.helper.make_tensor_value_info("qs", onnx.TensorProto.FLOAT, (2, 6, 8)))
    path, report = quantised(model, tmp_path, dims={}, derived_samples=2)
    assert {row["precision"] for row in report["layers"]} == {"int8"}
    assert [one.name for one in onnx.load(path).graph.output] == ["y", "qs"]
    assert min(row["snr_db"] for row in report["outputs"]) > 25


def test_weights_that_are_listed_as_inputs_are_constants(tmp_path: Path) -> None:
    model = network()
    weights = next(one for one in model.graph.initializer if one.name == "w4")
    model.graph.input.append(onnx.helper.make_tensor_value_info("w4", weights.data_type, weights.dims))
    path, report = quantised(model, tmp_path, samples(tmp_path / "s.npz"))
    assert [one.name for one in onnx.load(path).graph.input] == ["x"]
    assert {row["precision"] for row in report["layers"]} == {"int8"}


def test_layers_that_are_named_stay_in_floating_point(tmp_path: Path) -> None:
    _, report = quantised(network(), tmp_path, samples(tmp_path / "s.npz"), keep=("head", "stem"))
    kept = {row["node"]: row["reason"] for row in report["layers"] if row["precision"] == "float32"}
    assert kept == {"stem": "it is to be kept", "head": "it is to be kept"}


def test_without_samples_some_are_drawn_and_said_to_be(tmp_path: Path) -> None:
    _, report = quantised(network(), tmp_path, dims={"N": 1}, derived_samples=2)
    assert (report["samples"], report["derived"]) == (2, True)
    assert any("no samples were given" in notice for notice in report["notices"])


def test_a_model_without_a_layer_is_refused_with_the_reason_of_each(tmp_path: Path) -> None:
    d = Drawn()
    d.node("Relu", ["x"], "y")
    with pytest.raises(UnsupportedModel, match="there is no Conv"):
        quantised(d.model({"x": (1, 3)}, {"y": (1, 3)}), tmp_path)
    d = Drawn()
    d.node("MatMul", ["x", "z"], "y", "attention")
    with pytest.raises(UnsupportedModel, match="no layer to quantise") as raised:
        quantised(d.model({"x": (3, 3), "z": (3, 3)}, {"y": (3, 3)}), tmp_path, attention=False)
    assert raised.value.refusals[0].node == "attention"
    assert "not constant" in raised.value.refusals[0].reason


@pytest.mark.parametrize("opset", [9, 12])
def test_an_opset_without_scales_for_channels_is_converted(opset: int, tmp_path: Path) -> None:
    """Squeeze has its axes as an attribute there, and as an input since."""
    d = Drawn()
    d.node("MatMul", ["x", d.weights("w", 3, 4)], "a", "product")
    d.node("Squeeze", ["a"], "y", axes=[0])
    path, report = quantised(d.model({"x": (1, 5, 3)}, {"y": (5, 4)}, opset=opset), tmp_path)
    assert [layer["node"] for layer in report["layers"]] == ["product"]
    (found,) = (one for one in onnx.load(path).opset_import if not one.domain)
    assert found.version == 13
    assert report["outputs"][0]["snr_db"] > 10


def test_an_opset_that_cannot_be_converted_is_refused_with_the_fix(tmp_path: Path, monkeypatch: Any) -> None:
    d = Drawn()
    d.node("MatMul", ["x", d.weights("w", 3, 4)], "y")

    def refuse(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("compiler.quantize.network.version_converter.convert_version", refuse)
    with pytest.raises(UnsupportedModel, match="opset 12, this needs opset 13") as raised:
        quantised(d.model({"x": (1, 3)}, {"y": (1, 4)}, opset=12), tmp_path)
    assert "opset 13" in raised.value.fix


def test_a_tensor_that_overflows_is_refused_with_its_node(tmp_path: Path) -> None:
    d = Drawn()
    d.node("MatMul", ["x", d.weights("w", 3, 4)], "m", "first")
    d.node("MatMul", [d.node("Exp", ["m"], "e"), d.weights("w2", 4, 4)], "y")
    archive = samples(tmp_path / "s.npz", x=np.full((1, 3), 1e30, np.float32))
    with pytest.raises(InputsError, match="the result of Exp 'e' is not finite on sample 1"):
        quantised(d.model({"x": (1, 3)}, {"y": (1, 4)}), tmp_path, archive)


def test_names_of_no_layer_and_options_out_of_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="'nowhere'"):
        quantised(network(), tmp_path, samples(tmp_path / "s.npz"), keep=("nowhere",))
    for wrong in ({"ranges": "widest"}, {"snr_db": -3.0}, {"percentile": 20.0}, {"activations": "int4"}):
        with pytest.raises(OptionsError, match=next(iter(wrong))):
            QuantizeOptions(**wrong)
    options = QuantizeOptions.from_json({"snr_db": 30, "keep": ["a"], "inputs": {"x": [1, 3]}, "dims": {"n": 2}})
    assert QuantizeOptions.from_json(options.to_json()) == options
