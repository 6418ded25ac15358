"""`tilewright check`."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS, blocks
from tests.end_to_end import models
from tests.tilewright.test_regressions import FOUND
from tilewright import local
from tilewright.cli import check
from tilewright.errors import JobFailed

Command = Callable[..., Any]
KEPT = {"threads": 2, "tuning_budget_s": 0, "tolerance": 1e-5}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the measurement answers, each a status and an object; then the words that it was given."""
    given: list[Any] = []

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert words[:3] == [sys.executable, "-m", check.PROGRAM]
        status, said = given.pop()
        given.append(words[3:])
        return subprocess.CompletedProcess(words, status, json.dumps(said), "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(check, "read_manifest", lambda path: {"options": KEPT})
    return given


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options of each compilation."""
    seen: list[Any] = []

    def compile_to(made: Path, model: Path, options: dict[str, Any]) -> None:
        seen.append(options)
        made.write_bytes(b"new")

    monkeypatch.setattr(local, "compile_to", compile_to)
    return seen


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    (tmp_path / "kept.tw").write_bytes(b"kept")
    return tmp_path / "kept.tw"


def test_the_model_is_compiled_as_the_kept_artifact_was_and_both_are_measured(
    command: Command, answers: list[Any], compiled: list[Any], kept: Path, model: Path, tmp_path: Path
) -> None:
    answers.append((0, FOUND))
    words = ("--budget", 3, "--option", "seed=7", "--rounds", 5, "--threads", 1, "-o", tmp_path / "new.tw")
    done = command("check", model, "--against", kept, *words)
    assert done.exit_code == 0, done.output
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["ok", name] for name in ("latency", "error", "size")
    ]
    assert compiled == [{**KEPT, "tuning_budget_s": 3.0, "seed": 7}]
    assert answers == [[str(kept), str(tmp_path / "new.tw"), "--rounds", "5", "--threads", "1"]]
    assert (tmp_path / "new.tw").read_bytes() == b"new"


def test_a_regression_is_exit_status_1_in_every_form(
    command: Command,
    answers: list[Any],
    compiled: list[Any],
    kept: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    worse = {**FOUND, "ratio": 1.2, "low": 1.1, "high": 1.3, "difference": 2e-5}
    answers.append((0, worse))
    done = command("check", model, "--against", kept, "--junit", tmp_path / "j.xml", "--json")
    assert done.exit_code == 1
    said = json.loads(done.stdout)
    assert (said["passed"], [one["passed"] for one in said["checks"]]) == (False, [False, False, True])
    assert said["checks"][1]["permitted"] == KEPT["tolerance"]
    assert done.stderr.count("::error ") == 2
    suite = ElementTree.fromstring((tmp_path / "j.xml").read_text())
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    answers.append((0, worse))
    assert command("check", model, "--against", kept, "--max-regression", "20%", "--max-error", 1e-4).exit_code == 0
    answers.append((0, worse))
    assert "::" not in command("check", model, "--against", kept, "--no-github").stdout


def test_a_model_that_cannot_be_compiled_or_run_is_a_regression(
    command: Command,
    answers: list[Any],
    compiled: list[Any],
    kept: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers.append((1, {"error": "the new artifact cannot be run: it took too long"}))
    done = command("check", model, "--against", kept)
    assert (done.exit_code, done.stdout) == (
        1,
        "FAILED compile  the new artifact cannot be run: it took too long\n",
    )

    def refuse(*_: Any) -> None:
        raise JobFailed("1 node cannot be compiled\n  - n7", fix="mend it")

    monkeypatch.setattr(local, "compile_to", refuse)
    done = command("check", model, "--against", kept, "--junit", tmp_path / "j.xml")
    assert (done.exit_code, done.stdout) == (1, "FAILED compile  1 node cannot be compiled\n")
    assert ElementTree.fromstring((tmp_path / "j.xml").read_text()).get("failures") == "1"


def test_what_makes_no_sense_is_exit_status_2(
    command: Command, answers: list[Any], compiled: list[Any], kept: Path, model: Path, tmp_path: Path
) -> None:
    for words in (
        ("--max-regression", "much"),
        ("--max-growth", "-1%"),
        ("--artifact", tmp_path / "none.tw"),
        ("--junit", tmp_path / "none" / "j.xml"),
        ("--option", "seed={"),
    ):
        assert command("check", model, "--against", kept, *words, "--json").exit_code == 2, words
    assert command("check", model, "--against", tmp_path / "none.tw").exit_code == 2
    assert compiled == []
    answers.append((2, {"error": "new.tw has other inputs or outputs than kept.tw"}))
    done = command("check", model, "--against", kept, "--json")
    assert (done.exit_code, json.loads(done.stdout)["error"]["code"]) == (2, "usage")


@pytest.mark.processes
def test_an_artifact_is_compared_with_itself_here(command: Command, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(models.relu([64, 64]))
    local.compile_to(tmp_path / "kept.tw", tmp_path / "m.onnx", {"tuning_budget_s": 0, "threads": 1})
    done = command("check", tmp_path / "m.onnx", "--against", tmp_path / "kept.tw", "--rounds", 2, "--json")
    assert done.exit_code == 0, done.output
    latency, error, size = json.loads(done.stdout)["checks"]
    assert (latency["rounds"], latency["threads"], error["difference"]) == (2, 1, 0.0)
    assert size["kept_bytes"] > 0


def test_the_workflow_of_the_page_is_one(tmp_path: Path) -> None:
    (text,) = blocks((DOCS / "cli.md").read_text(), "yaml")
    steps = yaml.safe_load(text)["jobs"]["check"]["steps"]
    assert [step["uses"].split("@")[0] for step in steps if "uses" in step] == [
        "actions/checkout",
        "actions/setup-python",
        "actions/upload-artifact",
    ]
    assert any("tilewright check" in step.get("run", "") for step in steps)
