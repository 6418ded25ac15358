"""`tilewright race`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import models
from tilewright import local
from tilewright.cli import race

Command = Callable[..., Any]
ROW: dict[str, Any] = {"peer": "onnxruntime", "threads": 2, "ours_s": 1.08e-3, "theirs_s": 1.66e-3, "ratio": 1.54}
ROW |= {"said": "1.08 ms; ONNX Runtime 1.66 ms: 1.54 times as fast (1.49 to 1.58)"}
NONE: dict[str, Any] = {
    "peer": "openvino",
    "threads": 0,
    "ours_s": None,
    "said": "OpenVINO cannot run the model: no; never",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What races answer, each a status, output and errors; they are replaced by their words."""
    given: list[Any] = []

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert words[:3] == [sys.executable, "-m", race.PROGRAM]
        answer = given.pop()
        given.append(words[3:])
        return subprocess.CompletedProcess(words, *answer)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(local, "compiled", lambda model, options: tmp_path / f"{options['threads']}.tw")
    return given


def test_there_is_a_line_for_ours_and_one_for_each_peer(command: Command, answers: list[Any], model: Path) -> None:
    answers.append((0, json.dumps([ROW, NONE]), ""))
    done = command("race", model, "--threads", 2, "--rounds", 3, "--peer", "openvino")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "Tilewright 1.08 ms with 2 threads",
        "ONNX Runtime 1.66 ms: 1.54 times as fast (1.49 to 1.58)",
        "OpenVINO cannot run the model: no; never",
    ]
    ((model_word, artifact, *words),) = answers
    assert (model_word, Path(artifact).name) == (str(model), "2.tw")
    assert words == ["--rounds", "3", "--json", "--peer=openvino", "--threads", "2"]


def test_programs_get_all_figures(command: Command, answers: list[Any], model: Path) -> None:
    answers.append((0, json.dumps([NONE, ROW]), ""))
    said = json.loads(command("race", model, "--threads", 2, "--json").stdout)
    assert Path(said.pop("artifact")).name == "2.tw"
    assert said == {"threads": 2, "ours_s": 1.08e-3, "peers": [NONE, ROW]}


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ((0, "[]", ""), 2, "no other runtime is installed here"),
        ((2, "", "usage: ...\nerror: invalid choice: 'torch'\n"), 2, "invalid choice: 'torch'"),
        ((1, "", "m.tw: it is damaged\n"), 1, "it is damaged"),
    ],
)
def test_what_cannot_be_raced_is_said(
    command: Command, answers: list[Any], model: Path, answer: Any, status: int, said: str
) -> None:
    answers.append(answer)
    done = command("race", model, "--threads", 1, "--json")
    assert done.exit_code == status
    assert said in json.loads(done.stdout)["error"]["message"]


@pytest.mark.processes
def test_a_model_is_compiled_and_raced_here(command: Command, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(models.tiny(models.QUICK))
    words = ["--threads", 1, "--budget", 0, "--rounds", 1, "--peer", "onnxruntime", "--json"]
    done = command("race", tmp_path / "m.onnx", *words)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert Path(said["artifact"]).is_file()
    assert said["peers"][0]["rounds"] == 1, said
