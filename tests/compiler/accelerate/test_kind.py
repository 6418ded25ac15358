"""Accelerators under the options of every target: what is refused, foreseen, compiled, and estimated beside others."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.accelerate.chips import TARGETS
from compiler.contract import BenchmarkOptions, CompileOptions
from compiler.devices.kinds import kind_of, resolved_name, whole_kind_of
from compiler.errors import ArtifactUnusable, Disagreement, OptionsError, TargetUnavailable
from compiler.preflight import preflight
from compiler.runner import benchmark, infer, is_whole
from tests.compiler.accelerate.models import SHAPE, convolution, sample
from tests.compiler.quantize.models import unlike_channels
from tests.compiling import compile_file

U65 = "npu:ethos-u65-256"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convolution(tmp_path_factory.mktemp("model") / "m.onnx")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"dims": {"batch": [1, 2]}}, "dims binds several values, and npu:ethos-u65-256 takes one"),
        ({"dims": {"batch": {"min": 1, "max": 4}}}, "dims leaves a dimension open"),
        ({"inputs": {"x": {"shape": [1], "value": [1]}}}, "input 'x' is given a value"),
        ({"bounds": {"resize": 4}}, "bounds says how kernels are made"),
        ({"without": ["weights"]}, "without says how kernels are made"),
    ],
)
def test_options_of_kernels_are_refused_before_anything_is_compiled(
    asked: dict[str, Any], said: str, model: Path, tmp_path: Path
) -> None:
    options = CompileOptions.from_json({"target": U65, **asked})
    with pytest.raises(OptionsError, match=said):
        compile_file(model, tmp_path / "m.tw", options)
    foreseen = preflight(model, options)
    assert not foreseen["ok"]
    assert foreseen["target"] == {"name": U65, "reason": None}


def test_a_preflight_knows_the_targets_and_says_what_it_does_not_know(model: Path) -> None:
    found = preflight(model, CompileOptions(target=U65, dims={"batch": 1}))
    assert (found["ok"], found["problem"], found["corrected"]) == (True, None, None)
    assert "only known once it is compiled" in found["notices"][0]
    found = preflight(model, CompileOptions(target="npu:ethos-u65-512"))
    assert (found["ok"], found["problem"]["code"]) == (False, "target_unavailable")
    assert U65 in found["problem"]["fix"]


def test_a_whole_kind_is_no_kind_of_kernels() -> None:
    whole = whole_kind_of(U65)
    assert whole is not None
    assert whole.profiles == TARGETS
    assert (resolved_name(U65), whole_kind_of("cpu")) == (U65, None)
    with pytest.raises(TargetUnavailable, match="has no kernels"):
        kind_of(U65)


def test_a_job_names_the_format_of_what_vela_is_given(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("ethosu.regor")
    artifact, asked = tmp_path / "m.tw", {"target": U65, "inputs": {"x": list(SHAPE)}, "format": "tosa"}
    report = compile_file(model, artifact, CompileOptions.from_json(asked), samples={"s": sample(tmp_path / "s.npz")})
    with zipfile.ZipFile(artifact) as archive:
        assert {"model.tosa", "tosa.py"} <= {*archive.namelist()}
    assert report.placement is not None
    assert (report.placement.on_cpu, report.placement.estimated_by) == (0, "estimated by Vela 5.2.0 of TOSA")
    found = infer(artifact, tmp_path / "s.npz", tmp_path / "out.npz")
    assert found["outputs"]["y"]["shape"] == [1, 6, 8, 8]


def test_a_job_says_how_ranges_are_found_and_that_channels_are_equalised(tmp_path: Path) -> None:
    pytest.importorskip("ethosu.regor")
    model, random = unlike_channels()
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    x = random.normal(size=(4, 1, 3, 8, 8)).astype(np.float32)
    x[0, 0, 0, 0, 0] = 40.0
    np.savez(tmp_path / "s.npz", x=x)
    said = set()
    for how in ({"ranges": "minmax"}, {"ranges": "entropy"}, {"ranges": "minmax", "equalise": True}):
        options = CompileOptions.from_json({"target": U65, "snr_db": 90.0, **how})
        with pytest.raises(Disagreement, match="in int8, less than 90") as refused:
            compile_file(path, tmp_path / "m.tw", options, samples={"s": tmp_path / "s.npz"})
        said.add(str(refused.value))
    assert len(said) == 3


def test_an_estimate_stands_beside_what_was_timed_and_is_not_compared(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("ethosu.regor")
    pytest.importorskip("ai_edge_litert.interpreter")
    samples = {"real": sample(tmp_path / "real.npz")}
    npu, cpu = tmp_path / "npu.tw", tmp_path / "cpu.tw"
    shaped = CompileOptions.from_json({"target": U65, "inputs": {"x": list(SHAPE)}})
    report = compile_file(model, npu, shaped, samples=samples)
    compile_file(model, cpu, CompileOptions(dims={"batch": 1}, tuning_budget_s=0.0, threads=1), measure=False)
    assert (is_whole(npu), is_whole(cpu), is_whole(model)) == (True, False, False)
    found = benchmark([("n", npu), ("c", cpu)], BenchmarkOptions(seconds=0.05))
    assert [one["artifact"] for one in found["artifacts"]] == ["n", "c"]
    assert [one["runs"] > 0 for one in found["artifacts"]] == [False, True]
    assert found["comparisons"] == []
    estimated, measured = found["artifacts"]
    assert measured.keys() == estimated.keys() - {"estimated"}
    assert estimated["median_s"] == report.latency_s
    assert sum(row["share"] for row in estimated["kernels"]) <= 1.0
    assert measured["kernels"][0].keys() == estimated["kernels"][0].keys()
    with pytest.raises(OptionsError, match="has one binding"):
        benchmark([("n", npu)], BenchmarkOptions(dims={"batch": 1}))

    with pytest.raises(Disagreement, match=r"in int8, more than 0\.0001"):
        compile_file(model, npu, CompileOptions(target=U65, dims={"batch": 1}, tolerance=1e-4), samples=samples)
    with pytest.raises(Disagreement, match=r"in int8, less than 90; most is lost at CONV_2D of Conv"):
        compile_file(model, npu, CompileOptions(target=U65, dims={"batch": 1}, snr_db=90.0), samples=samples)
    broken = tmp_path / "broken.tw"
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr("manifest.json", json.dumps({"target": U65}))
    with pytest.raises(ArtifactUnusable, match="compile the model again"):
        infer(broken, samples["real"], tmp_path / "out.npz")
