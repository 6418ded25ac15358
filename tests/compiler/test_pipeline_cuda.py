"""The pipeline for CUDA targets: without a GPU, and with the double of one in this process."""

from __future__ import annotations

import ctypes
import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.__main__ import main
from compiler.contract import PHASES, CompileOptions, CompileReport
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.devices.cuda.measure.driver import gpu_here
from compiler.devices.cuda.target import PROFILES, resolve
from compiler.devices.kinds import propose
from compiler.errors import OptionsError, TargetUnavailable
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.fuse.storage import with_storage
from compiler.ir.machine import Record
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.rewrite import rewrite
from compiler.steps.precisions import NO_FASTER
from compiler.tuning.tune import workload_key
from tests.compiler.devices.cuda.artifact_on_double import on_double
from tests.compiler.frontend.open.at_sizes import model_of
from tests.compiler.networks import Network
from tests.compiling import compile_file
from tests.cuda_double import double

needs_nvrtc = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")
needs_double = pytest.mark.skipif(not double.compiler_there(), reason="the double of CUDA needs g++")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without one, whatever this one has and whatever double another test left loaded."""
    monkeypatch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)


def branches(path: Path) -> Path:
    """Convolutions joined channel by channel, a residual addition, pooling, a softmax."""
    net = Network()
    x = net.input(1, 8, 6, 6)
    parts = [net.node("Conv", [x, net.weight(n, 8, 3, 3), net.weight(n)], (1, n, 6, 6), pads=[1] * 4) for n in (8, 24)]
    x = net.node("Relu", [net.node("Concat", parts, (1, 32, 6, 6), axis=1)], (1, 32, 6, 6))
    y = net.node("Conv", [x, net.weight(32, 32, 1, 1)], (1, 32, 6, 6))
    x = net.node("MaxPool", [net.node("Add", [x, y], (1, 32, 6, 6))], (1, 32, 6, 6), kernel_shape=[3, 3], pads=[1] * 4)
    onnx.save(net.model([net.node("Softmax", [x], (1, 32, 6, 6), axis=1)]), path)
    return path


def overflowing(path: Path) -> Path:
    """A product of some 3e5 between two layers that fp16 holds."""
    net = Network()
    large = net.constant(net.random.uniform(-6e4, 6e4, (64, 64)).astype(np.float32))
    small = net.constant(net.random.uniform(-1e-4, 1e-4, (64, 64)).astype(np.float32))
    x = net.node("Softmax", [net.node("MatMul", [net.input(8, 64), large], (8, 64))], (8, 64), axis=0)
    y = net.node("MatMul", [net.node("MatMul", ["x0", large], (8, 64)), small], (8, 64))
    onnx.save(net.model([net.node("Add", [x, y], (8, 64))]), path)
    return path


def stored(artifact: Path) -> dict[str, object]:
    with zipfile.ZipFile(artifact) as archive:
        found: dict[str, object] = json.loads(archive.read("manifest.json"))
        return found


@needs_nvrtc
@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("target", "precision"),
    [("cuda:sm_80", "bf16"), ("cuda:sm_86", "fp32"), ("cuda:sm_89", "tf32"), ("cuda:sm_90", "fp16")],
)
def test_without_a_gpu_an_artifact_is_made_and_said_to_be_unproven(target: str, precision: str, tmp_path: Path) -> None:
    options = CompileOptions(target=target, precision=precision)
    report = compile_file(branches(tmp_path / "m.onnx"), tmp_path / "m.tw", options)
    assert (report.target, report.hardware, report.threads, report.latency_s, report.errors) == (target, "", 1, 0.0, ())
    assert set(report.phase_seconds) == set(PHASES)
    assert [notice for notice in report.notices if "nothing was run" in notice and target in notice]
    (doubt,) = (notice for notice in report.notices if "us are predicted" in notice)
    low, said, high = (float(re.findall(r"[\d.]+(?:e\+\d+)?", doubt)[at]) for at in (1, 0, 2))
    assert low < said < high
    assert stored(tmp_path / "m.tw")["target"] == target
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.tw"]


@needs_nvrtc
@pytest.mark.usefixtures("no_gpu")
def test_activations_and_weights_take_half_the_bytes_in_fp16(tmp_path: Path) -> None:
    model = branches(tmp_path / "m.onnx")
    whole, half = (
        compile_file(model, tmp_path / "m.tw", CompileOptions(target="cuda:sm_90", precision=precision))
        for precision in ("fp32", "fp16")
    )
    assert half.arena_bytes <= 0.6 * whole.arena_bytes
    assert half.weight_bytes < whole.weight_bytes


@needs_nvrtc
@pytest.mark.usefixtures("no_gpu")
def test_two_builds_without_a_gpu_are_equal(tmp_path: Path) -> None:
    model = branches(tmp_path / "m.onnx")
    options = CompileOptions(target="cuda:sm_90", precision="fp16")
    for name in ("a.tw", "b.tw"):
        compile_file(model, tmp_path / name, options)
    assert (tmp_path / "a.tw").read_bytes() == (tmp_path / "b.tw").read_bytes()


@needs_nvrtc
@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_a_kernel_is_tiled_as_records_of_such_a_gpu_say(tmp_path: Path) -> None:
    """The tile that the model thinks worst, were it not for a measurement elsewhere, with another NVRTC."""
    model = branches(tmp_path / "m.onnx")
    options = CompileOptions(target="cuda:sm_90", precision="fp16", without=("joins", "siblings"))
    kernels = with_storage(fuse(rewrite(load(model, options, OPERATORS).graph).graph).kernels, DType.F16)
    workload = cuda_workload_of(kernels, kernels.calls[0])
    worst = propose(workload, resolve("cuda:sm_90"), 1, precision="fp16")[-1].tile
    variant = {**worst.to_json(), "weights": "cache", "toolchain": "NVRTC 12.6"}
    spread = (1e-6, 1e-6, 1e-6)
    reported = ("Conv", workload.shapes, "cuda:sm_90", "cuda:sm_90/elsewhere")
    record = Record("kernel", workload_key(workload), *reported, variant, 1, *spread, 9)
    for records in ([], [record.to_json()]):
        report = compile_file(model, tmp_path / "m.tw", options, records)
        with zipfile.ZipFile(tmp_path / "m.tw") as archive:
            first = json.loads(archive.read("plan.json"))["calls"][0]
            kept = [json.loads(line) for line in archive.read("records.jsonl").splitlines()]
        assert (first["tile"] == str(worst)) is bool(records)
        assert report.records_reused == len(records)
        assert [one["variant"]["from"]["hardware"] for one in kept] == ["cuda:sm_90/elsewhere"] * len(records)


@needs_nvrtc
@pytest.mark.usefixtures("no_gpu")
def test_the_command_line_explains_what_each_kernel_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(branches(tmp_path / "m.onnx")), "--target", "cuda:sm_90", "--precision", "fp16"]
    assert main([*arguments, "-o", str(tmp_path / "out.tw"), "--explain"]) == 0
    said = capsys.readouterr()
    assert "cuda:sm_90: H200, 132 multiprocessors" in said.out
    assert "registers x" in said.out
    assert "not run on this machine" in said.out
    assert "nothing was run" in said.err
    assert (tmp_path / "out.tw").exists()


@pytest.mark.usefixtures("no_gpu")
def test_a_job_that_no_target_can_do_is_refused_before_the_model_is_read(tmp_path: Path) -> None:
    missing = tmp_path / "none.onnx"
    with pytest.raises(TargetUnavailable, match="there is none") as caught:
        compile_file(missing, tmp_path / "m.tw", CompileOptions(target="cuda"))
    assert all(profile.name in caught.value.fix for profile in PROFILES)
    with pytest.raises(TargetUnavailable, match="cuda:sm_70"):
        compile_file(missing, tmp_path / "m.tw", CompileOptions(target="cuda:sm_70"))
    with pytest.raises(OptionsError, match="cuda targets only"):
        CompileOptions(target="cpu", precision="fp16")


@contextmanager
def gpu_with(settings: str) -> Iterator[None]:
    """A double in this process, where the driver is looked for; afterwards nothing of it is in use."""
    with double.Device(settings=settings) as fresh:
        fresh.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        fresh.call("cuDevicePrimaryCtxRelease_v2", 0)
        yield
        assert {name: count for name, count in fresh.state().items() if count} == {}


def compiled_on_double(model: Path, folder: Path, options: CompileOptions, also: tuple[str, ...] = ()) -> CompileReport:
    """Compiles for a double that is here.

    It was shown the images of `options` and of the precisions `also` before.
    """
    with gpu_with("sm=90"):
        gpu = gpu_here()
    assert gpu is not None
    settings: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("compiler.devices.cuda.device.gpu_here", lambda: replace(gpu, fingerprint=""))
        for precision in (options.precision, *also):
            compile_file(model, folder / "image.tw", replace(options, precision=precision))
            settings += on_double(folder / "image.tw").settings.split()
    with gpu_with(" ".join(dict.fromkeys(settings))):
        return compile_file(model, folder / "m.tw", options)


@needs_nvrtc
@needs_double
def test_axes_and_shapes_that_data_say_are_followed_on_a_gpu(tmp_path: Path) -> None:
    text = "m (float[2,3,4] x, int64[1] a, int64[2] s) => (float y) { t = ReduceSum(x, a) [rows] y = Reshape(t, s) }"
    (tmp_path / "m.onnx").write_bytes(model_of(text))
    options = CompileOptions(target="cuda:sm_90", tuning_budget_s=0, bounds={"rows": 12})
    report = compiled_on_double(tmp_path / "m.onnx", tmp_path, options)
    assert report.errors
    x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    feeds = {"x": x, "a": np.array([-2]), "s": np.array([-1, 2])}
    twin = on_double(tmp_path / "m.tw")
    found = twin.run(feeds).outputs["y"]
    np.testing.assert_allclose(found, x.sum(1, keepdims=True).reshape(-1, 2), rtol=1e-5)
    script = "try:\n    model.run(inputs)\nexcept ValueError as no:\n    outputs['no'] = np.array(str(no))"
    refused = twin.run({**feeds, "a": np.array([3])}, script=script).outputs["no"]
    assert "input 'axes' of ReduceSum" in str(refused)


@needs_nvrtc
@needs_double
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("tf32", 2e-2), ("fp16", 2e-2), ("bf16", 5e-2)])
def test_where_a_gpu_is_the_artifact_is_proven_on_it(precision: str, tolerance: float, tmp_path: Path) -> None:
    options = CompileOptions(target="cuda:sm_90", precision=precision, tuning_budget_s=0)
    report = compiled_on_double(branches(tmp_path / "m.onnx"), tmp_path, options)
    assert report.hardware.startswith("cuda:sm_90/")
    assert report.tolerance == tolerance
    assert max(error.max_relative for error in report.errors) <= tolerance
    assert report.latency_s > 0
    assert not [said for said in report.notices if "again" in said or "nothing was run" in said or "us are" in said]


@needs_nvrtc
@needs_double
def test_a_model_that_fp16_cannot_hold_is_compiled_in_fp32_and_the_node_and_the_way_out_are_named(
    tmp_path: Path,
) -> None:
    options = CompileOptions(target="cuda:sm_90", precision="fp16", tuning_budget_s=0)
    report = compiled_on_double(overflowing(tmp_path / "m.onnx"), tmp_path, options, ("fp32",))
    (said,) = (notice for notice in report.notices if notice.startswith("compiled again without fp16"))
    assert "(MatMul) gives values of up to" in said
    assert "65504" in said
    assert "ask for precision bf16" in said
    assert max(error.max_relative for error in report.errors) < 1e-4


def chain(path: Path, scale: float) -> Path:
    """Products with maps between; the first one's result, which is some `scale`, is read twice."""
    net = Network()

    def product(x: str, scale: float = 1.0) -> str:
        weights = net.random.standard_normal((256, 256)) * scale / 16
        return net.node("MatMul", [x, net.constant(weights.astype(np.float32))], (64, 256))

    first = product(net.input(64, 256), scale)
    x = net.node("Tanh", [product(first, 1 / scale)], (64, 256))
    for _ in range(2):
        x = net.node("Relu", [product(x)], (64, 256))
    softened = net.node("Softmax", [first], (64, 256), axis=1)
    onnx.save(net.model([net.node("Add", [x, softened], (64, 256))]), path)
    return path


@needs_nvrtc
@needs_double
def test_in_precision_auto_what_fp16_cannot_hold_stays_in_fp32_and_the_rest_does_not(tmp_path: Path) -> None:
    options = CompileOptions(target="cuda:sm_90", precision="auto", tuning_budget_s=0)
    report = compiled_on_double(chain(tmp_path / "m.onnx", 1e5), tmp_path, options)
    first, second, *others = report.precisions
    assert (first.precision, second.precision) == ("fp32", "fp32")
    assert [one.precision for one in others] == ["fp16", "fp32", "fp16"]
    assert others[1].reason == NO_FASTER
    assert "2 of 5 kernels in fp16" in next(one for one in report.notices if one.startswith("precision auto"))
    assert not [said for said in report.notices if "again" in said or "nothing was run" in said or "us are" in said]
    assert 1e-5 < max(error.max_relative for error in report.errors) <= report.tolerance


@needs_nvrtc
@needs_double
def test_an_artifact_of_kernels_in_two_precisions_keeps_the_tolerance_on_a_gpu(tmp_path: Path) -> None:
    options = CompileOptions(target="cuda:sm_90", precision="auto", tuning_budget_s=0, tolerance=6e-4)
    report = compiled_on_double(chain(tmp_path / "m.onnx", 1.0), tmp_path, options)
    assert [one.precision for one in report.precisions] == ["fp32", "fp32", "fp16", "fp32", "fp16"]
    assert 1e-5 < max(error.max_relative for error in report.errors) <= 6e-4
