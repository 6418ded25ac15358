"""Commands that look: records, models, targets, operators, workers, log; and profiles, which name servers."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.tilewright.fake_server import JOB, removal
from tilewright import profiles
from tilewright.profiles import Profile, Profiles

Command = Callable[..., Any]
RECORD: dict[str, Any] = {
    "id": "019aa1f0-9d11-7c52-8e0a-0f6d2b7a4c10",
    "job": JOB,
    "model": "0" * 64,
    "created_at": "2026-11-21T04:00:03.000Z",
    "kind": "kernel",
    "workload": "1f0c",
    "operator": "Conv+Relu",
    "target": "cpu:x86-64-v4",
    "hardware": "cpu:x86-64-v4/62",
    "variant": {"algorithm": "contraction"},
    "threads": 1,
    "seconds": 0.000213,
    "p10": 0.00021,
    "p90": 0.000225,
    "samples": 31,
}


@pytest.fixture(autouse=True)
def one_record(server: Any) -> None:
    server.pages = {"": {"records": [RECORD], "next_cursor": None}}
    server.answers[f"/tuning-records/{RECORD['id']}"] = RECORD
    server.answers[f"/tuning-records/{RECORD['id']}/source"] = httpx.Response(200, text="void k(void);")


def test_records_are_listed_with_filters(command: Command, server: Any) -> None:
    done = command("records", "--operator", "Conv+Relu", "--job", JOB, "-n", 5)
    assert done.exit_code == 0, done.output
    for part in (RECORD["id"], "Conv+Relu", "213.00 us", "contraction", "2026-11-21 04:00:03"):
        assert part in done.stdout, part
    assert dict(server.seen[0].url.params) == {"operator": "Conv+Relu", "job": JOB, "limit": "5"}
    assert json.loads(command("records", "--json").stdout) == {"records": [RECORD]}


def test_records_go_to_files_and_csv_to_a_pipe(command: Command, server: Any, tmp_path: Path) -> None:
    assert command("records", "--csv").stdout == "id,seconds\n1,2\n"
    done = command("records", "--target", "cpu", "-o", tmp_path / "r.parquet", "--json")
    assert json.loads(done.stdout) == {"file": str(tmp_path / "r.parquet"), "bytes": 15}
    assert dict(server.seen[-1].url.params) == {"target": "cpu", "format": "parquet"}
    command("records", "-o", tmp_path / "r.txt")
    assert json.loads((tmp_path / "r.txt").read_text()) == {"records": [RECORD]}
    for wrong in (("--csv", "--parquet"), ("--parquet",), ("--csv", "--json")):
        assert command("records", *wrong).exit_code == 2


def test_a_record_is_shown_with_its_source(command: Command) -> None:
    assert "213.00 us" in command("records", "show", RECORD["id"]).stdout
    assert command("records", "show", RECORD["id"], "--source").stdout == "void k(void);\n"
    reported = json.loads(command("records", "show", RECORD["id"], "--source", "--json").stdout)
    assert reported == {**RECORD, "source": "void k(void);"}


def test_records_are_exported_and_imported(command: Command, server: Any, tmp_path: Path) -> None:
    assert command("records", "export", tmp_path / "all").exit_code == 0
    counts = {"imported": 3, "there_already": 1, "refused": 1}
    refusals = [{"line": 17, "reason": "no number"}]
    server.answers["/tuning-records/import"] = {"lines": 6, "records": counts, "workloads": {}, "refusals": refusals}
    done = command("records", "import", tmp_path / "all")
    assert "records: 3 imported, 1 there already, 1 refused\n" in done.stdout
    assert "line 17: no number" in done.stderr
    assert command("records", "import", tmp_path / "none", "--json").exit_code == 2


def test_models_are_uploaded_listed_and_deleted(command: Command, server: Any, model: Path) -> None:
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    assert command("models", "upload", model).stdout.strip() == digest
    assert digest in command("models").stdout
    assert json.loads(command("models", "--json").stdout)["models"][0]["digest"] == digest
    assert json.loads(command("models", "delete", digest, "--json").stdout) == removal(digest)
    assert command("models", "delete", digest).exit_code == 4
    command("models", "upload", model)
    gone = command("models", "delete", digest).stdout
    assert gone == "deleted: the model, 2 jobs, 1 artifacts; kept: 7 tuning records\n"


def test_targets_operators_and_workers_are_tables(command: Command, server: Any) -> None:
    target = {"name": "cpu:x86-64-v4", "description": "AVX-512", "measured_by": ["w/1"], "built_by": [], "queued": 2}
    operator = {"name": "Conv", "domain": "ai.onnx", "opsets": [6, 28], "limits": "1 to 3 dimensions", "facts": {}}
    worker = {"name": "w/1", "queues": ["cpu", "run:cpu"], "hardware": {}, "compiler": "0.1.0", "busy": False}
    server.answers |= {
        "/targets": {"targets": [target]},
        "/operators": {"operators": [operator, {"name": "Relu"}]},
        "/workers": {"workers": [worker]},
    }
    for name, said, parts in (
        ("targets", target, ("cpu:x86-64-v4", "AVX-512", "w/1")),
        ("operators", operator, ("Conv", "6 to 28", "1 to 3 dimensions")),
        ("workers", worker, ("w/1", "cpu, run:cpu", "idle")),
    ):
        shown = command(name).stdout
        for part in parts:
            assert part in shown, (name, part)
        assert json.loads(command(name, "--json").stdout)[name][0] == said
    assert "Relu" not in command("operators", "conv").stdout
    assert [one["name"] for one in json.loads(command("operators", "re", "--json").stdout)["operators"]] == ["Relu"]


def test_an_empty_house_says_what_is_missing(command: Command, server: Any) -> None:
    server.answers |= {"/targets": {"targets": []}, "/operators": {"operators": []}, "/workers": {"workers": []}}
    for name in ("targets", "operators", "workers"):
        done = command(name)
        assert done.exit_code == 0
        assert "No worker" in done.stderr


def test_the_log_is_printed_as_it_is(command: Command, server: Any) -> None:
    server.answers[f"/jobs/{JOB}/log"] = httpx.Response(200, text="attempt [1]\n")
    assert command("log", JOB).stdout == "attempt [1]\n"
    server.answers[f"/jobs/{JOB}/log"] = {"attempts": []}
    assert json.loads(command("log", JOB, "--json").stdout) == {"attempts": []}
    assert server.seen[-1].url.params["format"] == "json"


def test_jobs_are_filtered_by_kind_and_state(command: Command, server: Any) -> None:
    assert JOB in command("jobs", "--kind", "Benchmark", "--state", "running").stdout
    assert server.seen[0].url.params.get_list("kind") == ["benchmark"]
    assert server.seen[0].url.params.get_list("state") == ["RUNNING"]


def test_profiles_are_added_listed_used_and_removed(command: Command, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("twk_x")
    assert command("profiles", "add", "lab", "http://lab:1", "--key", "twk_lab", "--use").exit_code == 0
    assert command("profiles", "add", "home", "http://home:2", "--key-file", tmp_path / "key").exit_code == 0
    assert profiles.load() == Profiles(
        {"lab": Profile("http://lab:1", "twk_lab"), "home": Profile("http://home:2", key_file=str(tmp_path / "key"))},
        "lab",
    )
    reported = json.loads(command("profiles", "--json").stdout)
    assert [(one["name"], one["used"], one["key"]) for one in reported["profiles"]] == [
        ("home", False, False),
        ("lab", True, True),
    ]
    listed = command("profiles", "list").stdout
    assert "http://lab:1" in listed
    assert "twk_lab" not in listed + json.dumps(reported)
    assert command("profiles", "use", "home").exit_code == 0
    assert profiles.load().used == "home"
    assert command("profiles", "remove", "home").exit_code == 0
    assert profiles.load() == Profiles({"lab": Profile("http://lab:1", "twk_lab")})
    for wrong in (
        ("use", "gone"),
        ("remove", "gone"),
        ("add", "x", "lab:1"),
        ("add", "x", "http://x", "--key-file", "/no"),
    ):
        done = command("profiles", *wrong, "--json")
        assert done.exit_code == 2
        assert json.loads(done.stdout)["error"]["fix"]


def test_a_profile_is_chosen_before_or_after_the_command(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.cli import output
    from tilewright.client import Client

    profiles.save(Profiles({"lab": Profile("http://lab.test", "twk_lab")}))
    asked: list[tuple[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.url.host, request.headers["authorization"]))
        return httpx.Response(200, json={"jobs": [], "next_cursor": None})

    monkeypatch.setattr(
        output,
        "make_client",
        lambda url, key, profile: Client(url, key, profile=profile, transport=httpx.MockTransport(answer)),
    )
    assert command("--profile", "lab", "jobs").exit_code == 0
    assert command("jobs", "--profile", "lab").exit_code == 0
    assert asked == [("lab.test", "Bearer twk_lab")] * 2
    assert command("jobs").exit_code == 3


@pytest.mark.parametrize("arguments", [("bake",), ("compile",), ("jobs", "--limit", "many"), ("records", "melt")])
def test_misuse_is_json_too_when_json_is_asked_for(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tilewright", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": "."})
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "usage"
    assert done.stderr == ""


def test_the_entry_point_leaves_with_the_status_of_the_command_when_json_is_asked_for() -> None:
    command = [sys.executable, "-m", "tilewright", "jobs", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": "."})
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"]["code"] == "server_unreachable"


def test_without_a_terminal_there_is_no_bar(command: Command, model: Path) -> None:
    done = command("compile", model)
    assert done.exit_code == 0
    assert "\x1b" not in done.stderr
    assert "━" not in done.stderr
