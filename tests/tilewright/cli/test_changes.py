"""`tilewright changes`: what another version of the compiler makes of artifacts that the server keeps."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tilewright.fake_server import ARTIFACT, JOB
from tilewright.cli import changes as command_module
from tilewright.cli import reproduce

Command = Callable[..., Any]
SAME = {"same": True, "artifact": "a", "made": "a", "measurements": 9, "differing": [], "reasons": [], "missing": []}
SAME |= {"kernels": 4, "changed": [], "measured": 3}
OTHER = SAME | {"same": False, "made": "b", "changed": ["k2_conv"], "missing": ["call 2, Conv of node.conv"]}
OTHER |= {"reasons": ["compiler_version was '0.1.0', here '0.2.0'"]}


@pytest.fixture
def compiler(server: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the compiler's process answers, one for each artifact; the artifact is one that names its model."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("manifest.json", json.dumps({"format_version": 1, "model_digest": "d" * 64}))
    server.artifact = file.getvalue()
    answers: list[Any] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[:3] == [sys.executable, "-m", reproduce.COMPILER]
        assert Path(command[3]).read_bytes() == server.artifact
        return subprocess.CompletedProcess(command, 0, json.dumps(answers.pop(0)), "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(command_module, "model_file", lambda client, digest, folder: Path(digest))
    return answers


def test_what_changes_nothing_is_exit_status_0(command: Command, server: Any, compiler: list[Any]) -> None:
    compiler.append(SAME)
    done = command("changes", JOB, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"artifacts": [{"job": JOB, "artifact_id": ARTIFACT, **SAME}]}


def test_changed_kernels_measurements_and_refusals_are_told(command: Command, server: Any, compiler: list[Any]) -> None:
    compiler.append(OTHER)
    done = command("changes", JOB)
    assert done.exit_code == 5, done.output
    shown = " ".join(done.stdout.split())
    assert "4" in shown
    assert "2 of 3" in shown
    assert "here" in shown
    compiler.append({"error": {"code": "options_invalid", "message": "options: fast_math is unknown"}})
    done = command("changes", JOB, JOB, "--json")
    assert done.exit_code == 5
    (only,) = json.loads(done.stdout)["artifacts"]
    assert only == {
        "job": JOB,
        "artifact_id": ARTIFACT,
        "same": False,
        "refused": "options: fast_math is unknown",
    }
