from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from compiler.contract import BenchmarkOptions, CompileOptions
from compiler.contract import Event as Said
from service.blobs.local import LocalBlobs
from service.db import owners, usage
from service.db.engine import Database
from service.db.models import Attempt, Job, JobState, Owner, Total, Usage
from service.errors import DeviceTimeUsed, QueueFull, QuotaExceeded, ServiceError
from service.jobs.accounts import quotas
from service.jobs.accounts.quotas import UNLIMITED, Limits
from service.jobs.operations.reconcile import reconcile
from service.jobs.scheduling import lease
from service.jobs.storage import integrity, models, uploads
from service.jobs.storage.bundle import Bundle
from service.jobs.storage.samples import SampleFile
from service.jobs.submission import runs
from service.jobs.submission.submit import Submission, submit
from tests.service.conftest import RecordingRing

Queue = Callable[..., Job]
AT_ONCE = 8


def all_at_once(call: Callable[[int], Any]) -> list[Any]:
    """What each of `AT_ONCE` threads came to, which begin together; None for a refusal."""
    start = threading.Barrier(AT_ONCE)

    def run(number: int) -> Any:
        start.wait()
        try:
            return call(number)
        except ServiceError:
            return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(run, range(AT_ONCE)))


def grant(db: Database, owner: uuid.UUID, **values: float | None) -> None:
    with db.write() as session:
        owners.change(session, owner, values)


def tallied(db: Database, owner: uuid.UUID) -> dict[str, float]:
    with db.read() as session:
        rows = session.scalars(sa.select(Usage).where(Usage.owner_id == owner)).all()
        return {row.month: row.device_s for row in rows}


def began(db: Database, claim: lease.Claim, seconds_ago: float) -> None:
    """Put the start of an attempt into the past."""
    with db.write() as session:
        past = usage.now(session) - seconds_ago
        session.execute(sa.update(Attempt).where(Attempt.job_id == claim.job_id).values(started_at=past))


def store(db: Database, blobs: LocalBlobs, owner: uuid.UUID, data: bytes, limits: Limits) -> models.Kept:
    return models.put(db, owner, Bundle(blobs.put_bytes(data), {}), limits)


def test_bytes_are_refused_past_the_limit_with_what_is_had_and_who_can_raise_it(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID
) -> None:
    limits = Limits(stored_bytes=100)
    store(db, blobs, owner, b"a" * 60, limits)
    with pytest.raises(QuotaExceeded) as refused:
        store(db, blobs, owner, b"b" * 41, limits)
    assert refused.value.details == {"limit": 100, "used": 60, "asked": 41}
    assert "tilewright owners limit ada --stored-bytes" in refused.value.fix
    assert store(db, blobs, owner, b"a" * 60, limits).new is False, "what is there already takes no room"
    assert store(db, blobs, owner, b"b" * 40, limits).new


def test_a_model_that_is_there_already_takes_no_more_room(db: Database, blobs: LocalBlobs, owner: uuid.UUID) -> None:
    limits = Limits(stored_bytes=100)
    assert store(db, blobs, owner, b"a" * 60, limits).new
    assert not store(db, blobs, owner, b"a" * 60, limits).new


def test_two_uploads_at_once_do_not_exceed_the_limit_together(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID
) -> None:
    limits = Limits(stored_bytes=100)
    kept = all_at_once(lambda number: store(db, blobs, owner, bytes([number]) * 30, limits))
    assert sum(one is not None for one in kept) == 3
    with db.read() as session:
        assert usage.stored_bytes(session, owner) == 90


def test_uploads_that_are_announced_at_once_do_not_exceed_the_limit_together(db: Database, owner: uuid.UUID) -> None:
    def announce(_: int) -> object:
        return uploads.begin(
            db,
            owner,
            size=30,
            media_type="application/onnx",
            sha256=None,
            limit=1000,
            limits=Limits(stored_bytes=100),
        )

    assert sum(one is not None for one in all_at_once(announce)) == 3


def test_what_counts_as_stored_is_models_artifacts_uploads_and_arrays_that_are_kept(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, queued: Queue, finish: Callable[..., lease.Claim]
) -> None:
    def stored() -> int:
        with db.read() as session:
            return usage.stored_bytes(session, owner)

    made = queued(b"model").artifact_id
    assert made is not None
    assert stored() == 5
    finish(b"artifact")
    assert stored() == 5 + 8
    upload = uploads.begin(db, owner, size=100, media_type="application/onnx", sha256=None, limit=1000)
    assert stored() == 5 + 8 + 100
    uploads.abandon(db, owner, upload.id)
    runs.infer(db, owner, made, blobs.put_bytes(b"inputs"), limits=UNLIMITED)
    assert stored() == 5 + 8 + 6
    claim = lease.claim(db, "w", ["run:cpu"], 60)
    assert claim is not None
    assert lease.succeed(db, claim, made=blobs.put_bytes(b"out"), report={})
    assert stored() == 5 + 8 + 6 + 3


def test_samples_of_a_job_count_as_stored_and_are_refused_past_the_limit(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID
) -> None:
    limits = Limits(stored_bytes=100)
    model = store(db, blobs, owner, b"m" * 50, limits).model.digest
    sample = SampleFile("a.npz", blobs.put_bytes(b"s" * 30))
    with pytest.raises(QuotaExceeded) as refused:
        submit(db, Submission(owner, model, CompileOptions(), samples=(sample, sample)), limits=limits)
    assert refused.value.details == {"limit": 100, "used": 50, "asked": 60}
    submit(db, Submission(owner, model, CompileOptions(), samples=(sample,)), limits=limits)
    with db.read() as session:
        assert usage.stored_bytes(session, owner) == 80


def test_an_upload_that_became_a_model_counts_once(db: Database, blobs: LocalBlobs, owner: uuid.UUID) -> None:
    limits = Limits(stored_bytes=100)
    upload = uploads.begin(db, owner, size=80, media_type="application/onnx", sha256=None, limit=1000, limits=limits)
    with uploads.Appender(db, blobs, upload, 0) as appender:
        appender.write(b"a" * 80)
        appender.end()
    whole = uploads.find(db, owner, upload.id)
    assert uploads.finish(db, blobs, whole, model=None, limit=1000, limits=limits).new
    with db.read() as session:
        assert usage.stored_bytes(session, owner) == 80


def test_who_stores_all_that_may_be_compiles_nothing_more(db: Database, blobs: LocalBlobs, owner: uuid.UUID) -> None:
    digest = models.keep(db, owner, blobs.put_bytes(b"model")).digest
    asked = Submission(owner, digest, CompileOptions())
    with pytest.raises(QuotaExceeded):
        submit(db, asked, limits=Limits(stored_bytes=5))
    assert submit(db, asked, limits=Limits(stored_bytes=6)).job.state == JobState.QUEUED


def lose(db: Database, blobs: LocalBlobs, model: models.Kept) -> None:
    """Take a model's bytes away, and let the service find out."""
    (blobs.root / model.model.blob_key).unlink()
    assert integrity.scrub_all(db, blobs).lost == (model.model.blob_key,)


def test_who_stores_all_that_may_be_sends_a_lost_model_again_in_pieces(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID
) -> None:
    limits = Limits(stored_bytes=100)
    model = store(db, blobs, owner, b"a" * 60, limits)
    store(db, blobs, owner, b"b" * 40, limits)

    def announce(size: int) -> uuid.UUID:
        kind = "application/onnx"
        return uploads.begin(db, owner, size=size, media_type=kind, sha256=None, limit=1000, limits=limits).id

    with pytest.raises(QuotaExceeded):
        announce(60)
    lose(db, blobs, model)
    with pytest.raises(QuotaExceeded):
        announce(61)
    upload = uploads.find(db, owner, announce(60))
    with pytest.raises(QuotaExceeded):
        announce(1)  # what is under way has taken the room that the lost bytes had
    with uploads.Appender(db, blobs, upload, 0) as appender:
        appender.write(b"a" * 60)
        appender.end()
    whole = uploads.find(db, owner, upload.id)
    assert not uploads.finish(db, blobs, whole, model=None, limit=1000, limits=limits).new
    assert integrity.scrub_all(db, blobs).lost == ()
    with db.read() as session:
        assert usage.stored_bytes(session, owner) == 100
    with pytest.raises(QuotaExceeded):
        announce(1)


def test_the_room_of_lost_bytes_is_for_what_is_sent_and_not_for_what_is_kept(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID
) -> None:
    limits = Limits(stored_bytes=100)
    one = store(db, blobs, owner, b"a" * 30, limits)
    data = {"w.bin": blobs.put_bytes(b"w" * 60)}
    bundle = Bundle(blobs.put_bytes(b"b" * 10), data)
    models.put(db, owner, bundle, limits)

    def left(*, model: bool) -> int | None:
        return quotas.room(db, owner, limits, model=model).left

    assert (left(model=True), left(model=False)) == (0, 0)
    lose(db, blobs, one)
    assert (left(model=True), left(model=False)) == (30, 0)
    (blobs.root / data["w.bin"].key).write_bytes(b"other")
    assert integrity.scrub_all(db, blobs).damaged == (data["w.bin"].key,)
    assert (left(model=True), left(model=False)) == (100, 0)
    with pytest.raises(QuotaExceeded):
        store(db, blobs, owner, b"c", limits)
    assert not models.put(db, owner, Bundle(bundle.model, {"w.bin": blobs.put_bytes(b"w" * 60)}), limits).new
    assert left(model=True) == 30
    assert quotas.room(db, owner, UNLIMITED, model=True).left is None


def test_what_the_operator_granted_holds_instead_of_the_setting(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID
) -> None:
    digest = models.keep(db, owner, blobs.put_bytes(b"model")).digest

    def ask(limit: int) -> Job:
        return submit(db, Submission(owner, digest, CompileOptions(), fresh=True), limits=Limits(queued_jobs=limit)).job

    grant(db, owner, max_queued_jobs=2)
    ask(1), ask(1)
    with pytest.raises(QueueFull) as refused:
        ask(100)
    assert refused.value.details == {"limit": 2, "used": 2}
    grant(db, owner, max_queued_jobs=0)
    assert ask(1).state == JobState.QUEUED, "0 is no limit"
    grant(db, owner, max_queued_jobs=None)
    with pytest.raises(QueueFull):
        ask(3)


def test_every_kind_of_job_takes_a_place_in_the_queue(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, queued: Queue
) -> None:
    made = queued().artifact_id
    assert made is not None
    with pytest.raises(QueueFull):
        runs.benchmark(db, owner, [made], BenchmarkOptions(), limits=Limits(queued_jobs=1))
    with pytest.raises(QueueFull):
        runs.infer(db, owner, made, blobs.put_bytes(b"x"), limits=Limits(queued_jobs=1))


@pytest.mark.parametrize("granted", [True, False])
def test_workers_that_claim_at_once_start_no_more_than_may_run_at_once(
    db: Database, owner: uuid.UUID, queued: Queue, granted: bool
) -> None:
    for number in range(AT_ONCE):
        queued(bytes([number]))
    limits = Limits() if granted else Limits(concurrent_jobs=3)
    grant(db, owner, max_concurrent_jobs=3 if granted else None)
    claims = all_at_once(lambda number: lease.claim(db, f"w{number}", ["cpu"], 60.0, limits))
    held = [claim for claim in claims if claim is not None]
    assert len(held) == 3
    assert lease.fail(db, held[0], {"code": "x"})
    assert lease.claim(db, "w", ["cpu"], 60.0, limits) is not None, "one ended, so one more may begin"
    assert lease.claim(db, "w", ["cpu"], 60.0, limits) is None


def test_an_owner_at_its_limit_keeps_nobody_else_waiting(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, queued: Queue
) -> None:
    queued(b"1", priority=10), queued(b"2", priority=10)
    with db.write() as session:
        other = owners.named(session, "eve")
    digest = models.keep(db, other, blobs.put_bytes(b"hers")).digest
    hers = submit(db, Submission(other, digest, CompileOptions()), limits=UNLIMITED).job
    limits = Limits(concurrent_jobs=1)
    taken = [lease.claim(db, f"w{number}", ["cpu"], 60.0, limits) for number in range(3)]
    assert [claim and claim.owner for claim in taken] == [owner, other, None]
    assert taken[1] is not None
    assert taken[1].job_id == hers.id


def test_device_seconds_of_a_month_are_refused_until_the_next(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID
) -> None:
    digest = models.keep(db, owner, blobs.put_bytes(b"model")).digest
    asked = Submission(owner, digest, CompileOptions(), fresh=True)
    limits = Limits(device_s=50.0)
    submit(db, asked, limits=limits)
    with db.write() as session:
        now = usage.now(session)
        usage.tally(session, owner, now - 0.001, now)
        session.execute(sa.update(Usage).values(device_s=50.0, month=usage.month_of(now)))
    with pytest.raises(DeviceTimeUsed) as refused:
        submit(db, asked, limits=limits)
    reported = refused.value.details
    assert (reported["limit"], reported["used"], reported["month"]) == (50.0, 50.0, usage.month_of(now))
    assert 0 < reported["retry_after_s"] <= 31 * 24 * 3600
    assert lease.claim(db, "w", ["cpu"], 60.0, limits) is None, "what was queued before waits too"
    with db.write() as session:
        session.execute(sa.update(Usage).values(month="1999-12"))
    assert lease.claim(db, "w", ["cpu"], 60.0, limits) is not None


def test_the_seconds_of_an_attempt_are_tallied_once_by_heartbeats_and_its_end(
    db: Database, owner: uuid.UUID, queued: Queue, claimed: Callable[..., lease.Claim]
) -> None:
    queued()
    claim = claimed()
    assert lease.heartbeat(db, claim, []) == "ok"
    assert tallied(db, owner) == {}, "too little to be written yet"
    began(db, claim, 100.0)
    lease.heartbeat(db, claim, [Said(kind="progress", phase="tile", fraction=0.5)])
    first = sum(tallied(db, owner).values())
    assert first == pytest.approx(100.0, abs=30.0)
    lease.heartbeat(db, claim, [])
    assert sum(tallied(db, owner).values()) == pytest.approx(first, abs=30.0)
    assert lease.fail(db, claim, {"code": "x"})
    with db.read() as session:
        attempt = session.scalars(sa.select(Attempt)).one()
        total = session.scalar(sa.select(Total.value).where(Total.name == "device_seconds"))
    assert attempt.ended_at is not None
    whole = attempt.ended_at - attempt.started_at
    assert sum(tallied(db, owner).values()) == pytest.approx(whole)
    assert total == pytest.approx(whole)


def test_a_lost_attempt_counts(
    db: Database,
    owner: uuid.UUID,
    queued: Queue,
    claimed: Callable[..., lease.Claim],
    expire: Callable[[lease.Claim], None],
    ring: RecordingRing,
) -> None:
    queued()
    claim = claimed()
    began(db, claim, 100.0)
    expire(claim)
    assert reconcile(db, ring).requeued == 1
    assert sum(tallied(db, owner).values()) == pytest.approx(100.0, abs=30.0)
    assert lease.heartbeat(db, claim, []) == "lost"
    assert sum(tallied(db, owner).values()) == pytest.approx(100.0, abs=30.0), "who was fenced out adds nothing"


def test_seconds_count_for_the_month_in_which_they_were_had(db: Database, owner: uuid.UUID) -> None:
    turn = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
    with db.write() as session:
        usage.tally(session, owner, turn - 10.0, turn + 5.0)
        usage.tally(session, owner, turn - 40 * 86400.0, turn)
        usage.tally(session, owner, turn, turn)
    assert tallied(db, owner) == {
        "2026-11": pytest.approx(9 * 86400.0),
        "2026-12": pytest.approx(31 * 86400.0 + 10.0),
        "2027-01": pytest.approx(5.0),
    }


def test_what_an_owner_has_is_told(
    db: Database, owner: uuid.UUID, queued: Queue, claimed: Callable[..., lease.Claim]
) -> None:
    queued(b"12345"), queued(b"123")
    claimed()
    with db.read() as session:
        use = quotas.use_of(session, owner)
        ada = session.get_one(Owner, owner)
    assert (use.stored_bytes, use.queued_jobs, use.concurrent_jobs, use.device_s) == (8, 1, 1, 0.0)
    assert Limits(queued_jobs=7).granted(ada) == Limits(queued_jobs=7)
