"""What a child says to its worker about kernels for others to measure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from compiler.tuning.helpers import Given, Task, Terms
from service.jobs.tuning.records import MAX_TEXT_BYTES
from worker.attempt import helper_requests
from worker.attempt.helper_requests import Mailbox, More, answer_path
from worker.attempt.supervise import MAX_MESSAGE_BYTES

TERMS = Terms(1, "fp32", {})


def task(at: int, text: str = "kernel") -> Task:
    return Task(f"k{at}", text, [{"algorithm": "loops"}], 0.5)


class Answering:
    """A worker that answers each question at once."""

    def __init__(self, folder: Path, said: Mapping[str, Any]) -> None:
        self.folder, self.said = folder, said
        self.heard: list[Mapping[str, Any]] = []

    def __call__(self, message: Mapping[str, Any]) -> None:
        self.heard.append(message)
        answer_path(self.folder, message["number"]).write_text(json.dumps(self.said))


def test_each_question_has_a_number_of_its_own(tmp_path: Path) -> None:
    worker = Answering(tmp_path, {"keys": ["k0"], "records": [], "pending": 1, "seconds": 2.0, "by": {"two": 1}})
    box = Mailbox(worker, tmp_path)
    assert not box.offer(TERMS, [task(0)])
    assert box.take(1.5, 3) == Given(("k0",), (), 1, 2.0, {"two": 1})
    box.over()
    assert [(one["number"], one["ask"]) for one in worker.heard] == [(1, "offer"), (2, "take"), (3, "over")]
    assert (worker.heard[1]["seconds"], worker.heard[1]["measured"]) == (1.5, 3)


def test_no_answer_is_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_requests, "PATIENCE_S", 0.02)
    box = Mailbox(lambda message: None, tmp_path)
    assert not box.offer(TERMS, [task(0)])
    assert box.take(0.0, 0) == Given()


def test_only_what_a_message_may_hold_is_offered(tmp_path: Path) -> None:
    """Beyond it the worker would end the job."""
    worker = Answering(tmp_path, {"others": 1})
    long = "x" * (helper_requests.MOST_TEXT_BYTES + 1)
    many = [task(at) for at in range(helper_requests.MOST_TASKS + 5)]
    assert Mailbox(worker, tmp_path).offer(TERMS, [task(-1, long), *many]) == 1
    assert [one["key"] for one in worker.heard[-1]["tasks"]] == [one.key for one in many[: helper_requests.MOST_TASKS]]
    large = [task(at, "x" * helper_requests.MOST_TEXT_BYTES) for at in range(100)]
    assert Mailbox(worker, tmp_path).offer(TERMS, large)
    offered = worker.heard[-1]["tasks"]
    assert 50 < len(offered) < 64
    assert len(json.dumps(offered)) <= helper_requests.MOST_BYTES < MAX_MESSAGE_BYTES
    assert helper_requests.MOST_TEXT_BYTES <= MAX_TEXT_BYTES


def test_a_helper_asks_for_more_until_there_is_some_or_the_job_is_over(tmp_path: Path) -> None:
    said = [{"wait": True}, {"tasks": [{"key": "k1"}]}, {"wait": False}]
    asked: list[tuple[float, int]] = []

    def worker(message: Mapping[str, Any]) -> None:
        assert message["ask"] == "more"
        asked.append((message["seconds"], message["measured"]))
        answer_path(tmp_path, message["number"]).write_text(json.dumps(said.pop(0)))

    more = More(worker, tmp_path)
    assert more.next(2.5, 4, lambda: False) == [{"key": "k1"}]
    assert asked == [(2.5, 4), (0.0, 0)]  # what was told is not told again
    assert more.next(1.0, 1, lambda: False) == ()
    assert not said
    assert more.next(1.0, 1, lambda: True) == ()
