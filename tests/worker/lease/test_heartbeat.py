from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from compiler.contract import Event
from service.errors import DatabaseUnavailable
from service.jobs.scheduling import lease
from service.jobs.scheduling.lease import Measured
from worker.lease import heartbeat as module
from worker.lease.heartbeat import Heartbeat
from worker.lease.wakeup import Wakeup

CLAIM = lease.Claim(
    job_id=uuid.uuid4(),
    kind="compile",
    fence=1,
    owner=uuid.uuid4(),
    model_digest="d",
    inputs=(),
    options={},
    attempt=1,
    lease_s=600.0,
    finish=False,
)


class Answers:
    """Stands for `lease.heartbeat`: notes the batches and what was measured, answers what it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.records: list[Any] = []
        self.workloads: dict[str, str] = {}
        self.next: list[Any] = []
        self.sent: list[tuple[int | None, list[str]]] = []

    def __call__(
        self,
        db: object,
        claim: lease.Claim,
        events: list[Event],
        measured: lease.Measured = lease.NOTHING,
        *,
        batch: int | None = None,
    ) -> Any:
        answer = self.next.pop(0) if self.next else "ok"
        self.sent.append((batch, [event.message for event in events]))
        if isinstance(answer, Exception):
            raise answer
        self.batches.append([event.message for event in events])
        self.records += measured.records
        self.workloads |= measured.workloads
        return answer


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    answers = Answers()
    monkeypatch.setattr(lease, "heartbeat", answers)
    monkeypatch.setattr(module, "BATCH_EVERY_S", 0.01)
    monkeypatch.setattr(module, "BEAT_EVERY_S", 600.0)  # no beat but the first and those that carry something
    monkeypatch.setattr(module, "_RETRY_S", 0.01)
    return answers


def said(kind: Any, message: str) -> Event:
    return Event(kind, "tile", 0.5, message)


def test_progress_between_two_batches_collapses_into_its_latest(answers: Answers) -> None:
    beats = Heartbeat(None, CLAIM, Wakeup())  # type: ignore[arg-type]
    for event in (said("phase", "a"), said("progress", "1"), said("progress", "2"), said("notice", "b")):
        beats.tell(event)
    beats.flush()
    assert answers.batches == [["a", "2", "b"]]


def test_what_is_live_waits_for_less_company(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_EVERY_S", 300.0)
    monkeypatch.setattr(module, "LIVE_EVERY_S", 0.0)
    beats = Heartbeat(None, CLAIM, Wakeup())  # type: ignore[arg-type]
    assert beats._due(0.0) == CLAIM.lease_s / 3
    beats.tell(said("notice", "a"))
    assert beats._due(0.0) == CLAIM.lease_s / 3
    for kind in ("tokens", "piece"):
        beats.tell(said(kind, "b"))
        assert beats._due(0.0) == 0.0
        beats._take()


def test_a_runaway_does_not_fill_the_log(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    beats = Heartbeat(None, CLAIM, Wakeup())  # type: ignore[arg-type]
    for index in range(5):
        beats.tell(said("notice", str(index)))
    beats.flush()
    assert answers.batches == [["0", "1"]]


def test_events_wait_for_a_database_that_is_away(answers: Answers, eventually: Callable[..., Any]) -> None:
    answers.next = ["ok", DatabaseUnavailable("away"), DatabaseUnavailable("away")]
    beats = Heartbeat(None, CLAIM, Wakeup())  # type: ignore[arg-type]
    beats.start()
    eventually(lambda: answers.batches[:1] == [[]])
    beats.tell(said("notice", "kept"))
    eventually(lambda: ["kept"] in answers.batches)
    beats.stop(5.0)


@pytest.mark.parametrize("answer", ["cancel", "lost"])
def test_the_answer_rings_the_bell(answers: Answers, eventually: Callable[..., Any], answer: str) -> None:
    answers.next = [answer]
    wakeup = Wakeup()
    beats = Heartbeat(None, CLAIM, wakeup)  # type: ignore[arg-type]
    beats.start()
    eventually(lambda: wakeup.reasons == {answer})
    beats.stop(5.0)


def test_measurements_go_with_the_next_beat_and_survive_a_database_that_is_away(
    answers: Answers, eventually: Callable[..., Any]
) -> None:
    answers.next = ["ok", DatabaseUnavailable("away")]
    beats = Heartbeat(None, CLAIM, Wakeup())  # type: ignore[arg-type]
    beats.start()
    eventually(lambda: answers.batches)
    beats.keep(Measured(workloads={"w": "text"}))
    beats.keep(Measured(records=({"workload": "w"},)))
    eventually(lambda: answers.records == [{"workload": "w"}] and answers.workloads == {"w": "text"})
    beats.stop(5.0)
    assert answers.records == [{"workload": "w"}], "once"


def test_what_the_database_refuses_does_not_end_the_beats(answers: Answers, eventually: Callable[..., Any]) -> None:
    answers.next = ["ok", ValueError("poison")]
    beats = Heartbeat(None, CLAIM, Wakeup())  # type: ignore[arg-type]
    beats.start()
    eventually(lambda: answers.batches)
    beats.tell(said("notice", "poison"))
    eventually(lambda: not answers.next)
    beats.tell(said("notice", "healthy"))
    eventually(lambda: ["healthy"] in answers.batches)
    beats.stop(5.0)
    assert ["poison"] not in answers.batches


def test_flushing_writes_events_and_hands_back_what_was_measured(answers: Answers) -> None:
    beats = Heartbeat(None, CLAIM, Wakeup())  # type: ignore[arg-type]
    beats.tell(said("notice", "a"))
    beats.keep(Measured(records=({"workload": "w"},)))
    assert beats.flush() == Measured(records=({"workload": "w"},))
    assert (answers.batches, answers.records) == ([["a"]], [])


def test_the_wish_to_finish_is_passed_on_while_the_job_goes_on(
    answers: Answers, eventually: Callable[..., Any]
) -> None:
    asked: list[bool] = []
    answers.next = ["finish"]
    wakeup = Wakeup()
    beats = Heartbeat(None, CLAIM, wakeup, lambda: asked.append(True))  # type: ignore[arg-type]
    beats.start()
    eventually(lambda: asked)
    beats.stop(5.0)
    assert not wakeup.reasons


def test_the_owners_wish_is_asked_for_often_however_long_the_lease(
    answers: Answers, eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEAT_EVERY_S", 0.01)
    beats = Heartbeat(None, CLAIM, Wakeup())  # type: ignore[arg-type]
    beats.start()
    eventually(lambda: len(answers.batches) > 3)
    beats.stop(5.0)


def test_a_batch_whose_answer_was_lost_is_sent_again_as_it_was_under_its_number(
    answers: Answers, eventually: Callable[..., Any]
) -> None:
    answers.next = ["ok", DatabaseUnavailable("away")]
    beats = Heartbeat(None, CLAIM, Wakeup())  # type: ignore[arg-type]
    beats.start()
    eventually(lambda: answers.batches)
    beats.tell(said("progress", "first"))
    eventually(lambda: not answers.next)
    beats.tell(said("progress", "second"))
    eventually(lambda: ["second"] in answers.batches)
    beats.stop(5.0)
    reported = [(number, batch) for number, batch in answers.sent if batch]
    first, again, second = (number for number, _ in reported)
    assert [batch for _, batch in reported] == [["first"], ["first"], ["second"]]
    assert first is not None
    assert first == again != second


def test_flushing_sends_a_batch_whose_answer_was_lost_first(answers: Answers) -> None:
    answers.next = [DatabaseUnavailable("away")]
    beats = Heartbeat(None, CLAIM, Wakeup())  # type: ignore[arg-type]
    beats.tell(said("notice", "a"))
    beats.keep(Measured(records=({"workload": "w"},)))
    with pytest.raises(DatabaseUnavailable):
        beats.flush()
    beats.tell(said("notice", "b"))
    assert beats.flush() == Measured(records=({"workload": "w"},))
    assert answers.batches == [["a"], ["b"]]
    assert [number for number, _ in answers.sent] == [1, 1, 2]
