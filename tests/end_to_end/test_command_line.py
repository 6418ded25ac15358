"""From an ONNX file to outputs, with the command line alone."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.end_to_end import models
from tests.end_to_end.house import GUARD_S, House
from tilewright.cli.run import read_npz, write_npz


@dataclass(frozen=True)
class Compiled:
    """What `tilewright compile --json` made of a network of the zoo."""

    network: str
    said: dict[str, Any]

    @property
    def artifact(self) -> Path:
        return Path(self.said["artifact"])


@pytest.fixture(scope="module", params=models.TINY)
def compiled(request: pytest.FixtureRequest, house: House) -> Compiled:
    (house.folder / f"{request.param}.onnx").write_bytes(models.tiny(request.param))
    arguments = [f"{request.param}.onnx", "--json", "--budget", "0", "-o", str(house.folder / f"{request.param}.tw")]
    return Compiled(request.param, json.loads(house.command_line("compile", *arguments).stdout))


def test_an_artifact_of_the_command_line_agrees_with_onnx_runtime(
    house: House, compiled: Compiled, tmp_path: Path
) -> None:
    assert compiled.said["state"] == "SUCCEEDED"
    with tilewright.load(compiled.artifact) as model:
        inputs = model.random_inputs(seed=7)
        found = model.run(inputs)
    models.assert_agrees(found, models.reference(models.tiny(compiled.network), inputs))

    write_npz(tmp_path / "in.npz", inputs)
    arguments = ["--input", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz"), "--json"]
    told = json.loads(house.command_line("run", str(compiled.artifact), *arguments).stdout)
    assert told["bench"] is None
    again = read_npz(tmp_path / "out.npz")
    assert {name: about["shape"] for name, about in told["outputs"].items()} == {
        name: list(value.shape) for name, value in again.items()
    }
    for name, value in found.items():
        np.testing.assert_array_equal(again[name], value)


def test_an_artifact_runs_without_tilewright(compiled: Compiled, tmp_path: Path) -> None:
    with zipfile.ZipFile(compiled.artifact) as archive:
        archive.extractall(tmp_path / "model")
    with tilewright.load(compiled.artifact) as model:
        expected = {
            name: hashlib.sha256(value.tobytes()).hexdigest()
            for name, value in model.run(model.random_inputs(3)).items()
        }
    for program in (tmp_path / "model" / "loader.py", compiled.artifact):
        # -I: neither this folder, nor PYTHONPATH, nor the user's packages.
        command = [sys.executable, "-I", str(program), "--json", "--seed", "3"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=GUARD_S, check=False)
        assert done.returncode == 0, done.stderr
        outputs = json.loads(done.stdout)["outputs"]
        assert {name: about["sha256"] for name, about in outputs.items()} == expected


def test_jobs_lists_them_and_download_fetches_one_again(house: House, compiled: Compiled, tmp_path: Path) -> None:
    listed = json.loads(house.command_line("jobs", "--json", "--limit", "0").stdout)["jobs"]
    (job,) = [job for job in listed if job["id"] == compiled.said["id"]]
    assert (job["state"], job["artifact_id"]) == ("SUCCEEDED", compiled.said["artifact_id"])
    assert compiled.said["id"] in house.command_line("jobs", "--limit", "0").stdout

    told = house.command_line("download", "--job", compiled.said["id"], "-o", str(tmp_path / "again.tw"), "--json")
    assert Path(json.loads(told.stdout)["artifact"]).read_bytes() == compiled.artifact.read_bytes()


def test_run_measures_the_latency(house: House) -> None:
    (house.folder / "relu.onnx").write_bytes(models.relu([64, 64]))
    house.command_line("compile", "relu.onnx", "--budget", "0", "-o", "relu.tw")
    told = json.loads(house.command_line("run", "relu.tw", "--bench", "--json").stdout)
    assert told["outputs"]["y"] == {"shape": [64, 64], "dtype": "float32"}
    bench = told["bench"]
    assert bench["runs"] > 0
    assert 0 < bench["min"] <= bench["p10"] <= bench["median"] <= bench["p90"]


def test_a_refused_model_leaves_with_status_1_and_its_reasons(house: House) -> None:
    (house.folder / "foreign.onnx").write_bytes(models.foreign())
    told = json.loads(house.command_line("compile", "foreign.onnx", "--json", status=1).stdout)
    assert told["error"]["code"] == "unsupported_model"
    (refusal,) = told["error"]["problem"]["refusals"]
    assert (refusal["node"], refusal["operator"]) == ("odd one", "Frobnicate")
    for_people = house.command_line("compile", "foreign.onnx", status=1).stderr
    assert "Frobnicate" in for_people
    assert not (house.folder / "foreign.tw").exists()
