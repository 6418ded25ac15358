"""The loader as a command."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.compiler.pack.test_loader import extracted


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True, check=False)


def test_the_command_line_runs_the_archive_alone_beside_its_loader_and_extracted(artifact: Path) -> None:
    folder = extracted(artifact)
    apart = artifact.parent / "apart"
    apart.mkdir()
    shutil.copy(folder / "loader.py", apart)
    ways: list[tuple[list[str | Path], Path]] = [
        ([artifact], artifact.parent),
        (["loader.py"], folder),
        (["loader.py", artifact], apart),
    ]
    for command, cwd in ways:
        done = run(*command, "--json", "--seed", "5", cwd=cwd)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["inputs"] == {"x": "float32[2, 3]", "n": "int64[]"}


def test_the_command_line_measures(artifact: Path) -> None:
    done = run(artifact, "--bench", "--seconds", "0.02", "--profile", "--lanes", "1", "--pin")
    assert done.returncode == 0, done.stderr
    assert "runs on 1 lanes" in done.stdout
    assert "plan 1: sequential, 2 lanes" in done.stdout
    assert "75.0%     0 Mul" in done.stdout


def test_the_command_line_forces_a_plan(guarded: Path) -> None:
    done = run(guarded, "--plan", "1")
    assert done.returncode == 0, done.stderr
    assert "plan 1: greedy, 2 lanes where a hand-over takes at most 100 ns" in done.stdout


def test_the_command_line_fails_in_one_line(artifact: Path, tmp_path: Path) -> None:
    done = run(artifact, str(tmp_path / "missing.tw"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_hostile_name_is_printed_as_data(loader: ModuleType, parts: Any, tmp_path: Path) -> None:
    path = parts.named("a\x1b[31m", "n\n", "</script>", "z\x00").pack(tmp_path / "m.tw").path
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        assert loader.main([str(path)]) == 0
    assert "\x1b" not in out.getvalue()
    assert "'n\\n'" in out.getvalue()
