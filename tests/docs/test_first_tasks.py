"""The commands of docs/first-tasks.md, in this environment, one task after another."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import first_tasks
from tests.end_to_end import models

TITLES = ["A model of mine, faster in my program", "Is it right?", "Ship it to a C program"]


def test_pip_is_left_out_and_nothing_else() -> None:
    assert first_tasks.without_pip("a\npip install 'x[y]' z\nb\n") == "a\n\nb\n"
    assert [title for title, _ in first_tasks.tasks()] == TITLES
    assert all(commands.strip() for _, commands in first_tasks.tasks())


@pytest.mark.processes
def test_each_task_is_done_by_its_commands(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(models.tiny(models.QUICK))
    variables = first_tasks.environment_variables(Path(sys.executable).parent, tmp_path)
    said = []
    for _, commands in first_tasks.tasks():
        quick = first_tasks.without_pip(commands).replace("--budget 20", "--budget 0")
        done = first_tasks.run(quick, tmp_path, variables)
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(done.stdout)
    assert "ONNX Runtime" in said[0]
    assert "float32" in said[0]
    assert "largest difference" in said[1]
    assert "same bytes" in said[1]
    assert said[2].strip()
