from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import asdict

import pytest
import sqlalchemy as sa

from compiler.contract.races import PeerReport
from service.db import jobs
from service.db.engine import Database
from service.db.models import Job
from service.http.responses import answers
from service.http.responses.answers import Answers
from service.http.schemas.common import JobOut
from service.jobs.lifecycle.find import Found

NOTHING: dict[str, str] = {}
COMPARED = asdict(PeerReport("onnxruntime", "twice as fast", "1.23", 2, 1e-3, 2e-3, 2.0, 1.9, 2.1, 9, 1e-6))


def look(db: Database, job_id: uuid.UUID) -> Found:
    with db.read() as session:
        (row,) = jobs.status_rows(session, [job_id])
        return Found(row, jobs.positions(session, [row]).get(row.id))


def change(db: Database, job_id: uuid.UUID, **values: object) -> None:
    with db.write() as session:
        session.execute(sa.update(Job).where(Job.id == job_id).values(**values))


def test_an_answer_stands_until_anything_that_is_told_changes(db: Database, queued: Callable[..., Job]) -> None:
    job_id, kept = queued().id, Answers()
    first = kept.to(look(db, job_id), None, NOTHING)
    assert kept.to(look(db, job_id), None, NOTHING) is first
    seen = {bytes(first.body)}
    changes: list[dict[str, object]] = [
        {"name": "nightly"},
        {"tags": ["ci"]},
        {"options": {"target": "cpu", "precision": "bf16"}},
        {"samples": [{"name": "a", "sha256": "0" * 64, "bytes": 3, "key": "k"}]},
        {"unserved_since": 1.0},
        {"state": "RUNNING", "attempts": 1, "started_at": 2.0},
        {"fraction": 0.5},
        {"cancel_requested": True},
        {"report": {"compared": [COMPARED], "kernels": 3}},
        {"report": {"compared": [COMPARED], "latency_s": 0.002}},
        {"report": {"compared": [COMPARED], "latency_s": 0.002, "errors": [{"max_relative": 1e-6}]}},
        {"state": "FAILED", "problem": {"code": "x"}, "finished_at": 3.0},
    ]
    for change_of in changes:
        change(db, job_id, **change_of)
        found = look(db, job_id)
        answer = kept.to(found, None, NOTHING)
        assert bytes(answer.body) == JobOut.found(found).model_dump_json().encode()
        assert bytes(answer.body) not in seen, change_of
        seen.add(bytes(answer.body))
    assert "retry-after" in first.headers
    assert "retry-after" not in answer.headers


def test_another_place_in_the_queue_is_another_answer(db: Database, queued: Callable[..., Job]) -> None:
    first, second = queued(), queued()
    kept = Answers()
    behind = kept.to(look(db, second.id), None, NOTHING)
    change(db, first.id, state="CANCELLED", finished_at=1.0)
    ahead = kept.to(look(db, second.id), None, NOTHING)
    assert behind.headers["etag"] != ahead.headers["etag"]
    assert kept.to(look(db, second.id), behind.headers["etag"], NOTHING).status_code == 200
    assert kept.to(look(db, second.id), ahead.headers["etag"], NOTHING).status_code == 304


def test_what_is_told_of_a_row_is_what_is_told_of_the_job(db: Database, queued: Callable[..., Job]) -> None:
    """A row has every name that an answer is made of, with the values that the object has."""
    job_id = queued().id
    change(db, job_id, tags=["a"], problem={"code": "x"}, report={"long": 1}, fraction=0.25, note="é")
    with db.read() as session:
        whole = session.get_one(Job, job_id)
        assert JobOut.of(whole, 0) == JobOut.found(look(db, job_id))


def test_no_more_is_kept_than_may_be_and_nothing_large(
    db: Database, queued: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Answers()
    made = [queued().id for _ in range(3)]
    monkeypatch.setattr(answers, "MOST_KEPT", 2)
    first = [kept.to(look(db, one), None, NOTHING) for one in made]
    assert len(kept) == 2
    assert kept.to(look(db, made[2]), None, NOTHING) is first[2]
    change(db, made[2], note="x" * answers.MOST_KEPT_BYTES)
    large = kept.to(look(db, made[2]), None, NOTHING)
    assert kept.to(look(db, made[2]), None, NOTHING) is not large
    assert len(kept) == 1


def test_what_came_of_a_race_is_told_with_the_job_and_nothing_else_of_its_report(
    db: Database, queued: Callable[..., Job]
) -> None:
    job_id = queued().id
    assert JobOut.found(look(db, job_id)).compared == []
    change(db, job_id, report={"compared": [COMPARED], "kernels": 3})
    row = look(db, job_id).job
    with db.read() as session:
        whole = session.get_one(Job, job_id)
        for found in (JobOut.of(row), JobOut.of(whole)):
            assert [one.model_dump() for one in found.compared] == [COMPARED]
    assert row.report is None
    for other in ("text", {"said": 1}, [3, {"peer": "p"}, None], None):  # a report is what the job's process says
        change(db, job_id, report={"kernels": 3, "compared": other})
        assert JobOut.found(look(db, job_id)).compared == []
    change(db, job_id, report={"compared": [None, COMPARED]})
    assert len(JobOut.found(look(db, job_id)).compared) == 1


@pytest.mark.parametrize(
    ("report", "latency_s", "largest_error"),
    [
        ({"latency_s": 0.002, "errors": [{"max_relative": 1e-6}, {"max_relative": 3e-6}]}, 0.002, 3e-6),
        ({"latency_s": 1, "errors": [{"max_relative": 0}]}, 1.0, 0.0),
        ({"latency_s": 0.0, "errors": []}, None, None),
        ({"latency_s": "1", "errors": [{"max_relative": "x"}]}, None, None),
        ({"latency_s": [1], "errors": {"max_relative": 1}}, None, None),
        ({"errors": [{"max_relative": 1e-6}, {"max_relative": None}]}, None, None),
        ({}, None, None),
    ],
)
def test_latency_and_error_are_told_of_a_compilation_as_its_report_has_them(
    db: Database, queued: Callable[..., Job], report: dict[str, object], latency_s: float, largest_error: float
) -> None:
    job_id = queued().id
    change(db, job_id, report=report)
    with db.read() as session:
        whole = session.get_one(Job, job_id)
        for found in (JobOut.of(look(db, job_id).job), JobOut.of(whole)):
            assert (found.latency_s, found.largest_error) == (latency_s, largest_error)
    change(db, job_id, report=report, artifact_id=None)
    assert JobOut.found(look(db, job_id)).latency_s is None, "of what compiles nothing"
