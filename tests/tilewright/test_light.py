from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tilewright
from bench import subjects
from compiler.contract import CompileOptions
from tests.compiling import compile_file
from tilewright.cli import app
from tilewright.errors import NotGenuine, UsageError
from tilewright.light import refit, strip


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    model = subjects.from_zoo("tiny_cnn", folder).file
    compile_file(model, folder / "cnn.tw", CompileOptions.from_json({"tuning_budget_s": 0, "threads": 1}))
    return folder / "cnn.tw"


def test_weights_are_left_out_and_put_back_to_the_byte(artifact: Path, tmp_path: Path) -> None:
    light, weights, again = tmp_path / "cnn.light.tw", tmp_path / "cnn.weights", tmp_path / "again.tw"
    strip(artifact, light, weights)
    with zipfile.ZipFile(artifact) as archive:
        assert weights.read_bytes() == archive.read("weights.bin")
    assert weights.read_bytes() not in light.read_bytes()
    assert light.stat().st_size < artifact.stat().st_size
    refit(light, weights, again)
    assert again.read_bytes() == artifact.read_bytes()
    with tilewright.load(again) as model, tilewright.load(artifact) as whole:
        inputs = whole.random_inputs()
        for name, array in whole.run(inputs).items():
            np.testing.assert_array_equal(model.run(inputs)[name], array)


def test_other_weights_are_refused(artifact: Path, tmp_path: Path) -> None:
    strip(artifact, tmp_path / "light", tmp_path / "weights")
    (tmp_path / "other").write_bytes(bytes((tmp_path / "weights").stat().st_size))
    with pytest.raises(NotGenuine, match="SHA-256"):
        refit(tmp_path / "light", tmp_path / "other", tmp_path / "again.tw")
    assert not (tmp_path / "again.tw").exists()
    with pytest.raises(UsageError):
        strip(tmp_path / "weights", tmp_path / "l", tmp_path / "w")
    with pytest.raises(UsageError):
        refit(artifact, tmp_path / "weights", tmp_path / "again.tw")


def test_the_command_line_strips_and_refits(artifact: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.tw"
    run = CliRunner().invoke
    light, weights = artifact.with_suffix(".light.tw"), artifact.with_suffix(".weights")
    assert run(app, ["strip", str(artifact)]).exit_code == 0
    assert run(app, ["refit", str(light), str(weights), "-o", str(again), "--json"]).exit_code == 0
    assert again.read_bytes() == artifact.read_bytes()
    assert run(app, ["refit", str(light), str(light), "-o", str(again)]).exit_code == NotGenuine.exit_status
