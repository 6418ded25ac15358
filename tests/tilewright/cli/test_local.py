"""`tilewright compile --local`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright
from tests.end_to_end import models
from tilewright import local
from tilewright.errors import JobFailed

Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options that models are compiled under; a file is written and nothing else."""
    seen: list[Any] = []

    def compile_to(made: Path, model: Path, options: dict[str, Any]) -> list[str]:
        seen.append(options)
        made.write_bytes(b"artifact")
        return ["it was run nowhere"]

    monkeypatch.setattr(local, "compile_to", compile_to)
    return seen


def test_an_artifact_made_here_is_put_to_its_place_and_kept_for_the_next_time(
    command: Command, asked: list[Any], model: Path, tmp_path: Path
) -> None:
    for place in ("a.tw", "b.tw"):
        done = command("compile", model, "--local", "--threads", 2, "-o", tmp_path / place)
        assert done.exit_code == 0, done.output
        assert done.stdout == f"{tmp_path / place}\n"
        assert "note: it was run nowhere" in done.stderr, "the second time too"
        assert (tmp_path / place).read_bytes() == b"artifact"
    assert asked == [{"threads": 2}]
    done = command("compile", model, "--local", "--threads", 1, "-o", tmp_path / "a.tw", "--json")
    assert json.loads(done.stdout) == {"artifact": str(tmp_path / "a.tw"), "notices": ["it was run nowhere"]}
    assert [*tmp_path.glob(".*.part")] == []


@pytest.mark.parametrize(
    ("words", "following"),
    [
        (["--target", "cpu"], "tilewright run {} --bench"),
        (["--target", "wasm:simd128"], "tilewright export {} page --as browser"),
        (["--target", "cpu:x86-64-v3", "--system", "windows"], "on Windows: python {} --bench"),
        (["--target", "cpu:aarch64-bf16", "--system", "macos"], "on macOS: python {} --bench"),
    ],
)
def test_what_can_be_done_with_the_artifact_is_said(
    command: Command, asked: list[Any], model: Path, tmp_path: Path, words: list[str], following: str
) -> None:
    done = command("compile", model, "--local", *words, "-o", tmp_path / "a.tw")
    assert [asked[0].get(word[2:], "cpu") for word in words[::2]] == words[1::2]
    assert f"Next: {following.format(tmp_path / 'a.tw')}" in done.stderr.replace("\n", "")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--preflight"], "--preflight"),
        (["--no-wait"], "--no-wait"),
        (["--workload", "w"], "--workload"),
        (["--target", "cpu", "--target", "cuda:sm_90", "-o", "."], "several --target"),
    ],
)
def test_what_only_a_server_does_is_refused_before_anything_is_compiled(
    command: Command, asked: list[Any], model: Path, words: list[str], named: str
) -> None:
    done = command("compile", model, "--local", *words)
    assert done.exit_code == 2
    assert f"--local goes without {named}" in done.stderr
    assert asked == []


def test_what_the_compiler_refuses_leaves_what_was_there(
    command: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(made: Path, model: Path, options: dict[str, Any]) -> None:
        raise JobFailed("the model is none", fix="give another")

    monkeypatch.setattr(local, "compile_to", refuse)
    (tmp_path / "m.tw").write_bytes(b"before")
    done = command("compile", model, "--local", "-o", tmp_path / "m.tw")
    assert done.exit_code == JobFailed.exit_status
    assert "the model is none" in done.stderr
    assert (tmp_path / "m.tw").read_bytes() == b"before"


@pytest.mark.processes
def test_an_artifact_made_here_runs(command: Command, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(models.tiny(models.QUICK))
    done = command("compile", tmp_path / "m.onnx", "--local", "--budget", 0, "--threads", 1)
    assert done.exit_code == 0, done.output
    with tilewright.load(done.stdout.strip()) as loaded:
        assert loaded.run(loaded.random_inputs())
