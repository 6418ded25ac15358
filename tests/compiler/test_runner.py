from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from compiler import runner
from compiler.contract import BenchmarkOptions, CompileOptions, Event
from compiler.devices.cpu.target import this_machine
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda import target as cuda
from compiler.errors import ArtifactUnusable, InputsError, InternalError, OptionsError, TargetUnavailable
from compiler.fuse import fuse
from compiler.measure import streaming
from compiler.measure.benchmark import added_seconds
from compiler.pack.loader import Model, RunError
from compiler.pack.loader.program import _Program
from compiler.runner import benchmark, infer
from compiler.steps.dividing import costs as dividing_costs
from tests.compiler.conftest import Compiled
from tests.compiler.devices.cuda.artifact_on_double import artifact_of, on_double, plan_of
from tests.compiler.devices.cuda.measure.fake_nvml import install
from tests.compiler.networks import Network, graph_of
from tests.compiling import compile_file
from tests.cuda_double.double import compiler_there

pytestmark = pytest.mark.usefixtures("host_as_shipped")

Compile = Callable[..., Compiled]
SHORT = BenchmarkOptions(seconds=0.05)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chain(tmp_path_factory.mktemp("large"), 12)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chain(tmp_path_factory.mktemp("small"), 2)


def chain(folder: Path, length: int) -> Path:
    """Convolutions in a row: all lengths have the same input and output."""
    net = Network()
    shape = (1, 16, 24, 24)
    x = net.input(*shape)
    for _ in range(length):
        x = net.node("Conv", [x, net.weight(16, 16, 3, 3)], shape, pads=[1] * 4)
    model = net.model([x])
    model.graph.output[0].name = model.graph.node[-1].output[0] = "y"
    onnx.save(model, folder / "model.onnx")
    compile_file(folder / "model.onnx", folder / "model.tw", CompileOptions(threads=1, tuning_budget_s=0))
    return folder / "model.tw"


def changed(artifact: Path, copy: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of an artifact with another manifest."""
    with zipfile.ZipFile(artifact) as one, zipfile.ZipFile(copy, "w") as two:
        for member in one.infolist():
            content = one.read(member)
            if member.filename == "manifest.json":
                manifest = json.loads(content)
                change(manifest)
                content = json.dumps(manifest).encode()
            two.writestr(member, content)
    return copy


def test_two_artifacts_are_compared_and_the_faster_is_named(
    large: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed, opened = _Program._timed, runner.open_artifact
    slow: list[_Program] = []

    def noted(*args: Any, **options: Any) -> Model:
        model = opened(*args, **options)
        slow.extend([model._program] if model.path == large else [])
        return model

    def by_length(self: _Program, *args: Any) -> float:
        timed(self, *args)
        return 6e-4 if self in slow else 1e-4

    monkeypatch.setattr(runner, "open_artifact", noted)
    monkeypatch.setattr(_Program, "_timed", by_length)
    events: list[Event] = []
    report = benchmark([("long", large), ("short", small)], BenchmarkOptions(seconds=0.4, seed=3), events.append)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["options"] == BenchmarkOptions(seconds=0.4, seed=3).to_json()
    (found,) = report["comparisons"]
    assert (found["a"], found["b"], found["faster"]) == ("long", "short", "b")
    assert found["ratio"] == pytest.approx(1 / 6)
    assert 0 < found["low"] < found["ratio"] < found["high"] < 1
    assert found["verdict"].startswith("b is faster by ")
    assert [output["output"] for output in found["outputs"]] == ["y"]
    assert found["outputs"][0]["max_relative"] > 0
    assert report["rounds"] == sum(report["sittings"]) >= 6


def test_the_report_tells_all_of_an_artifact(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    added = iter((5, 7))
    monkeypatch.setattr(runner, "grown", lambda _: next(added))
    report = benchmark([("one", small)], SHORT)
    (one,) = report["artifacts"]
    assert report["comparisons"] == []
    assert one["artifact"] == "one"
    assert len(one["sha256"]) == 64
    assert one["target"] == report["machine"]["target"]
    assert one["hardware"] == report["machine"]["hardware"]
    assert one["lanes"] == 1
    assert one["load"]["first_s"] > 0
    assert one["load"]["warm_s"] > 0
    assert one["first_run_s"] > 0
    assert one["memory"] == {"load_bytes": 5, "run_bytes": 7}
    assert len(one["samples_s"]) == sum(one["rounds"]) <= one["runs"]
    assert len(one["rounds"]) == len(one["round_median_s"]) == report["rounds"]
    assert one["median_s"] == one["compute_s"] == np.percentile(one["samples_s"], 50)
    assert one["min_s"] <= one["p10_s"] <= one["median_s"] <= one["p90_s"] <= one["p99_s"]
    assert one["copy_in_s"] > 0
    assert one["copy_out_s"] > 0
    assert sum(row["share"] for row in one["kernels"]) == pytest.approx(1)
    assert set(one["kernels"][0]) == {"call", "family", "nodes", "tile", "seconds", "share"}
    assert all(row["nodes"] for row in one["kernels"])
    assert one["inputs"] == [{"name": "x0", "dtype": "float32", "shape": [1, 16, 24, 24]}]
    assert one["outputs"] == [{"name": "y", "dtype": "float32", "shape": [1, 16, 24, 24]}]
    assert report["machine"]["cores"] >= 1
    assert report["machine"]["during"]["own_cpu_s"] > 0
    assert set(report["machine"]["before"]) == set(report["machine"]["after"])


@pytest.mark.skipif(this_machine().lanes < 2, reason="needs two cores")
def test_of_an_artifact_for_several_devices_throughput_and_idle_time_are_told_too(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dividing_costs, "usual_seconds", lambda bytes: 0.0)  # it takes longer than so small a model
    options = {"devices": ["cpu:0", "cpu:1"], "objective": "throughput", "tuning_budget_s": 0}
    divided = tmp_path / "divided.tw"
    compile_file(small.with_name("model.onnx"), divided, CompileOptions.from_json(options))
    events: list[Event] = []
    report = benchmark([("one", small), ("both", divided)], replace(SHORT, profile=False), events.append)
    assert [event.phase for event in events if event.kind == "phase"] == ["open", "warm", "time", "stream", "profile"]
    one, both = (artifact["stream"] for artifact in report["artifacts"])
    assert one is None
    assert both["per_second"] == pytest.approx(1 / both["period_s"])
    assert len(both["periods_s"]) == streaming.BLOCKS
    assert min(both["periods_s"]) <= both["period_s"] <= max(both["periods_s"])
    assert [device["name"] for device in both["devices"]] == options["devices"]
    busy = [device["busy"] for device in both["devices"]]
    assert all(share > 0 for share in busy)
    with Model(divided) as model:
        described = model.manifest["stream"]
    assert both["predicted_period_s"] == described["period_s"]
    assert [part["kernels"] for part in both["parts"]] == [len(part["calls"]) for part in described["parts"]]
    assert [part["share"] for part in both["parts"]] == [0.5, 0.5]
    assert both["bubble"] == pytest.approx(max(0.0, 1 - sum(busy) / 2))


def test_shares_and_idle_time_are_of_processor_time_by_the_clock() -> None:
    parts = [
        {"device": 0, "calls": [0, 1, 2], "every": 4, "turns": [0, 1, 3]},
        {"device": 2, "calls": [0, 1, 2], "every": 4, "turns": [2]},
    ]
    devices = [{"name": f"cpu:{at}", "target": "cpu"} for at in range(3)]
    blocks = [streaming.Streamed(40, 1.0, [0.6, 0.4]), streaming.Streamed(40, 3.0, [1.8, 1.6])]
    found = streaming._report({"period_s": 0.02, "parts": parts, "devices": devices}, blocks)
    assert [device["busy"] for device in found["devices"]] == pytest.approx([0.6, 0.0, 0.5])
    assert found["bubble"] == pytest.approx(0.45)
    assert [part["seconds"] for part in found["parts"]] == pytest.approx([2.4 / 60, 2.0 / 20])
    assert found["period_s"] == pytest.approx(0.05)
    assert found["per_second"] == pytest.approx(20.0)


def test_without_a_profile_there_are_no_kernels(small: Path) -> None:
    report = benchmark([("one", small)], BenchmarkOptions(seconds=0.02, profile=False))
    assert report["artifacts"][0]["kernels"] is None


def test_progress_goes_through_the_phases_and_never_falls(small: Path) -> None:
    events: list[Event] = []
    benchmark([("one", small)], SHORT, events.append)
    assert [event.phase for event in events if event.kind == "phase"] == ["open", "warm", "time", "profile"]
    fractions = [event.fraction for event in events]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)


def test_one_artifact_against_itself_gives_equal_outputs_and_every_pair_is_compared(small: Path) -> None:
    report = benchmark([("a", small), ("b", small), ("c", small)], SHORT)
    assert [(one["a"], one["b"]) for one in report["comparisons"]] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert all(one["outputs"] == [{"output": "y", "max_relative": 0.0, "unlike": 0}] for one in report["comparisons"])
    assert len({one["sha256"] for one in report["artifacts"]}) == 1


def test_different_models_are_timed_together_but_not_compared(small: Path, compiled: Compile) -> None:
    report = benchmark([("a", small), ("b", compiled("tiny_cnn").artifact)], SHORT)
    assert len(report["artifacts"]) == 2
    assert report["comparisons"] == []
    assert any("artifacts a and b have different inputs or outputs" in notice for notice in report["notices"])


def test_lanes_may_be_fewer_than_planned_and_are_told_truly(compiled: Compile) -> None:
    two = compiled("tiny_inception", 2, split=True).artifact
    paused: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", paused.append)
        assert benchmark([("a", two)], SHORT)["artifacts"][0]["lanes"] == 2
        assert set(paused) == {runner.SETTLE_S}, "its lanes fall asleep before another artifact's block"
        paused.clear()
        report = benchmark([("a", two)], BenchmarkOptions(threads=1, seconds=0.02, profile=False))
    assert report["artifacts"][0]["lanes"] == 1
    assert "artifact a was planned for 2 lanes and ran on 1" in report["notices"]
    assert paused == [], "nothing spins"


def test_other_hardware_and_too_few_cores_are_worth_a_notice(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = this_machine()
    monkeypatch.setattr(runner, "this_machine", lambda: replace(here, hardware="cpu:abacus/0", lanes=1))
    two = compiled("tiny_inception", 2, split=True).artifact
    notices = benchmark([("a", two)], BenchmarkOptions(seconds=0.02, profile=False))["notices"]
    assert f"artifact a was tuned on other hardware ({here.hardware}) than it was run on here" in notices
    assert "artifact a runs 2 lanes on 1 cores" in notices


def test_an_artifact_that_cannot_be_loaded_is_named_with_the_fix(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cut.tw").write_bytes(small.read_bytes()[:-100])
    empty = changed(small, tmp_path / "empty.tw", lambda manifest: manifest.pop("inputs"))
    other = changed(small, tmp_path / "other.tw", lambda manifest: manifest.update(format_version=99))
    with zipfile.ZipFile(small) as archive:
        archive.extractall(tmp_path / "folder")
    for path in (tmp_path / "cut.tw", tmp_path / "missing.tw", tmp_path / "folder", empty, other):
        with pytest.raises(ArtifactUnusable, match="artifact the-bad-one ") as caught:
            benchmark([("good", small), ("the-bad-one", path)], SHORT)
        assert caught.value.fix
    monkeypatch.setattr("compiler.pack.loader.profiles.platform.machine", lambda: "s390x")
    with pytest.raises(TargetUnavailable, match="artifact elsewhere cannot run on this machine") as refused:
        benchmark([("elsewhere", small)], SHORT)
    assert "compile the model for cpu" in refused.value.fix


def test_without_artifacts_there_is_nothing_to_do() -> None:
    with pytest.raises(OptionsError, match="no artifact"):
        benchmark([], SHORT)


def test_a_run_that_fails_is_our_fault_and_closes_all(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[Model] = []
    calls = itertools.count()
    timed, opened = _Program._timed, runner.open_artifact

    def failing(self: _Program, *args: Any) -> float:
        if next(calls) == 40:
            raise RunError("seeded")
        return timed(self, *args)

    monkeypatch.setattr(_Program, "_timed", failing)

    def noted(*args: Any, **options: Any) -> Model:
        models.append(opened(*args, **options))
        return models[-1]

    monkeypatch.setattr(runner, "open_artifact", noted)
    with pytest.raises(InternalError, match="seeded"):
        benchmark([("a", small)], SHORT)
    assert len(models) > 2
    assert all(model._program.library is None for model in models)


def test_an_inference_gives_what_another_runtime_gives(compiled: Compile, tmp_path: Path) -> None:
    one = compiled("tiny_cnn")
    with Model(one.artifact) as model:
        given = model.random_inputs(3)
    save: Callable[..., None] = np.savez
    save(tmp_path / "in.npz", **given)
    reported = infer(one.artifact, tmp_path / "in.npz", tmp_path / "out.npz")
    session = onnxruntime.InferenceSession(str(one.model), providers=["CPUExecutionProvider"])
    wanted = dict(zip([output.name for output in session.get_outputs()], session.run(None, given), strict=True))
    with np.load(tmp_path / "out.npz", allow_pickle=False) as got:
        assert set(got) == set(wanted) == set(reported["outputs"])
        for name, want in wanted.items():
            np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-5)
            assert reported["outputs"][name]["dtype"] == "float32"
            assert reported["outputs"][name]["shape"] == list(want.shape)
            assert len(reported["outputs"][name]["sha256"]) == 64
    assert reported["seconds"] > 0
    assert reported["load_s"] > 0
    assert reported["lanes"] == 1
    again = infer(one.artifact, tmp_path / "in.npz", tmp_path / "again.npz", threads=8)
    assert again["outputs"] == reported["outputs"]
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "out.npz").read_bytes()


def test_an_inference_with_scalars_integers_and_a_strange_name(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("the/x:0", TensorProto.INT64, [3])
    y = helper.make_tensor_value_info("file", TensorProto.INT64, [3])
    graph = helper.make_graph([helper.make_node("Neg", ["the/x:0"], ["file"])], "neg", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    compile_file(tmp_path / "m.onnx", tmp_path / "m.tw", CompileOptions(threads=1, tuning_budget_s=0))
    save: Callable[..., None] = np.savez
    save(tmp_path / "in.npz", **{"the/x:0": np.array([1, 2, -3], np.int8)})
    infer(tmp_path / "m.tw", tmp_path / "in.npz", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as got:
        np.testing.assert_array_equal(got["file"], np.array([-1, -2, 3]), strict=True)


def test_an_inference_that_is_refused_leaves_no_outputs(small: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x0=np.zeros((1, 16, 24), np.float32), more=np.zeros(1))
    with pytest.raises(InputsError) as caught:
        infer(small, tmp_path / "in.npz", tmp_path / "out.npz")
    assert len(caught.value.refusals) == 2
    with pytest.raises(OptionsError, match="threads is 0"):
        infer(small, tmp_path / "in.npz", tmp_path / "out.npz", threads=0)
    with pytest.raises(ArtifactUnusable, match="cannot be loaded"):
        infer(tmp_path / "missing.tw", tmp_path / "in.npz", tmp_path / "out.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["in.npz"]


ON_GPU = """
import json, sys
from pathlib import Path
from compiler.contract import BenchmarkOptions
from compiler.runner import benchmark, infer
one, two, inputs, outputs = map(Path, sys.argv[1:])
print(json.dumps([
    benchmark([("one", one), ("two", two)], BenchmarkOptions(seconds=0.02)), infer(one, inputs, outputs)
]))
"""


@pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")
@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")
def test_artifacts_for_a_gpu_are_run_there_and_copies_are_told_apart(tmp_path: Path) -> None:
    net = Network()
    x = net.input(1, 4, 8, 8)
    weight = net.weight(4, 4, 1, 1)
    net_model = net.model([net.node("Relu", [net.node("Conv", [x, weight], (1, 4, 8, 8))], (1, 4, 8, 8))])
    kernels = fuse(graph_of(net_model)).kernels
    made = artifact_of(kernels, plan_of(kernels, cuda.resolve("cuda:sm_90")), tmp_path / "one.tw")
    twin = on_double(made)
    shutil.copy(made, tmp_path / "two.tw")
    given = np.random.default_rng(0).standard_normal((1, 4, 8, 8), np.float32)
    name = net_model.graph.input[0].name
    arrays: dict[str, Any] = {name: given}
    np.savez(tmp_path / "inputs.npz", **arrays)
    nvml = install(tmp_path / "nvml", throttle=4)
    done = subprocess.run(
        [sys.executable, "-c", ON_GPU, made, tmp_path / "two.tw", tmp_path / "inputs.npz", tmp_path / "outputs.npz"],
        env={**os.environ, **twin.environment, "PYTHONPATH": f"{nvml}:{Path(__file__).parents[2]}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reported, inferred = json.loads(done.stdout)
    gpu = reported["machine"]["gpu"]
    assert (gpu["name"], gpu["target"]) == ("CUDA double sm_90", "cuda:sm_90")
    assert gpu["hardware"].startswith("cuda:sm_90/")
    assert (gpu["before"]["multiprocessor_mhz"], gpu["after"]["temperature_c"]) == (1980, 31)
    assert "the GPU's clocks were held down: power cap" in reported["notices"]
    for one in reported["artifacts"]:
        assert one["target"] == "cuda:sm_90"
        assert one["compute_s"] == one["median_s"] > 0
        assert one["copy_in_s"] >= 0
        assert one["copy_out_s"] >= 0
        assert one["first_run_s"] > 0
        assert [row["family"] for row in one["kernels"]] == ["Conv+Relu"]
        assert one["kernels"][0]["seconds"] > 0
    # Both ran on the same inputs, which reached the GPU before the runs that were timed.
    (compared,) = reported["comparisons"]
    assert compared["outputs"] == [{"output": compared["outputs"][0]["output"], "max_relative": 0.0, "unlike": 0}]
    (want,) = ReferenceEvaluator(net_model).run(None, arrays)
    with np.load(tmp_path / "outputs.npz") as found:
        (got,) = (found[key] for key in found)
    np.testing.assert_allclose(got, np.asarray(want), rtol=1e-5, atol=1e-5)
    assert inferred["seconds"] > 0


def test_what_copies_add_is_a_difference_of_medians() -> None:
    short, long = itertools.cycle([1.0, 9.0, 1.0]), itertools.cycle([3.0, 3.0, 90.0])
    assert added_seconds(lambda: next(short), lambda: next(long)) == 2.0
    assert added_seconds(lambda: 2.0, lambda: 1.0) == 0.0


def test_artifacts_for_cores_are_run_without_loading_what_is_known_of_gpus(compiled: Callable[..., Compiled]) -> None:
    program = """
import sys
from pathlib import Path
from compiler.contract import BenchmarkOptions
from compiler.runner import benchmark
assert benchmark([("one", Path(sys.argv[1]))], BenchmarkOptions(seconds=0.01, profile=False))["machine"]["gpu"] is None
print(*(name for name in sys.modules if name.startswith("compiler.devices.cuda")))
"""
    command = [sys.executable, "-c", program, str(compiled("tiny_cnn").artifact)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"
