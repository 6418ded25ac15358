from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.replay import run as running
from bench.replay.cases import SETS, Case
from bench.replay.run import main
from bench.replay.side import ROOT
from tests.bench.replay.artifacts import runs, side
from tests.bench.replay.test_side import committed

ONE = Case("tiny_cnn", "cpu", "fp32", {"threads": 1})
COMMENT = "outputs at a time"
"""Of a kernel that tiny_cnn has, in the text that is generated."""


@pytest.fixture
def one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETS, "quick", lambda: iter([ONE]))


def test_wrong_arguments_end_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = ["--cache", str(tmp_path / "cache")]
    assert main(["HEAD", "--only", "no_such_case", *cache]) == 2
    assert main(["HEAD", "--records", str(tmp_path / "missing"), *cache]) == 2
    assert main(["no_such_commit", *cache]) == 2
    assert "Fix: give a commit" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["HEAD", "--set", "no_such_set"])
    assert main(["HEAD", "--list", "--only", "tiny_cnn cuda:sm_90"]) == 0
    assert capsys.readouterr().out == "tiny_cnn cuda:sm_90 fp16\n"


@pytest.mark.usefixtures("one_case")
def test_a_compiler_of_another_place_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = committed(tmp_path / "repository")
    main_file = root / "compiler" / "__main__.py"
    main_file.write_text(f"import tilewright\n{main_file.read_text()}")
    monkeypatch.setattr(running, "ROOT", root)
    assert main(["HEAD", "--cache", str(tmp_path / "cache")]) == 2
    assert "another compiler would have run" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("one_case")
def test_a_real_network_is_the_same_until_the_text_of_a_kernel_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "repository"
    shutil.copytree(ROOT / "compiler", root / "compiler", ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-C", str(root), "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(running, "ROOT", root)
    found = tmp_path / "found.json"
    asked = ["HEAD", "--cache", str(tmp_path / "cache"), "--json", str(found)]
    assert main(asked) == 0, capsys.readouterr().out
    captured = capsys.readouterr()
    assert "1 identical, 0 differ" in captured.out
    assert "The compiler is the same at both" in captured.err

    (printer,) = [path for path in (root / "compiler").rglob("*.py") if COMMENT in path.read_text()]
    printer.write_text(printer.read_text().replace(COMMENT, "outputs in one go"))
    assert main(asked) == 1
    text = capsys.readouterr().out
    assert "== kernel k1_maxpool: tiny_cnn cpu fp32 threads=1" in text
    assert "outputs in one go: windows that may reach over a border. */" in text
    (row,) = json.loads(found.read_text())["rows"]
    assert {one["kind"] for one in row["differences"]} == {"kernel"}
    assert {one["name"] for one in row["differences"]} == {"k1_maxpool", "k7_globalaveragepool"}


def test_filling_the_cache_compiles_at_the_commit_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = side(tmp_path / "one")
    monkeypatch.setitem(SETS, "quick", lambda: iter([ONE]))
    monkeypatch.setattr(running, "at_commit", lambda *_: made)
    assert main(["HEAD", "--warm", "--cache", str(tmp_path / "cache")]) == 0
    assert len(runs(made)) == 1
    assert "one: 1 of 1 cases compiled" in capsys.readouterr().out
