"""Cores and a GPU in one plan, from options to streamed results, on the double of CUDA. Its times mean nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from bench.zoo.builder import GraphBuilder
from compiler.pack.loader import Model
from tests.compiler.devices.cuda.artifact_on_double import on_double
from tests.compiler.devices.cuda.compiling_on_double import run_on_double
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import MODES

pytestmark = [needs_double, needs_nvrtc]
ROOT = Path(__file__).parents[4]
COMPILE = """
import json, sys
from pathlib import Path
from functools import partial
from bench.gpu.half_hour.beside import there_and_back
from compiler.contract import CompileOptions
from compiler.pipeline import compile_model
from compiler.request import Host, Request
from compiler.steps.dividing import proof as dividing_proof, step as dividing
dividing_proof.STREAM_SECONDS = dividing_proof.AGREE_SECONDS = 0.01
dividing_proof.FRAMES = 6
options = {"devices": ["cpu", "cuda:0"], "tuning_budget_s": 0}
for queues, artifact in ((1, sys.argv[2]), (2, sys.argv[3])):
    dividing.replicas = dividing.pipeline = partial(there_and_back, queues=queues)
    request = Request(Path(sys.argv[1]), Path(artifact), CompileOptions.from_json(options))
    report = compile_model(request, Host(measure=False))
print(json.dumps(report.to_json()))
"""
STREAM = """
model.run(inputs)
given = [model.random_inputs(seed) for seed in range(9)]
stream = model.stream(given)
for number, one in enumerate(given):
    try:
        (outputs[f"streamed {number}"],) = next(stream).values()
    except RunError as told:
        outputs[f"error {number}"] = np.array(str(told))
    (outputs[f"alone {number}"],) = model.run(one).values()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Convolutions of which two write one tensor; the first and the last call are the cores', all else a GPU's.

    The GPU has two queues, of which each does every second frame; of `one_queue`, beside it, a single one.
    """
    folder = tmp_path_factory.mktemp("beside")
    g = GraphBuilder("beside")
    x = g.relu(g.conv(g.input("image", (1, 3, 8, 8)), 8, 3, 2, bias=True))
    x = g.concat([g.relu(g.conv(x, 8, kernel, bias=True)) for kernel in (1, 3)])
    g.output("logits", g.flatten(g.global_avg_pool(g.relu(g.conv(x, 8, 3, bias=True)))))
    onnx.save(g.finish(), folder / "model.onnx")
    artifact = folder / "model.tw"
    printed = run_on_double(COMPILE, folder / "model.onnx", one_queue(artifact), artifact)
    return artifact, json.loads(printed.splitlines()[-1])


def one_queue(artifact: Path) -> Path:
    """The same model with one queue."""
    return artifact.with_name("one_queue.tw")


def test_parts_of_cores_and_a_gpu_agree_and_the_report_says_what_is_assumed(made: tuple[Path, dict[str, Any]]) -> None:
    """Compiling proved it: against the reference, and with frames in flight."""
    artifact, report = made
    assert [part["device"] for part in report["devices"]["parts"]] == ["cpu", "cuda:0", "cuda:0", "cpu"]
    assert [part["share"] for part in report["devices"]["parts"]] == [1.0, 0.5, 0.5, 1.0]
    assert [part["target"] for part in report["devices"]["parts"][1:3]] == ["cuda:sm_90"] * 2
    assert 0 < report["devices"]["max_relative"] <= report["tolerance"]
    assert any("kernels by model" in one and "GB/s back (assumed)" in one for one in report["notices"])
    with zipfile.ZipFile(artifact) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        page = archive.read("report.html").decode()
        assert archive.read("parts/2/source/kernels_0.cu")
    inner = manifest["calls"] - 2
    assert [len(part["calls"]) for part in manifest["stream"]["parts"]] == [1, inner, inner, 1]
    assert [part["folder"] for part in manifest["stream"]["parts"][1:3]] == ["parts/2/"] * 2
    assert page.count("bytes, copied between memories") == 4


@pytest.mark.parametrize("queues", [1, 2])
def test_frames_go_there_and_back_by_one_copy_each_and_one_that_fails_is_told_alone(
    queues: int, made: tuple[Path, dict[str, Any]]
) -> None:
    artifact = made[0] if queues == 2 else one_queue(made[0])
    twin = on_double(artifact)
    with Model(artifact) as model:
        assert [part["every"] for part in model.manifest["stream"]["parts"]] == [1, *([queues] * queues), 1]
        inputs = model.random_inputs(0)
    found = twin.run(inputs, MODES[4], "fail=cuMemcpyHtoDAsync_v2:3:1", STREAM)
    assert (found.error, found.fault, found.left) == ("", "", {})
    (failed,) = (name for name in found.outputs if name.startswith("error"))
    lost = int(failed.removeprefix("error "))
    assert lost in {1: (2,), 2: (1, 2, 3)}[queues]  # the third copy; two queues do not wait for each other
    assert f"frame {lost} failed: copying an input to the GPU failed" in str(found.outputs[failed])
    for number in {*range(9)} - {lost}:
        alone, streamed = found.outputs[f"alone {number}"], found.outputs[f"streamed {number}"]
        assert np.abs(alone - streamed).max() <= 1e-5 * np.abs(alone).max()
    copies = [call for call in found.calls if "Memcpy" in call and "Async" in call]
    assert (sum("HtoD" in call for call in copies), sum("DtoH" in call for call in copies)) == (9, 8)


WITHOUT_DRIVER = """
import sys
import numpy as np
from compiler.pack.loader import Model, WrongMachine
with Model(sys.argv[1]) as model:
    inputs = model.random_inputs(1)
    (alone,) = model.run(inputs).values()
    assert np.isfinite(alone).all()
    try:
        model.submit(inputs)
    except WrongMachine as reason:
        print(reason)
"""
"""In a process of its own: another test may have loaded the double, which a process keeps."""


def test_without_a_gpu_the_cores_run_the_model_and_streaming_says_what_is_missing(
    made: tuple[Path, dict[str, Any]],
) -> None:
    command = [sys.executable, "-c", WITHOUT_DRIVER, str(made[0])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "part 1 cannot start: no NVIDIA driver on this machine" in done.stdout
