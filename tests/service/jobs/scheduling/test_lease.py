from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from compiler.contract import Event as Said
from compiler.errors import InternalError
from service.blobs.local import LocalBlobs
from service.db import jobs
from service.db.engine import Database
from service.db.models import Artifact, Event, Job, JobState, TuningRecord, Worker
from service.jobs.lifecycle import cancel
from service.jobs.operations.reconcile import reconcile
from service.jobs.scheduling import lease

Make = Callable[..., Job]
Take = Callable[..., lease.Claim]
PROBLEM = {
    "code": "malformed_model",
    "fault": "caller",
    "message": "not ONNX",
    "fix": "",
    "refusals": [],
    "details": {},
}


def row(db: Database, job_id: uuid.UUID) -> Job:
    with db.write() as session:
        return jobs.locked(session, job_id)


def log(db: Database, job_id: uuid.UUID) -> list[Event]:
    with db.read() as session:
        return list(session.scalars(sa.select(Event).where(Event.job_id == job_id).order_by(Event.seq)))


def count(db: Database, table: type[Any]) -> int:
    with db.read() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def test_the_best_job_is_claimed_first_by_priority_then_age(db: Database, queued: Make, claimed: Take) -> None:
    old, new, urgent = queued(), queued(), queued(priority=1)
    assert [claimed().job_id for _ in range(3)] == [urgent.id, old.id, new.id]
    assert lease.claim(db, "w1", ["cpu"], 60) is None


def test_a_claim_carries_what_the_child_needs(db: Database, blobs: LocalBlobs, queued: Make, claimed: Take) -> None:
    job = queued(b"the model", threads=2)
    claim = claimed()
    assert claim.job_id == job.id
    assert (claim.fence, claim.attempt) == (1, 1)
    assert claim.options["threads"] == 2
    assert blobs.path(claim.inputs[0].key).read_bytes() == b"the model"
    assert row(db, job.id).state == JobState.LEASED


def test_other_queues_are_left_alone(db: Database, queued: Make) -> None:
    queued()
    assert lease.claim(db, "w1", ["cuda"], 60) is None


def test_each_job_is_claimed_once_however_many_workers_ask(db: Database, queued: Make) -> None:
    made = {queued().id for _ in range(12)}
    with ThreadPoolExecutor(6) as pool:
        claims = list(pool.map(lambda n: lease.claim(db, f"w{n}", ["cpu"], 60), range(18)))
    taken = [claim.job_id for claim in claims if claim is not None]
    assert len(taken) == 12
    assert set(taken) == made


def test_the_only_job_is_claimed_although_its_row_is_held_at_that_moment(db: Database, queued: Make) -> None:
    """A worker that went away without it would look again only seconds later."""
    job = queued()
    asked = threading.Event()

    def ask() -> lease.Claim | None:
        asked.set()
        return lease.claim(db, "w1", ["cpu"], 60)

    with ThreadPoolExecutor(1) as pool:
        with db.write() as session:  # who names it, or raises its priority
            jobs.locked(session, job.id).name = "nightly"
            session.flush()
            claim = pool.submit(ask)
            asked.wait()
            with pytest.raises(TimeoutError):
                claim.result(0.3)
        taken = claim.result(30)
    assert taken is not None
    assert taken.job_id == job.id


def test_the_first_progress_moves_leased_to_running(db: Database, queued: Make, claimed: Take) -> None:
    queued()
    claim = claimed()
    assert lease.heartbeat(db, claim, []) == "ok"
    assert row(db, claim.job_id).state == JobState.LEASED
    assert lease.heartbeat(db, claim, [Said("phase", "load", 0.1), Said("progress", "tile", 0.4, "3 of 7")]) == "ok"
    now = row(db, claim.job_id)
    assert (now.state, now.phase, now.fraction) == (JobState.RUNNING, "tile", 0.4)
    assert [event.kind for event in log(db, claim.job_id)] == ["state", "state", "state", "phase", "progress"]
    assert log(db, claim.job_id)[-1].data == {"phase": "tile", "fraction": 0.4, "message": "3 of 7", "data": {}}


def test_a_heartbeat_renews_the_lease(db: Database, queued: Make, claimed: Take, expire: Callable[..., None]) -> None:
    queued()
    claim = claimed()
    expire(claim)
    lease.heartbeat(db, claim, [])
    until = row(db, claim.job_id).lease_until
    assert until is not None
    assert until > 1e9


def test_the_fraction_never_falls(db: Database, queued: Make, claimed: Take) -> None:
    queued()
    claim = claimed()
    lease.heartbeat(db, claim, [Said("progress", "tile", 0.7)])
    lease.heartbeat(db, claim, [Said("progress", "schedule", 0.5)])
    now = row(db, claim.job_id)
    assert (now.phase, now.fraction) == ("schedule", 0.7)


def test_a_batch_that_is_sent_twice_is_written_once(
    db: Database, queued: Make, claimed: Take, record: dict[str, Any]
) -> None:
    queued()
    claim = claimed()
    for batch in (1, 1, 2):
        reported = [Said("progress", "tile", batch / 10)]
        assert lease.heartbeat(db, claim, reported, lease.Measured([record]), batch=batch) == "ok"
    said = [event.data["fraction"] for event in log(db, claim.job_id) if event.kind == "progress"]
    assert said == [0.1, 0.2]
    with db.read() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(TuningRecord)) == 2


def test_event_numbers_have_no_gaps_when_many_threads_report(db: Database, queued: Make, claimed: Take) -> None:
    queued()
    claim = claimed()
    start = threading.Barrier(6)

    def report(thread: int) -> None:
        start.wait()
        for turn in range(10):
            said = [Said("progress", "tile", 0.5, f"{thread}.{turn}.{line}") for line in range(3)]
            assert lease.heartbeat(db, claim, said) == "ok"

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(report, range(6)))
    lines = log(db, claim.job_id)
    assert [line.seq for line in lines] == list(range(1, 3 + 1 + 180))
    assert row(db, claim.job_id).event_seq == 183
    reported = [line.data["message"] for line in lines if line.kind == "progress"]
    assert len(set(reported)) == 180
    batches = [reported[first : first + 3] for first in range(0, 180, 3)]
    assert all([text[-1] for text in batch] == ["0", "1", "2"] for batch in batches)


def test_success_writes_artifact_records_and_state_at_once(
    db: Database, queued: Make, finish: Callable[..., lease.Claim], record: dict[str, object]
) -> None:
    job = queued()
    claim = finish(b"bytes", (record, record))
    now = row(db, job.id)
    stored: dict[str, Any] = {"model_digest": claim.model_digest, "artifact_bytes": 5, "phase_seconds": {}}
    assert (now.state, now.fraction) == (JobState.SUCCEEDED, 1.0)
    assert now.report is not None
    assert {**now.report, "kernels": 3, **stored} == now.report
    with db.read() as session:
        artifact = session.scalars(sa.select(Artifact)).one()
    assert (artifact.id, artifact.job_id, artifact.bytes) == (job.artifact_id, job.id, 5)
    assert count(db, TuningRecord) == 2
    assert lease.heartbeat(db, claim, [Said("progress", "pack", 1.0)]) == "lost"


def test_a_bad_record_leaves_nothing_of_the_success_behind(
    db: Database, blobs: LocalBlobs, queued: Make, claimed: Take, record: dict[str, object]
) -> None:
    queued()
    claim = claimed()
    stored = blobs.put_bytes(b"x")
    with pytest.raises(InternalError, match="seconds"):
        lease.succeed(
            db,
            claim,
            made=stored,
            report={},
            circumstances={},
            measured=lease.Measured([record, {**record, "seconds": "fast"}]),
        )
    assert row(db, claim.job_id).state == JobState.LEASED
    assert (count(db, Artifact), count(db, TuningRecord)) == (0, 0)
    assert lease.succeed(db, claim, made=stored, report={}, circumstances={}, measured=lease.Measured([record]))


@pytest.mark.parametrize("outcome", ["succeed", "fail", "cancelled", "release", "heartbeat"])
def test_a_worker_that_lost_its_lease_cannot_write(
    db: Database,
    blobs: LocalBlobs,
    queued: Make,
    claimed: Take,
    expire: Callable[..., None],
    ring: Any,
    record: dict[str, object],
    outcome: str,
) -> None:
    queued()
    dead = claimed("dead")
    expire(dead)
    assert reconcile(db, ring).requeued == 1
    alive = claimed("alive")
    assert (alive.job_id, alive.fence) == (dead.job_id, dead.fence + 1)
    before = [(line.seq, line.kind) for line in log(db, dead.job_id)]
    if outcome == "succeed":
        stored = blobs.put_bytes(b"stale")
        assert not lease.succeed(db, dead, made=stored, report={}, circumstances={}, measured=lease.Measured([record]))
    elif outcome == "heartbeat":
        assert lease.heartbeat(db, dead, [Said("progress", "tile", 0.9)]) == "lost"
    elif outcome == "fail":
        assert not lease.fail(db, dead, PROBLEM, measured=lease.Measured([record]))
    else:
        assert not getattr(lease, outcome)(db, dead, measured=lease.Measured([record]))
    assert [(line.seq, line.kind) for line in log(db, dead.job_id)] == before
    now = row(db, dead.job_id)
    assert (now.state, now.lease_owner, now.fraction) == (JobState.LEASED, "alive", 0.0)
    assert (count(db, Artifact), count(db, TuningRecord)) == (0, 0)


def test_an_outcome_may_be_repeated_when_its_answer_was_lost(
    db: Database, blobs: LocalBlobs, queued: Make, claimed: Take, record: dict[str, object]
) -> None:
    queued()
    claim = claimed()
    stored = blobs.put_bytes(b"x")
    for _ in range(2):
        assert lease.succeed(db, claim, made=stored, report={}, circumstances={}, measured=lease.Measured([record]))
    assert count(db, TuningRecord) == 1
    assert not lease.fail(db, claim, PROBLEM)
    assert row(db, claim.job_id).state == JobState.SUCCEEDED


def test_failure_keeps_the_problem_and_the_measurements(
    db: Database, queued: Make, claimed: Take, record: dict[str, object]
) -> None:
    queued()
    claim = claimed()
    assert lease.fail(db, claim, PROBLEM, measured=lease.Measured([record]))
    now = row(db, claim.job_id)
    assert (now.state, now.problem) == (JobState.FAILED, PROBLEM)
    assert count(db, TuningRecord) == 1
    assert log(db, claim.job_id)[-1].data["problem"] == PROBLEM


def test_text_of_a_hostile_model_can_be_stored(db: Database, queued: Make, claimed: Take) -> None:
    queued()
    claim = claimed()
    nasty: dict[str, Any] = {"message": "a\0b\ud800", "value": float("nan")}
    assert lease.heartbeat(db, claim, [Said("notice", "load", 0.1, nasty["message"], nasty)]) == "ok"
    assert lease.fail(db, claim, {**PROBLEM, "details": nasty})
    problem = row(db, claim.job_id).problem
    assert problem is not None
    assert problem["details"]["value"] is None
    assert "\0" not in problem["details"]["message"]


def test_a_released_job_is_queued_again_and_no_lease_was_lost(db: Database, queued: Make, claimed: Take) -> None:
    queued()
    claim = claimed()
    lease.heartbeat(db, claim, [Said("progress", "tile", 0.4)])
    assert lease.release(db, claim)
    now = row(db, claim.job_id)
    assert (now.state, now.lost_leases, now.phase, now.fraction) == (JobState.QUEUED, 0, None, 0.0)
    assert now.published_at is None
    assert claimed().attempt == 2


def test_cancelling_a_running_job_goes_through_its_worker(db: Database, queued: Make, claimed: Take) -> None:
    job = queued()
    claim = claimed()
    for _ in range(2):
        assert cancel.cancel(db, job.owner_id, job.id).state == JobState.LEASED
    assert [line.kind for line in log(db, job.id)].count("notice") == 1
    assert lease.heartbeat(db, claim, []) == "cancel"
    assert lease.cancelled(db, claim)
    assert row(db, job.id).state == JobState.CANCELLED
    assert cancel.cancel(db, job.owner_id, job.id).state == JobState.CANCELLED


def test_releasing_a_job_that_was_to_be_cancelled_cancels_it(db: Database, queued: Make, claimed: Take) -> None:
    job = queued()
    claim = claimed()
    cancel.cancel(db, job.owner_id, job.id)
    assert lease.release(db, claim)
    assert row(db, job.id).state == JobState.CANCELLED


def test_the_snapshot_holds_the_newest_measurement_of_each_variant(
    db: Database, queued: Make, finish: Callable[..., lease.Claim], record: dict[str, object], owner: uuid.UUID
) -> None:
    queued()
    other = {**record, "variant": {"algorithm": "winograd"}}
    elsewhere = {**record, "hardware": "hw-2"}
    finish(records=({**record, "seconds": 9.0}, other, elsewhere))
    queued()
    finish(records=({**record, "seconds": 1e-3},))
    assert lease.records_for(db, owner, "cpu:x86-64-v4", "hw-1") == [other, {**record, "seconds": 1e-3}]
    assert lease.records_for(db, uuid.uuid4(), "cpu:x86-64-v4", "hw-1") == []


def test_a_worker_reports_that_it_is_alive(db: Database, queued: Make) -> None:
    job = queued()
    lease.seen(db, "w1", ["cpu"], {"cores": 2}, "0.1.0")
    lease.seen(db, "w1", ["cpu"], {"cores": 2}, "0.1.0", job.id)
    with db.read() as session:
        worker = session.scalars(sa.select(Worker)).one()
    assert (worker.name, worker.busy_with, worker.hardware) == ("w1", job.id, {"cores": 2})


@pytest.mark.parametrize("outcome", ["fail", "cancelled", "release", "heartbeat"])
def test_a_worker_whose_job_was_removed_is_told_that_it_lost_it(
    db: Database, queued: Make, claimed: Take, record: dict[str, object], outcome: str
) -> None:
    queued()
    claim = claimed()
    with db.write() as session:
        session.execute(sa.delete(Job).where(Job.id == claim.job_id))
    measured = lease.Measured([record], {"b7c4f1": "text"})
    if outcome == "heartbeat":
        assert lease.heartbeat(db, claim, [Said("progress", "tile", 0.9)], measured) == "lost"
    elif outcome == "fail":
        assert not lease.fail(db, claim, PROBLEM, measured=measured)
    else:
        assert not getattr(lease, outcome)(db, claim, measured=measured)
    assert count(db, TuningRecord) == 0


def test_workloads_are_written_in_one_order_whatever_the_order_they_come_in(
    db: Database, queued: Make, claimed: Take
) -> None:
    queued()
    claim = claimed()
    written: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *more: Any) -> None:
        if "INTO workloads" in statement:
            written.extend(value for value in _values(parameters) if value in ("w1", "w2", "w3"))

    sa.event.listen(db.engine, "before_cursor_execute", note)
    lease.heartbeat(db, claim, [], lease.Measured((), {"w3": "c", "w1": "a", "w2": "b"}))
    assert written == ["w1", "w2", "w3"]


def _values(parameters: Any) -> list[Any]:
    return list(parameters.values() if isinstance(parameters, dict) else parameters)
