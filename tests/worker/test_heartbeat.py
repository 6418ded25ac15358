from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from compiler.contract import Event
from service.errors import DatabaseUnavailable
from service.jobs import lease
from worker import heartbeat as module
from worker.bell import Bell
from worker.heartbeat import Heartbeat

CLAIM = lease.Claim(
    job_id=uuid.uuid4(),
    fence=1,
    owner=uuid.uuid4(),
    model_digest="d",
    model_key="k",
    options={},
    attempt=1,
    lease_s=600.0,
)


class Answers:
    """Stands for `lease.heartbeat`: notes the batches, answers what it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.next: list[Any] = []

    def __call__(self, db: object, claim: lease.Claim, events: list[Event]) -> Any:
        answer = self.next.pop(0) if self.next else "ok"
        if isinstance(answer, Exception):
            raise answer
        self.batches.append([event.message for event in events])
        return answer


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    answers = Answers()
    monkeypatch.setattr(lease, "heartbeat", answers)
    monkeypatch.setattr(module, "BATCH_EVERY_S", 0.01)
    monkeypatch.setattr(module, "_RETRY_S", 0.01)
    return answers


def said(kind: Any, message: str) -> Event:
    return Event(kind, "tile", 0.5, message)


def test_progress_between_two_batches_collapses_into_its_latest(answers: Answers) -> None:
    beats = Heartbeat(None, CLAIM, Bell())  # type: ignore[arg-type]
    for event in (said("phase", "a"), said("progress", "1"), said("progress", "2"), said("notice", "b")):
        beats.tell(event)
    beats.flush()
    assert answers.batches == [["a", "2", "b"]]


def test_a_runaway_does_not_fill_the_log(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    beats = Heartbeat(None, CLAIM, Bell())  # type: ignore[arg-type]
    for index in range(5):
        beats.tell(said("notice", str(index)))
    beats.flush()
    assert answers.batches == [["0", "1"]]


def test_events_wait_for_a_database_that_is_away(answers: Answers, eventually: Callable[..., Any]) -> None:
    answers.next = ["ok", DatabaseUnavailable("away"), DatabaseUnavailable("away")]
    beats = Heartbeat(None, CLAIM, Bell())  # type: ignore[arg-type]
    beats.start()
    eventually(lambda: answers.batches == [[]])
    beats.tell(said("notice", "kept"))
    eventually(lambda: ["kept"] in answers.batches)
    beats.stop(5.0)


@pytest.mark.parametrize("answer", ["cancel", "lost"])
def test_the_answer_rings_the_bell(answers: Answers, eventually: Callable[..., Any], answer: str) -> None:
    answers.next = [answer]
    bell = Bell()
    beats = Heartbeat(None, CLAIM, bell)  # type: ignore[arg-type]
    beats.start()
    eventually(lambda: bell.reasons == {answer})
    beats.stop(5.0)
