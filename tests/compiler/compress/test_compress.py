from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from compiler.compress import compress
from compiler.compress.__main__ import main
from compiler.compress.alone import SCALE, model_of
from compiler.compress.alone import stored as in_a_layer
from compiler.compress.factors import rank_of
from compiler.compress.gram import inputs_of
from compiler.compress.layers import GROUPED, layers_of
from compiler.compress.parts import parts_of
from compiler.contract import CompileOptions, CompressOptions
from compiler.devices.cpu.target import this_machine
from compiler.devices.cuda import nvrtc
from compiler.errors import BudgetMissed, InputsError, OptionsError, UnsupportedModel
from compiler.pack.loader import Model
from compiler.quantize.calibrate import Evaluated
from compiler.quantize.network import open_network
from tests.compiler.compress.models import cnn, samples
from tests.compiler.quantize.models import Drawn, saved
from tests.compiling import compile_file
from tests.peers import exact_session


def pruned(folder: Path, model: onnx.ModelProto | None = None, **options: Any) -> tuple[Path, dict[str, Any]]:
    source = saved(model or cnn(), folder)
    out = folder / "pruned.onnx"
    given = CompressOptions(tuning_budget_s=0.0, **options)
    report = compress(source, out, given, {"s.npz": samples(folder / "s.npz")})
    onnx.checker.check_model(out, full_check=True)
    return out, report.to_json()


def stored(path: Path) -> dict[str, np.ndarray]:
    return {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}


def of_runtime(path: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def test_the_error_that_is_told_is_the_one_another_runtime_finds_and_within_the_budget(tmp_path: Path) -> None:
    out, report = pruned(tmp_path, largest_error=0.1)
    assert 0 < report["error"] <= 0.1
    assert report["predicted_ms"] < report["dense_ms"]
    assert (report["samples"], report["held_out"], report["derived"]) == (6, 2, False)
    unseen = np.load(tmp_path / "s.npz")["x"][6:]
    both = [np.stack([of_runtime(file, x) for x in unseen]) for file in (tmp_path / "model.onnx", out)]
    assert np.linalg.norm(both[1] - both[0]) / np.linalg.norm(both[0]) == pytest.approx(report["error"], rel=1e-3)
    assert "only a test on your own data" in report["notices"][0]
    curve = report["curve"]
    assert len(curve) >= 6
    assert [one["predicted_ms"] for one in curve] == sorted((one["predicted_ms"] for one in curve), reverse=True)
    assert (curve[0]["error"], curve[0]["sparsity"]) == (0, 0)


def test_only_weights_change_and_every_layer_has_its_reason(tmp_path: Path) -> None:
    out, report = pruned(tmp_path, sparsity=0.8)
    assert report["sparsity"] >= 0.8
    rows = {row["node"]: row for row in report["layers"]}
    assert list(rows) == ["stem", "middle", "depthwise", "pointwise", "hidden", "head"]
    assert rows["depthwise"]["reason"] == GROUPED
    assert "432 weights" in rows["stem"]["reason"]
    assert [len(rows[name]["levels"]) for name in ("stem", "middle")] == [0, 7]
    before, after = stored(tmp_path / "model.onnx"), stored(out)
    assert before.keys() == after.keys()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {"w1", "w2", "w3"}
    for node, name in (("middle", "w1"), ("pointwise", "w2"), ("hidden", "w3")):
        assert 1 - np.count_nonzero(after[name]) / after[name].size == pytest.approx(rows[node]["sparsity"], abs=1e-4)
    nodes = [[*onnx.load(file).graph.node] for file in (tmp_path / "model.onnx", out)]
    assert nodes[0] == nodes[1]


def test_forms_hold_in_the_files_weights(tmp_path: Path) -> None:
    out, _ = pruned(tmp_path, sparsity=0.7, form="1x4")
    for name in ("w1", "w2", "w3"):
        kept = stored(out)[name] != 0
        groups = kept.reshape(-1, 4, *kept.shape[1:])
        assert np.array_equal(groups.any(1), groups.all(1))
    out, report = pruned(tmp_path, sparsity=0.5, form="2:4")
    kept = stored(out)["w1"] != 0
    assert (kept.reshape(32, 4, 4, 3, 3).sum(2) == 2).all()
    assert len(report["curve"]) >= 4


def test_weights_that_share_values_save_as_many_bits_as_asked_with_little_error(tmp_path: Path) -> None:
    out, report = pruned(tmp_path, sparsity=0.8, form="codebook")
    assert 0.8 <= report["sparsity"] < 0.95
    assert report["saved"] == "bits saved"
    assert 0 < report["error"] < 0.2
    rows = {row["node"]: row for row in report["layers"]}
    assert [one["sparsity"] for one in rows["middle"]["levels"]] == [0.0, 0.75, 0.875, 0.9375]
    for node, name in (("middle", "w1"), ("pointwise", "w2"), ("hidden", "w3")):
        weights = stored(out)[name]
        (values, each) = {0.75: (256, 1), 0.875: (16, len(weights)), 0.9375: (4, len(weights))}[
            round(rows[node]["sparsity"], 4)
        ]
        assert max(len(np.unique(line)) for line in weights.reshape(each, -1)) <= values


def test_codebooks_are_made_as_small_as_an_error_allows(tmp_path: Path) -> None:
    _, wide = pruned(tmp_path, largest_error=0.3, form="codebook")
    _, near = pruned(tmp_path, largest_error=0.02, form="codebook")
    assert near["error"] <= 0.02
    assert wide["error"] <= 0.3
    assert near["sparsity"] < wide["sparsity"]


def test_layers_of_low_rank_are_two_nodes_of_the_ranks_that_are_told(tmp_path: Path) -> None:
    out, report = pruned(tmp_path, sparsity=0.6, form="low_rank")
    assert (report["saved"], report["sparsity"] >= 0.6, 0 < report["error"] < 0.4) == (
        "weights saved",
        True,
        True,
    )
    rows = {row["node"]: row for row in report["layers"]}
    before, after = stored(tmp_path / "model.onnx"), stored(out)
    nodes = [node for node in onnx.load(out).graph.node if node.name]
    for name in ("middle", "pointwise", "hidden"):
        rank, whole = rows[name]["rank"], before[{"middle": "w1", "pointwise": "w2", "hidden": "w3"}[name]]
        first, last = (node for node in nodes if node.name in (f"{name}_low_rank", name))
        u, v = after[last.input[1]], after[first.input[1]]
        assert [first.output[0], len(first.input), len(last.input)] == [last.input[0], 2, 3]
        assert u.shape[1] == rank == v.shape[0 if name != "hidden" else 1]
        assert 1 - (u.size + v.size) / whole.size == pytest.approx(rows[name]["sparsity"], abs=1e-4)
        ranks = [one["rank"] for one in rows[name]["levels"]]
        assert (ranks[0], ranks[1:]) == (None, sorted(ranks[1:], reverse=True))
    assert rows["depthwise"]["rank"] is None
    unseen = np.load(tmp_path / "s.npz")["x"][6:]
    both = [np.stack([of_runtime(file, x) for x in unseen]) for file in (tmp_path / "model.onnx", out)]
    assert np.linalg.norm(both[1] - both[0]) / np.linalg.norm(both[0]) == pytest.approx(report["error"], rel=1e-3)
    compile_file(out, tmp_path / "low.tw", CompileOptions(tuning_budget_s=0.0))
    with Model(tmp_path / "low.tw") as model:
        assert np.allclose(model.run({"x": unseen[0]})["y"], both[1][0], rtol=1e-4, atol=1e-5)


def test_what_cannot_be_factored_stays_as_it_is(tmp_path: Path) -> None:
    d = Drawn()
    d.node("MatMul", ["x", d.weights("w0", 40, 1100)], "a", "wide")
    d.node("MatMul", ["a", d.weights("w1", 1100, 1)], "y", "narrow")
    gates = [d.weights("w", 1, 96, 16), d.weights("r", 1, 96, 32)]
    d.node("GRU", ["z", *gates], "s", "steps", hidden_size=32)
    source = saved(d.model({"x": (2, 40), "z": (3, 1, 16)}, {"y": (2, 1), "s": (3, 1, 1, 32)}), tmp_path)
    options = CompressOptions(sparsity=0.5, form="low_rank", ends=True, tuning_budget_s=0.0, derived_samples=2)
    rows = {row["node"]: row for row in compress(source, tmp_path / "low.onnx", options).to_json()["layers"]}
    assert 0 < rows["wide"]["rank"] <= rank_of(1100, 40, 0.5)
    assert "rank 1 save less than half" in rows["narrow"]["reason"]
    assert "recurrent" in rows["steps"]["reason"]


def test_a_time_is_reached_with_less_error_than_by_a_greater_one(tmp_path: Path) -> None:
    _, dense = pruned(tmp_path, sparsity=0.5)
    assert dense["saved"] == "zeros"
    fastest = dense["curve"][-1]["predicted_ms"]
    middle = (fastest + dense["dense_ms"]) / 2
    _, report = pruned(tmp_path, latency_ms=middle)
    assert report["predicted_ms"] <= middle
    with pytest.raises(BudgetMissed, match="cannot be reached"):
        pruned(tmp_path, latency_ms=fastest / 100)


def test_what_cannot_be_held_is_said(tmp_path: Path) -> None:
    with pytest.raises(BudgetMissed, match="no layer can be pruned to advantage") as missed:
        pruned(tmp_path, largest_error=1e-6)
    assert missed.value.details is not None
    assert set(missed.value.details["alone"]) == {"middle", "pointwise", "hidden"}
    with pytest.raises(BudgetMissed, match=r"0\.98 zeros"):
        pruned(tmp_path, sparsity=0.98)
    with pytest.raises(BudgetMissed, match="no layer can be clustered to advantage"):
        pruned(tmp_path, largest_error=1e-6, form="codebook")


def test_wrong_weights_samples_and_names_are_refused(tmp_path: Path) -> None:
    broken = cnn()
    (weights,) = [one for one in broken.graph.initializer if one.name == "w1"]
    array = numpy_helper.to_array(weights).copy()
    array[0, 0, 0, 0] = np.nan
    weights.CopyFrom(numpy_helper.from_array(array, "w1"))
    with pytest.raises(UnsupportedModel, match="not finite, the first is 'middle'"):
        pruned(tmp_path, broken, sparsity=0.5)
    d = Drawn()
    d.node("Relu", ["x"], "y")
    with pytest.raises(
        UnsupportedModel, match="no layer to compress: there is no Conv, Gemm, MatMul or recurrent layer"
    ):
        pruned(tmp_path, d.model({"x": (1, 3, 12, 12)}, {"y": (1, 3, 12, 12)}), sparsity=0.5)
    with pytest.raises(OptionsError, match="keep names 'nowhere'"):
        pruned(tmp_path, sparsity=0.5, keep=("nowhere",))
    source, options = saved(cnn(), tmp_path), CompressOptions(sparsity=0.5)
    for count, said in ((1, "only one sample is given"),):
        with pytest.raises(InputsError, match=said):
            compress(source, tmp_path / "o.onnx", options, {"s": samples(tmp_path / "one.npz", count)})
    np.savez(tmp_path / "wide.npz", x=np.zeros((2, 1, 3, 5, 5), np.float32))
    with pytest.raises(InputsError, match="'s' cannot be used"):
        compress(source, tmp_path / "o.onnx", options, {"s": tmp_path / "wide.npz"})
    assert not (tmp_path / "o.onnx").exists()


def test_one_aim_is_given() -> None:
    for given, said in (({}, "nothing says"), ({"sparsity": 0.5, "latency_ms": 1.0}, "given together")):
        with pytest.raises(OptionsError, match=said):
            CompressOptions.from_json(given)
    with pytest.raises(OptionsError, match="target 'abacus' is unknown"):
        CompressOptions(sparsity=0.5, target="abacus")
    with pytest.raises(OptionsError, match="precision 'fp16' "):
        CompressOptions(sparsity=0.5, precision="fp16")
    options = CompressOptions(sparsity=0.5, keep=("a",), dims={"n": 2})
    assert CompressOptions.from_json(options.to_json()) == options


def test_columns_times_rows_are_what_the_layer_computes(tmp_path: Path) -> None:
    d = Drawn()
    window = {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}
    d.node("Conv", ["x", d.weights("w0", 16, 8, 3, 3)], "c0", "strided", **window)
    d.node("Conv", ["c0", d.weights("w1", 64, 16, 1, 2)], "c1", "same", auto_pad="SAME_UPPER")
    path = saved(d.model({"x": (2, 8, 9, 10)}, {"c1": (2, 64, "h", "w")}), tmp_path)
    _, network = open_network(path)
    evaluated = Evaluated(path, CompressOptions(sparsity=0.5))
    sample = {"x": np.random.default_rng(0).normal(size=(2, 8, 9, 10)).astype(np.float32)}
    graph = evaluated.loaded(sample).graph
    layers, left = layers_of(network, graph, (), ends=True)
    values = evaluated.values(sample, [id for node in graph.nodes for id in (*node.used, *node.outputs)])
    assert ([layer.name for layer in layers], left) == (["strided", "same"], [])
    for layer in layers:
        made = inputs_of(layer, values[layer.inner.used[0]]) @ layer.rows(layer.weights).T
        wanted = np.moveaxis(values[layer.inner.outputs[0]], 1, -1).reshape(len(made), -1)
        assert np.allclose(made, wanted)
        assert np.array_equal(layer.shaped(layer.rows(layer.weights)), layer.weights)


@pytest.mark.skipif(not this_machine().multiplies_bytes, reason="bytes gain little here, with zeros or without")
def test_blocks_of_zeros_pay_in_bytes(tmp_path: Path) -> None:
    """Beside a dense convolution in fp32 that is none of Winograd's, which may be as fast as bytes."""
    d = Drawn()
    d.node("Conv", ["x", d.weights("w0", 64, 16, 1, 1)], "a", "first")
    d.node(
        "Conv", ["a", d.weights("w1", 64, 64, 3, 3), d.weights("b1", 64)], "b", "window", pads=[1] * 4, strides=[2, 2]
    )
    d.node("Flatten", [d.node("GlobalAveragePool", ["b"], "gap")], "flat")
    d.node("Gemm", ["flat", d.weights("w2", 256, 64), d.weights("b2", 256)], "c", "product", transB=1)
    d.node("MatMul", ["c", d.weights("w3", 256, 32)], "y", "last")
    source = saved(d.model({"x": (4, 16, 12, 12)}, {"y": (4, 32)}), tmp_path)
    found = {}
    for precision in ("fp32", "int8"):
        options = CompressOptions(
            sparsity=0.9, form="4x16", method="magnitude", precision=precision, tuning_budget_s=0.0, derived_samples=2
        )
        report = compress(source, tmp_path / f"{precision}.onnx", options).to_json()
        layers = {layer["node"]: layer for layer in report["layers"] if layer["levels"]}
        assert set(layers) == {"window", "product"}
        assert report["predicted_ms"] < report["dense_ms"]
        found[precision] = layers["window"]
    assert found["int8"]["us"] < 0.5 * found["int8"]["dense_us"]
    assert found["int8"]["dense_us"] < found["fp32"]["dense_us"]
    both = [stored(tmp_path / f"{precision}.onnx")["w1"] for precision in found]
    assert np.array_equal(both[0], both[1]), "what is written is in fp32"


def test_a_layer_alone_in_bytes_computes_what_it_does_in_fp32_but_for_rounding(tmp_path: Path) -> None:
    d = Drawn()
    d.node("Conv", ["x", d.weights("w0", 32, 8, 3, 3)], "a", "window", strides=[2, 1], pads=[1, 0, 1, 0])
    d.node("Flatten", [d.node("GlobalAveragePool", ["a"], "gap")], "flat")
    d.node("Gemm", ["flat", d.weights("w1", 48, 32), d.weights("b1", 48)], "y", "product", transB=1)
    path = saved(d.model({"x": (2, 8, 9, 10)}, {"y": (2, 48)}), tmp_path)
    _, network = open_network(path)
    sample = {"x": np.zeros((2, 8, 9, 10), np.float32)}
    layers, _ = layers_of(network, Evaluated(path, CompressOptions(sparsity=0.5)).loaded(sample).graph, (), ends=True)
    random = np.random.default_rng(2)
    for layer, x in zip(layers, ((2, 8, 9, 10), (2, 32)), strict=True):
        weights = (layer.weights * (random.random(layer.weights.shape) < 0.3)).astype(np.float32)
        weights[3] = 0
        parts = parts_of(layer, weights, None)
        given = random.integers(0, 256, [x[0], *x[2:], x[1]] if len(x) > 2 else x).astype(np.uint8)
        results = []
        for in_bytes in (True, False):
            model = model_of(layer, x, parts, in_bytes=in_bytes)
            session = exact_session(model)
            real = given if in_bytes else (given.astype(np.float32) - 128) * SCALE
            (result,) = session.run(None, {"x": real})
            results.append((result.astype(np.float32) - 128) * SCALE if in_bytes else result)
        rounded, exact = results
        assert np.abs(rounded - np.clip(exact, -128 * SCALE, 127 * SCALE)).max() < 1.5 * SCALE
        assert np.abs(exact).max() > 20 * SCALE
        kept = in_a_layer(parts[0], in_bytes=True)
        assert kept.dtype == np.int8
        assert not kept[weights == 0].any()


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")
def test_two_of_four_zeros_pay_on_gpus_in_16_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
    d = Drawn()
    d.node("MatMul", ["x", d.weights("w0", 64, 512)], "a", "first")
    d.node("Relu", ["a"], "b", "between")
    d.node("MatMul", ["b", d.weights("w1", 512, 512)], "c", "middle")
    d.node("Relu", ["c"], "e", "then")
    d.node("MatMul", ["e", d.weights("w2", 512, 64)], "y", "last")
    source, archive = saved(d.model({"x": (32, 64)}, {"y": (32, 64)}), tmp_path), tmp_path / "s.npz"
    np.savez(archive, x=np.random.default_rng(3).normal(size=(3, 32, 64)).astype(np.float32))
    found = {}
    for precision in ("fp32", "fp16"):
        options = CompressOptions(
            sparsity=0.4, form="2:4", method="magnitude", target="cuda:sm_80", precision=precision, tuning_budget_s=0.0
        )
        report = compress(source, tmp_path / "o.onnx", options, {"s": archive}).to_json()
        (layer,) = (one for one in report["layers"] if one["levels"])
        found[precision] = layer["us"] / layer["dense_us"]
    assert found["fp16"] < 0.95 < found["fp32"]


def test_the_command_writes_the_model_and_says_what_became_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, archive = saved(cnn(), tmp_path), samples(tmp_path / "s.npz")
    options = {"sparsity": 0.6, "method": "wanda", "tuning_budget_s": 0.0}
    assert main([str(source), "--samples", str(archive), "--options", json.dumps(options)]) == 0
    said = capsys.readouterr().out
    assert (tmp_path / "model.compressed.onnx").is_file()
    assert all(part in said for part in ("middle  Conv", "curve:", "output y: error", "of decisions agree"))
    assert main([str(source), "--options", "{}"]) == 1
    assert "nothing says how far to go" in capsys.readouterr().err
