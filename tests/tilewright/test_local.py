from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import tilewright
from tests.end_to_end import models
from tilewright import local
from tilewright.errors import JobFailed, UsageError

FAST = {"tuning_budget_s": 0, "threads": 1}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "m.onnx").write_bytes(models.tiny(models.QUICK))
    return tmp_path / "m.onnx"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The compiler's command lines; it writes a file and nothing else."""
    seen: list[list[str]] = []

    def run(command: list[str]) -> tuple[int, str, str]:
        seen.append(command)
        Path(command[command.index("--out") + 1]).write_bytes(b"artifact")
        return 0, '{"notices": ["it was run nowhere"]}', ""

    monkeypatch.setattr(local, "_run", run)
    return seen


@pytest.mark.processes
def test_a_model_is_compiled_here_runs_and_is_found_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with tilewright.compile(model, FAST) as ours:
        inputs = ours.random_inputs()
        for got, want in zip(ours.run(inputs).values(), session.run(None, dict(inputs)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(local, "_run", None)  # nothing is started
    with tilewright.compile(str(model), FAST) as again, tilewright.compile(local.kept(model, FAST)) as given:
        assert again.manifest == given.manifest


@pytest.mark.processes
def test_what_the_compiler_refuses_is_said_with_its_fix(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(models.tiny(models.QUICK))
    with pytest.raises(JobFailed, match="unknown option 'colour'"):
        local.compiled(tmp_path / "bad.onnx", {"colour": 1})
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_each_of_what_an_artifact_depends_on_makes_another(
    model: Path, calls: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = local.compiled(model, FAST)
    assert first.read_bytes() == b"artifact"
    assert local.noticed(first) == ["it was run nowhere"]
    assert local.compiled(model, dict(reversed(FAST.items()))) == first
    assert len(calls) == 1
    assert calls[0][:3] == [sys.executable, "-m", "compiler"]
    assert json.loads(calls[0][calls[0].index("--options") + 1]) == FAST
    found = {first, local.compiled(model), local.compiled(model, {"threads": 2})}
    monkeypatch.setattr(local, "_processor", lambda: "another")
    found.add(local.compiled(model, FAST))
    model.write_bytes(models.tiny("tiny_cnn"))
    found.add(local.compiled(model, FAST))
    assert len(found) == len(calls) == 5


def test_what_is_no_file_and_a_place_that_cannot_be_written_are_usage_errors(
    model: Path, tmp_path: Path, calls: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (tmp_path / "none.onnx", tmp_path):
        with pytest.raises(UsageError, match="there is no such file"):
            tilewright.compile(path)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "file" / "below"))
    with pytest.raises(UsageError, match="cannot be made"):
        local.compiled(model)
    assert calls == []


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local.cache_dir() == Path(os.environ["TILEWRIGHT_CACHE_DIR"])
    monkeypatch.delenv("TILEWRIGHT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert local.cache_dir() == Path("/elsewhere/tilewright/artifacts")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert local.cache_dir() == Path.home() / ".cache/tilewright/artifacts"
