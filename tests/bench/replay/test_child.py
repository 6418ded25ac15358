from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.replay import child
from tests.bench.replay.artifacts import runs, side


def run(tree: Path, path: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """The child for `tree`, where Python finds its packages in `path`."""
    command = [sys.executable, "-P", child.__file__, str(tree), "model.onnx", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(command, env=environment, cwd=out.parent, capture_output=True, text=True, check=False)


def test_the_compiler_of_the_tree_runs_and_not_the_installed_one(tmp_path: Path) -> None:
    one = side(tmp_path / "one")
    ended = run(one.tree, one.tree, tmp_path / "model.tw")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "model.tw").exists()
    assert len(runs(one)) == 1


def test_another_compiler_is_not_run(tmp_path: Path) -> None:
    one, two = side(tmp_path / "one"), side(tmp_path / "two")
    ended = run(one.tree, two.tree, tmp_path / "model.tw")
    assert ended.returncode == child.WRONG_COMPILER
    assert f"not from {one.tree}" in ended.stderr
    assert not runs(two)


def test_what_comes_from_elsewhere_meanwhile_is_told(tmp_path: Path) -> None:
    one = side(tmp_path / "one")
    main = one.tree / "compiler" / "__main__.py"
    main.write_text(f"import tilewright\n{main.read_text()}")
    ended = run(one.tree, one.tree, tmp_path / "model.tw")
    assert ended.returncode == child.WRONG_COMPILER
    assert "tilewright" in ended.stderr


def test_a_failure_is_the_compilers_own(tmp_path: Path) -> None:
    one = side(tmp_path / "one")
    (one.tree / "refuses").touch()
    ended = run(one.tree, one.tree, tmp_path / "model.tw")
    assert (ended.returncode, ended.stderr) == (1, f"model.onnx: refused in {one.tree}\n")
