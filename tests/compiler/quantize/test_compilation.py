from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantType, quantize_static

from compiler.contract import CompileOptions, CompileReport, QuantizeOptions
from compiler.devices.cuda import nvrtc
from compiler.errors import BudgetMissed, InputsError, OptionsError, UnsupportedModel
from compiler.pack.loader import Model
from compiler.preflight import preflight
from compiler.quantize import quantize
from compiler.reproduce import reproduce
from compiler.trace import Trace
from tests.compiler.quantize.models import Drawn, attention, network, samples, saved, unlike_channels
from tests.compiling import compile_file
from tests.peers import exact_session

UNMEASURED = {"precision": "int8", "tuning_budget_s": 0.0, "threads": 1}


def compiled(
    path: Path, archives: dict[str, Path] | None = None, **options: Any
) -> tuple[CompileReport, dict[str, Any], Path]:
    """The report, the manifest and the artifact."""
    out = path.with_suffix(".tw")
    report = compile_file(path, out, CompileOptions.from_json({**UNMEASURED, **options}), samples=archives)
    with zipfile.ZipFile(out) as archive:
        return report, json.loads(archive.read("manifest.json")), out


def runs(model: bytes | Path, x: np.ndarray) -> np.ndarray:
    return np.asarray(exact_session(model).run(None, {"x": x})[0])


def uneven(folder: Path) -> tuple[Path, Path]:
    """A model of a layer that int8 does well behind one that it does badly, and samples."""
    d = Drawn()
    wild = d.random.normal(size=(8, 3, 3, 3)) * 0.01
    wild[:, 0, 0, 0] = 30.0  # one weight takes the whole range, and what it meets is nearly nothing
    d.node("Conv", ["x", d.constant("w1", wild)], "c1", "wild")
    d.node("Conv", [d.node("Relu", ["c1"], "r1"), d.weights("w2", 4, 8, 1, 1)], "y", "tame")
    x = d.random.normal(size=(2, 1, 3, 8, 8)).astype(np.float32)
    x[:, :, 0] *= 1e-4
    archive = samples(folder / "uneven.npz", x=x)
    return saved(d.model({"x": (1, 3, 8, 8)}, {"y": (1, 4, 6, 6)}), folder), archive


def test_the_artifact_computes_the_quantised_model_that_it_holds(tmp_path: Path) -> None:
    path, archive = saved(network(), tmp_path), samples(tmp_path / "s.npz")
    report, manifest, out = compiled(path, {"s.npz": archive}, dims={"N": 2})
    with zipfile.ZipFile(out) as packed:
        held = packed.read("model.int8.onnx")
    x = np.load(archive)["x"][0]
    with Model(out) as model:
        found = model.run({"x": x})["y"]
    wanted, given = runs(held, x), runs(path, x)
    error = np.abs(wanted - given).max()
    assert np.abs(found - wanted).max() < error / 4
    reported = report.quantised
    assert reported
    assert reported.model_digest == hashlib.sha256(held).hexdigest()
    assert report.model_digest == manifest["model_digest"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert [(row.node, row.precision, row.reason) for row in reported.layers][:2] == [
        ("stem", "int8", None),
        ("depthwise", "int8", None),
    ]
    (output,) = reported.outputs
    assert output.max_relative is not None
    assert error / np.abs(given).max() <= output.max_relative * 1.01
    assert output.snr_db is not None
    assert output.snr_db > 40
    assert manifest["quantised"]["outputs"] == [
        {"name": "y", "snr_db": output.snr_db, "max_relative": output.max_relative}
    ]
    assert manifest["options"]["precision"] == "int8"
    assert report.tolerance < 0.05
    assert any("6 of 6 layers in int8" in notice for notice in report.notices)


def test_it_is_the_model_that_a_quantization_makes_on_the_same_samples(tmp_path: Path) -> None:
    path, archive = saved(network(), tmp_path), samples(tmp_path / "s.npz")
    report, _, _ = compiled(path, {"s.npz": archive}, dims={"N": 2})
    out = tmp_path / "alone.onnx"
    quantize(path, out, QuantizeOptions(snr_db=20.0), {"s.npz": archive})
    assert report.quantised
    assert report.quantised.model_digest == hashlib.sha256(out.read_bytes()).hexdigest()
    assert report.quantised.count == 3


def test_an_archive_of_many_samples_calibrates_on_all_and_is_judged_on_its_first(tmp_path: Path) -> None:
    """Also where the model leaves the batch open, and the archive's is another than the binding's."""
    path, archive = saved(network(), tmp_path), tmp_path / "many.npz"
    x = np.random.default_rng(3).normal(size=(6, 3, 16, 16)).astype(np.float32)
    np.savez(archive, x=x)
    report, manifest, out = compiled(path, {"many.npz": archive}, dims={"N": 2})
    assert report.quantised
    assert report.quantised.count == 3
    assert report.quantised.samples == (hashlib.sha256(archive.read_bytes()).hexdigest(),)
    first = tmp_path / "first.npz"
    np.savez(first, x=x[:2])
    assert report.samples == tuple(manifest["samples"]) == (hashlib.sha256(first.read_bytes()).hexdigest(),)
    again = reproduce(out, path, tmp_path / "again.tw", samples=[archive])
    assert again.is_same, str(again)
    with pytest.raises(InputsError, match="is missing"):
        reproduce(out, path, tmp_path / "again.tw")


def test_ranges_and_equalisation_of_a_compilation_are_those_of_a_quantization(tmp_path: Path) -> None:
    model, random = unlike_channels()
    path = saved(model, tmp_path)
    x = random.normal(size=(1, 3, 8, 8)).astype(np.float32)
    x[0, 0, 0, 0] = 10.0
    np.savez(tmp_path / "s.npz", x=x)
    given, archive, digests = tmp_path / "given.onnx", {"s.npz": tmp_path / "s.npz"}, set()
    for how in ({"ranges": "minmax"}, {"ranges": "entropy"}, {"ranges": "minmax", "equalise": True}):
        quantize(path, given, QuantizeOptions.from_json({**how, "snr_db": 1.0}), archive)
        report, _, _ = compiled(path, archive, snr_db=1.0, **how)
        assert report.quantised
        assert report.quantised.model_digest == hashlib.sha256(given.read_bytes()).hexdigest()
        digests.add(report.quantised.model_digest)
    assert len(digests) == 3


def test_one_sample_of_another_size_is_judged_at_that_size(tmp_path: Path) -> None:
    path, archive = saved(network(), tmp_path), tmp_path / "three.npz"
    np.savez(archive, x=np.random.default_rng(3).normal(size=(3, 3, 16, 16)).astype(np.float32))
    report, _, _ = compiled(path, {"three.npz": archive}, dims={"N": {"min": 1, "opt": 2, "max": 4}})
    assert report.quantised
    assert report.quantised.count == 1
    assert {"N": 3} in [dict(size.dims) for binding in report.bindings for size in binding.sizes]


def test_layers_that_cost_more_than_the_budget_stay_in_fp32(tmp_path: Path) -> None:
    path, archive = uneven(tmp_path)
    report, manifest, out = compiled(path, {"s.npz": archive}, snr_db=25.0)
    reported = report.quantised
    assert reported
    assert [(row.node, row.precision) for row in reported.layers] == [("wild", "float32"), ("tame", "int8")]
    assert reported.layers[0].reason == "the error budget does not hold with it in int8"
    assert reported.layers[0].outputs_db is not None
    assert reported.layers[0].outputs_db < 25 <= (reported.outputs[0].snr_db or 0)
    with zipfile.ZipFile(out) as packed:
        page = packed.read("report.html").decode()
    assert all(text in page for text in ("<code>wild</code>", "does not hold with it in int8", "25 dB were demanded"))
    assert manifest["quantised"]["snr_db"] == 25
    with pytest.raises(BudgetMissed):
        compiled(path, {"s.npz": archive}, snr_db=150.0)


def test_without_a_float_among_its_outputs_a_model_has_no_budget(tmp_path: Path) -> None:
    d = Drawn()
    d.node("ArgMax", [d.node("MatMul", ["x", d.weights("w", 8, 4)], "h", "layer")], "y", axis=1)
    model = d.model({"x": (2, 8)}, {"y": (2, 1)})
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    path = saved(model, tmp_path)
    report, _, _ = compiled(path)
    assert report.quantised
    assert (report.quantised.snr_db, report.quantised.outputs) == (None, ())
    assert [row.precision for row in report.quantised.layers] == ["int8"]
    with pytest.raises(OptionsError, match="no output of the model is a float"):
        compiled(path, snr_db=20.0)


def test_a_model_that_is_quantised_already_is_compiled_as_it_is(tmp_path: Path) -> None:
    path = saved(network(), tmp_path)
    out = tmp_path / "qdq.onnx"
    quantize(path, out, QuantizeOptions(), {"s": samples(tmp_path / "s.npz")})
    report, manifest, _ = compiled(out)
    assert report.quantised is None
    assert "quantised" not in manifest
    assert any("compiled as it is, with its own scales" in notice for notice in report.notices)
    assert report.model_digest == hashlib.sha256(out.read_bytes()).hexdigest()


def test_several_bindings_share_one_quantised_model(tmp_path: Path) -> None:
    report, manifest, out = compiled(saved(network(), tmp_path), dims=[{"N": 1}, {"N": 3}])
    assert len(report.bindings) == 2
    assert report.quantised
    assert manifest["quantised"]["count"] == 8
    with zipfile.ZipFile(out) as packed:
        assert [name for name in packed.namelist() if name.endswith("int8.onnx")] == ["model.int8.onnx"]


def test_external_data_become_part_of_the_quantised_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    proto = network()
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    report = compile_file(
        path,
        tmp_path / "m.tw",
        CompileOptions.from_json({**UNMEASURED, "dims": {"N": 1}}),
        data={"weights.bin": tmp_path / "weights.bin"},
    )
    plain = compile_file(
        path,
        tmp_path / "plain.tw",
        CompileOptions(tuning_budget_s=0.0, threads=1, dims={"N": 1}),
        data={"weights.bin": tmp_path / "weights.bin"},
    )
    assert report.quantised
    assert report.model_digest == plain.model_digest


def test_without_a_layer_it_is_refused_and_preflight_says_so(tmp_path: Path) -> None:
    d = Drawn()
    d.node("Relu", ["x"], "y")
    path = saved(d.model({"x": (1, 4)}, {"y": (1, 4)}), tmp_path)
    with pytest.raises(UnsupportedModel, match="no layer to quantise") as caught:
        compiled(path)
    answer = preflight(path, CompileOptions(precision="int8"))
    assert not answer["ok"]
    assert answer["problem"] == caught.value.to_json()
    assert preflight(path, CompileOptions())["ok"]


def test_preflight_counts_the_layers_and_names_those_that_cannot_be_int8(tmp_path: Path) -> None:
    d = Drawn()
    d.node("MatMul", ["x", d.weights("w", 4, 4)], "h", "first")
    d.node("Gemm", ["h", d.node("Transpose", ["h"], "t")], "y", "second")
    answer = preflight(saved(d.model({"x": (4, 4)}, {"y": (4, 4)}), tmp_path), CompileOptions(precision="int8"))
    assert answer["ok"]
    (said,) = (notice for notice in answer["notices"] if "int8" in notice)
    assert "1 of 2 layers can be computed in int8" in said
    assert "second stays in float32: its weights are not constant" in said


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")
def test_a_gpu_is_given_the_same_quantised_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As without a GPU, whatever double another test left loaded.
    monkeypatch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
    path, out = saved(network(), tmp_path), tmp_path / "alone.onnx"
    report, _, _ = compiled(path, target="cuda:sm_90", threads=None, dims={"N": 1})
    quantize(path, out, QuantizeOptions(snr_db=20.0, attention=False, dims={"N": 1}))
    assert report.quantised
    assert report.quantised.model_digest == hashlib.sha256(out.read_bytes()).hexdigest()
    assert report.target == "cuda:sm_90"


@pytest.mark.parametrize(("target", "from_bytes"), [("cpu", True), ("cuda:sm_90", False)])
def test_attention_is_computed_from_bytes_on_cpus(target: str, from_bytes: bool, tmp_path: Path) -> None:
    path = saved(attention(), tmp_path)
    threads = 1 if target == "cpu" else None
    answer = preflight(path, CompileOptions(precision="int8", target=target, threads=threads))
    (said,) = (notice for notice in answer["notices"] if "int8" in notice)
    assert f"{5 if from_bytes else 3} of 5 layers can be computed in int8" in said


def statically_quantised(path: Path, shape: tuple[int, ...]) -> Path:
    """The QDQ model that ONNX Runtime's quantiser makes of one, which rounds the scores too."""

    class Reader:
        def __init__(self) -> None:
            self.left = [{"x": np.random.default_rng(seed).normal(size=shape).astype(np.float32)} for seed in range(3)]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    out = path.with_name("static.onnx")
    quantize_static(str(path), str(out), Reader(), activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    return out


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_attention_of_bytes_is_one_kernel_and_agrees_with_onnx_runtime(
    ours: bool, threads: int, tmp_path: Path
) -> None:
    """Where a weight is near to a tie, one step of it lies between both; results of ONNX Runtime's model are bytes."""
    shape = (2, 48, 32)
    path = saved(attention(*shape[1:]), tmp_path)
    given = path if ours else statically_quantised(path, shape)
    report, _, out = compiled(given, precision="int8" if ours else "fp32", threads=threads)
    with zipfile.ZipFile(out) as packed:
        held = packed.read("model.int8.onnx") if ours else given.read_bytes()
        sources = [packed.read(name).decode() for name in packed.namelist() if name.startswith("source/kernels")]
    assert sum(text.count("then their exponentials") for text in sources) == 1
    assert report.kernels == 5
    x = np.random.default_rng(9).normal(size=shape).astype(np.float32)
    got, want = Model(out).run({"x": x})["y"], runs(held, x)
    assert np.abs(got - want).max() <= 0.02 * np.abs(want).max()
    assert np.mean(np.abs(got - want) > 1e-5) < 0.02


def test_the_budget_is_refused_without_int8_and_int8_beside_devices() -> None:
    for given in ({"snr_db": 30.0}, {"ranges": "mse"}, {"equalise": True}):
        with pytest.raises(
            OptionsError, match=f"option {min(given)} applies to precision int8 only, and precision is fp32"
        ):
            CompileOptions.from_json(given)
    with pytest.raises(OptionsError, match="quantised for one target"):
        CompileOptions(precision="int8", devices=("cpu:0", "cpu:1"))
    assert CompileOptions(precision="int8").arithmetic == "fp32"
    assert CompileOptions(precision="bf16").arithmetic == "bf16"


def test_events_never_fall_and_the_quantising_is_told(tmp_path: Path) -> None:
    heard: list[Any] = []
    path = saved(network(), tmp_path)
    options = CompileOptions.from_json({**UNMEASURED, "dims": {"N": 1}})
    compile_file(path, tmp_path / "m.tw", options, observe=heard.append)
    fractions = [event.fraction for event in heard]
    assert fractions == sorted(fractions)
    assert fractions[-1] <= 1
    assert Trace().phase == heard[0].phase == "load"
    assert sum("no samples were given" in event.message for event in heard) == 1
