"""`tilewright redeploy`: the program of an artifact with other weights."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tilewright.fake_server import JOB
from tilewright.cli import redeploy

Command = Callable[..., Any]
SAME: dict[str, Any] = {"same_program": True, "kernels": 4, "measured": 3, "tolerance": 1e-4, "notices": []}
SAME |= {"changed": [], "calls": [], "differing": [], "reasons": [], "errors": [{"max_relative": 2e-7}]}


@pytest.fixture
def compiler(server: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the compiler's process answers; it is given the artifact of the server."""
    server.artifact = b"the artifact"
    answers: list[Any] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[:3] == [sys.executable, "-m", redeploy.COMPILER]
        assert Path(command[3]).read_bytes() == server.artifact
        answers.append(command[4:])
        return subprocess.CompletedProcess(command, 0, json.dumps(answers.pop(0)), "")

    monkeypatch.setattr(subprocess, "run", run)
    return answers


def test_the_artifact_of_a_job_is_fetched_and_the_file_lies_beside_the_model(
    command: Command, compiler: list[Any], model: Path
) -> None:
    compiler.append(SAME)
    done = command("redeploy", JOB, model, "--samples", "a.npz", "--json")
    assert done.exit_code == 0, done.output
    made = str(model.with_suffix(".tw"))
    assert json.loads(done.stdout) == {**SAME, "output": made}
    assert compiler == [[str(model), "--json", "--out", made, "--samples", "a.npz"]]


def test_what_values_made_otherwise_is_listed_and_is_no_failure(
    command: Command, compiler: list[Any], model: Path, tmp_path: Path
) -> None:
    call = "call 2, Conv of node.conv: sparse, by the cost model"
    compiler.append(SAME | {"same_program": False, "changed": ["k2_conv"], "calls": [call], "differing": ["model.so"]})
    (tmp_path / "given.tw").write_bytes(b"the artifact")
    done = command("redeploy", tmp_path / "given.tw", model, "-o", tmp_path / "new.tw")
    assert done.exit_code == 0, done.output
    for said in ("same program: no", "other code: k2_conv", f"other call: {call}", "differs: model.so", "2.0e-07"):
        assert said in done.stdout


def test_a_model_of_another_graph_is_exit_status_2_with_the_node(
    command: Command, compiler: list[Any], model: Path
) -> None:
    refusal = {"operator": "Sigmoid", "node": "act", "reason": "in the artifact it is Relu 'act'", "fix": ""}
    compiler.append({"error": {"message": "another graph", "fix": "compile it", "refusals": [refusal]}})
    done = command("redeploy", JOB, model, "--json")
    assert done.exit_code == 2
    error = json.loads(done.stdout)["error"]
    assert error["message"] == "another graph; Sigmoid 'act': in the artifact it is Relu 'act'"
    assert error["fix"] == "compile it"
