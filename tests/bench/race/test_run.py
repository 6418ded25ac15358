from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.race.run import main
from bench.zoo import build
from compiler.contract import CompileOptions
from tests.compiling import compile_file


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model and its artifact."""
    folder = tmp_path_factory.mktemp("race")
    model, artifact = folder / "m.onnx", folder / "m.tw"
    model.write_bytes(build("tiny_cnn").SerializeToString())
    compile_file(model, artifact, CompileOptions(threads=1, tuning_budget_s=0.0))
    return str(model), str(artifact)


def test_an_artifact_is_raced_against_what_it_was_compiled_from(
    compiled: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*compiled, "--rounds", "1", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    theirs = reported["peers"]["onnxruntime"]
    assert (reported["threads"], reported["rounds"] + reported["discarded"] >= 1, reported["state"]) == (1, True, None)
    assert theirs["difference"] < 1e-4
    assert 0 < theirs["ratio"]["low"] <= theirs["ratio"]["value"] <= theirs["ratio"]["high"]
    assert 0 < reported["ours_ms"]["p10"] <= reported["ours_ms"]["median"] <= reported["ours_ms"]["p90"]
    assert main([*compiled, "--rounds", "1"]) == 0
    assert "ours over theirs" in capsys.readouterr().out


def test_what_cannot_be_read_and_what_cannot_be_run_are_told_apart(
    compiled: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, artifact = compiled
    assert main([model, str(tmp_path / "absent.tw")]) == 2
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"this is no model")
    assert main([str(broken), artifact, "--rounds", "1"]) == 1
    assert "onnxruntime cannot run the model" in capsys.readouterr().err
