"""`tilewright models workload`, and `--workload` of commands that use one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.tilewright.fake_server import JOB

Command = Callable[..., Any]
DIGEST = "5" * 64
SHORT: dict[str, Any] = {"name": "chat-short", "model": DIGEST, "dims": {"batch": 1, "seq": 32}}


@pytest.fixture(autouse=True)
def answers(server: Any) -> None:
    here = f"/models/{DIGEST}/workloads"
    server.answers |= {here: {"workloads": [SHORT]}, f"{here}/chat-short": SHORT}


def test_a_workload_is_named_listed_shown_and_deleted(command: Command, server: Any) -> None:
    done = command("models", "workload", DIGEST, "chat-short", "--dim", "batch=1", "--dim", "seq=32")
    assert (done.exit_code, done.stdout.strip()) == (0, "chat-short batch=1 seq=32"), done.output
    assert server.seen[-1].method == "PUT"
    assert json.loads(server.seen[-1].content) == {"dims": {"batch": 1, "seq": 32}}
    assert json.loads(command("models", "workload", DIGEST, "--json").stdout) == {"workloads": [SHORT]}
    assert "seq=32" in command("models", "workload", DIGEST).stdout
    assert json.loads(command("models", "workload", DIGEST, "chat-short", "--json").stdout) == SHORT
    assert command("models", "workload", DIGEST, "chat-short", "--delete").exit_code == 0
    assert server.seen[-1].method == "DELETE"


@pytest.mark.parametrize(
    "given", [["--dim", "seq=32"], ["--delete"], ["../jobs"], ["w", "--dim", "seq=1", "--delete"]], ids=str
)
def test_what_makes_no_sense_is_not_sent(command: Command, server: Any, given: list[str]) -> None:
    before = len(server.seen)
    done = command("models", "workload", DIGEST, *given)
    assert (done.exit_code, len(server.seen)) == (2, before), done.output


def test_a_benchmark_and_a_compilation_name_the_workload(command: Command, server: Any) -> None:
    command("bench", JOB, "--workload", "chat-short", "--no-wait")
    (asked,) = [one for one in server.seen if one.url.path.endswith("/benchmarks")]
    assert json.loads(asked.content)["workload"] == "chat-short"
    command("compile", DIGEST, "--workload", "chat-short", "--no-wait")
    (asked,) = [one for one in server.seen if one.url.path.endswith("/compile")]
    assert asked.url.params["workload"] == "chat-short"
    assert "workload" not in json.loads(asked.content)
