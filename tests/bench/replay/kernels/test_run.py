"""Kernels of a commit beside those of a working tree."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.replay.kernels import run as running
from bench.replay.kernels.texts import PROGRAM
from bench.replay.run import main
from bench.replay.side import ROOT

ASKED = ["HEAD", "--kernels", "--only", "low_rank-0", "--only", "cpu"]


def test_the_list_names_models_and_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.startswith("low_rank-0 cpu:") for line in lines)
    assert main(["HEAD", "--kernels", "--only", "no such", "--cache", str(tmp_path)]) == 2
    assert "see --list" in capsys.readouterr().err


@pytest.mark.slow
def test_kernels_are_the_same_until_a_generator_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "repository"
    shutil.copytree(ROOT / "compiler", root / "compiler", ignore=shutil.ignore_patterns("__pycache__"))
    (root / PROGRAM).parent.mkdir(parents=True)
    shutil.copy(ROOT / PROGRAM, root / PROGRAM)
    git = ["git", "-C", str(root), "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "-q"], ["add", "compiler"], ["commit", "-q", "-m", "without the program"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(running, "ROOT", root)
    asked = [*ASKED, "--cache", str(tmp_path / "cache")]
    assert main(asked) == 0, capsys.readouterr()
    captured = capsys.readouterr()
    assert "the same in the working tree" in captured.out
    assert "The compiler is the same at both" in captured.err

    printer = root / "compiler" / "codegen" / "functions.py"
    text = printer.read_text()
    assert "else '/*'}" in text
    printer.write_text(text.replace("else '/*'}", "else '/* changed:'}"))
    assert main([*asked, "--json", str(tmp_path / "found.json")]) == 1
    out = capsys.readouterr().out
    assert "text: low_rank-0 cpu:" in out
    assert "\n+/* changed: " in out
    rows = json.loads((tmp_path / "found.json").read_text())
    assert {tuple(row["parts"]) for row in rows} == {("text",)}

    printer.write_text("not Python\n")
    assert main(asked) == 2
    assert "could not be generated" in capsys.readouterr().err
