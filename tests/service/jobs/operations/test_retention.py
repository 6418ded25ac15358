from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from compiler.contract import BenchmarkOptions, CompileOptions
from compiler.contract import Event as CompilerEvent
from service.blobs.local import LocalBlobs
from service.blobs.store import StoredBlob
from service.config import Settings
from service.db import events
from service.db import retention as rows
from service.db.engine import Database
from service.db.models import Artifact, Event, Inference, Job, Model, TuningRecord, Upload
from service.errors import BlobLost, Removed, StorageUnavailable
from service.jobs.accounts.quotas import UNLIMITED
from service.jobs.lifecycle import outcomes
from service.jobs.operations import retention
from service.jobs.operations.retention import Rules, Swept, collect, sweep
from service.jobs.scheduling import lease
from service.jobs.storage import models, uploads
from service.jobs.storage.bundle import Bundle
from service.jobs.submission import runs
from service.jobs.submission.submit import Submission, submit

DAY = 24 * 3600.0
NEVER = Rules(jobs_s=0, uploads_s=1e12, inferences_s=1e12, grace_s=1e9)


@pytest.fixture
def age(db: Database) -> Callable[..., None]:
    """Puts the end of jobs two days back; of all, or of these."""

    def put(*job_ids: uuid.UUID) -> None:
        with db.write() as session:
            update = sa.update(Job).values(finished_at=Job.finished_at - 2 * DAY)
            session.execute(update.where(Job.id.in_(job_ids)) if job_ids else update)

    return put


def old(blobs: LocalBlobs, stored: StoredBlob, seconds: float = 7200) -> StoredBlob:
    """The blob, last written that long ago."""
    then = time.time() - seconds
    os.utime(blobs.path(stored.key), (then, then))
    return stored


def keys(blobs: LocalBlobs) -> set[str]:
    listed = blobs.keys()
    return {key for key, _ in listed}


def count(db: Database, table: Any) -> int:
    with db.read() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def test_bytes_that_a_row_names_stay_and_others_go_after_the_grace(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, queued: Callable[..., Job], finish: Callable[..., lease.Claim]
) -> None:
    queued(b"plain")
    finish(b"artifact")
    weights, onnx = blobs.put_bytes(b"weights"), blobs.put_bytes(b"bundled")
    models.put(db, owner, Bundle(onnx, {"w.bin": weights}), UNLIMITED)
    upload = uploads.begin(db, owner, size=9, media_type="application/octet-stream", sha256=None, limit=100)
    with uploads.Appender(db, blobs, upload, 0) as appender:
        appender.write(b"piece")
        appender.end()
    made = queued(b"plain", fresh=False).artifact_id
    assert made is not None
    runs.infer(db, owner, made, blobs.put_bytes(b"arrays"), limits=UNLIMITED)
    named = keys(blobs)
    assert len(named) == 6
    for key in named:
        old(blobs, StoredBlob(key, "", 0))
    garbage = old(blobs, blobs.put_bytes(b"nobody's"))
    fresh = blobs.put_bytes(b"on its way to a row")
    assert collect(db, blobs, 3600) == 1
    assert keys(blobs) == {*named, fresh.key}
    assert garbage.key not in keys(blobs)
    assert collect(db, blobs, 3600) == 0


def test_bytes_written_again_between_the_look_and_the_deletion_stay(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = old(blobs, blobs.put_bytes(b"model"))
    look = rows.referenced

    def look_and_then_somebody_uploads(session: Any) -> Any:
        yield from look(session)
        blobs.put_bytes(b"model")

    monkeypatch.setattr("service.db.retention.referenced", look_and_then_somebody_uploads)
    collect(db, blobs, 3600)
    kept = models.keep(db, owner, stored)
    assert b"".join(blobs.read(kept.blob_key)) == b"model"


def test_many_keys_are_looked_at_some_at_a_time(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "KEYS_AT_ONCE", 3)
    kept = [models.keep(db, owner, old(blobs, blobs.put_bytes(bytes([n])))).blob_key for n in range(7)]
    for number in range(8):
        old(blobs, blobs.put_bytes(bytes([100 + number])))
    assert collect(db, blobs, 3600) == 8
    assert keys(blobs) == set(kept)


def test_jobs_are_kept_for_ever_unless_the_operator_says_otherwise(
    db: Database, blobs: LocalBlobs, queued: Callable[..., Job], finish: Callable[..., lease.Claim], age: Any
) -> None:
    queued()
    finish()
    age()
    assert sweep(db, blobs, NEVER) == Swept()
    assert Rules.of(Settings()).jobs_s == 0


def test_an_old_job_goes_with_all_but_its_records_and_its_model(
    db: Database,
    blobs: LocalBlobs,
    queued: Callable[..., Job],
    finish: Callable[..., lease.Claim],
    record: dict[str, object],
    age: Any,
) -> None:
    queued(b"old")
    finish(b"old artifact", records=(record,))
    age()
    young = queued(b"young")
    finish(b"young artifact")
    waiting = queued(b"waiting")
    swept = sweep(db, blobs, Rules(DAY, 1e12, 1e12, 1e9))
    assert (swept.jobs, swept.artifacts) == (1, 1)
    with db.read() as session:
        assert set(session.scalars(sa.select(Job.id))) == {young.id, waiting.id}
        assert set(session.scalars(sa.select(Event.job_id))) == {young.id, waiting.id}
        assert session.scalars(sa.select(Artifact.job_id)).all() == [young.id]
        (kept,) = session.scalars(sa.select(TuningRecord))
        assert kept.job_id is None
        assert len(session.scalars(sa.select(Model.digest)).all()) == 3


def test_an_artifact_stays_while_a_younger_job_names_or_needs_it(
    db: Database,
    blobs: LocalBlobs,
    owner: uuid.UUID,
    queued: Callable[..., Job],
    finish: Callable[..., lease.Claim],
    age: Any,
) -> None:
    first, second = queued(b"a"), queued(b"b")
    finish(b"artifact a")
    finish(b"artifact b")
    age()
    hit = queued(b"a", fresh=False)
    assert hit.cached
    assert hit.artifact_id == first.artifact_id
    assert second.artifact_id is not None
    runs.benchmark(db, owner, [second.artifact_id], BenchmarkOptions(), limits=UNLIMITED)
    rules = Rules(DAY, 1e12, 1e12, 1e9)
    assert sweep(db, blobs, rules).jobs == 0
    age(hit.id)
    assert sweep(db, blobs, rules).jobs == 2
    assert count(db, Artifact) == 1


def test_more_old_jobs_than_one_statement_names_all_go(
    db: Database, blobs: LocalBlobs, queued: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.db.retention.BATCH", 3)
    for number in range(8):
        queued(bytes([number]))
    with db.write() as session:
        session.execute(sa.update(Job).values(state="CANCELLED", finished_at=5.0))
    assert sweep(db, blobs, Rules(DAY, 1e12, 1e12, 1e9)).jobs == 8


def test_abandoned_uploads_go_and_their_bytes_after_them(db: Database, blobs: LocalBlobs, owner: uuid.UUID) -> None:
    for _ in range(2):
        upload = uploads.begin(db, owner, size=9, media_type="application/octet-stream", sha256=None, limit=100)
        with uploads.Appender(db, blobs, upload, 0) as appender:
            appender.write(b"piece")
            appender.end()
    with db.write() as session:
        first = session.scalars(sa.select(Upload.id)).first()
        session.execute(sa.update(Upload).where(Upload.id == first).values(updated_at=5.0))
    (key,) = keys(blobs)
    old(blobs, StoredBlob(key, "", 0))
    rules = Rules(0, DAY, 1e12, 3600)
    assert sweep(db, blobs, rules) == Swept(uploads=1)
    with db.write() as session:
        session.execute(sa.update(Upload).values(updated_at=5.0))
    assert sweep(db, blobs, rules) == Swept(uploads=1, blobs=1)
    assert keys(blobs) == set()


def test_arrays_of_old_inferences_go_and_the_job_says_so(
    db: Database,
    blobs: LocalBlobs,
    owner: uuid.UUID,
    queued: Callable[..., Job],
    finish: Callable[..., lease.Claim],
    age: Any,
) -> None:
    made = queued().artifact_id
    finish()
    assert made is not None
    inputs = blobs.put_bytes(b"arrays")
    job = runs.infer(db, owner, made, inputs, limits=UNLIMITED).job
    claim = lease.claim(db, "w", ["run:cpu"], 60)
    assert claim is not None
    said = [
        CompilerEvent("tokens", "run", 0.5, data={"first": 0, "tokens": [7]}),
        CompilerEvent("piece", "run", 0.5, data={"first": 0, "elements": "AAAA"}),
        CompilerEvent("phase", "run", 0.0),
    ]
    assert lease.heartbeat(db, claim, said) == "ok"
    output = blobs.put_bytes(b"outputs")
    assert lease.succeed(db, claim, made=output, report={"seconds": 1.0})
    rules = Rules(0, 1e12, DAY, 3600)
    assert outcomes.outputs(db, owner, job.id).key == output.key
    for stored in (inputs, output):
        old(blobs, stored)
    assert sweep(db, blobs, rules) == Swept()
    assert {inputs.key, output.key} <= keys(blobs)
    age(job.id)
    assert sweep(db, blobs, rules) == Swept(inferences=1, blobs=2)
    assert sweep(db, blobs, rules) == Swept()
    assert count(db, Inference) == 1
    with pytest.raises(Removed):
        outcomes.outputs(db, owner, job.id)
    assert outcomes.inference(db, owner, job.id).report == {"seconds": 1.0}
    with db.read() as session:
        told = {event.kind: event.data for event in events.after(session, job.id, 0, 100)}
    assert told["tokens"] == told["piece"] == {}
    assert told["phase"]["phase"] == "run"


def test_a_job_that_is_submitted_while_old_ones_go_finds_its_artifact_or_compiles(
    db: Database,
    blobs: LocalBlobs,
    owner: uuid.UUID,
    queued: Callable[..., Job],
    finish: Callable[..., lease.Claim],
    age: Any,
) -> None:
    for attempt in range(6):
        model = f"model {attempt}".encode()
        first = queued(model)
        finish()
        age(first.id)
        start = threading.Barrier(2)
        found: list[Job] = []

        def ask(digest: str = str(first.model_digest), start: Any = start, found: list[Job] = found) -> None:
            start.wait()
            found.append(submit(db, Submission(owner, digest, CompileOptions()), limits=UNLIMITED).job)

        thread = threading.Thread(target=ask)
        thread.start()
        start.wait()
        sweep(db, blobs, Rules(DAY, 1e12, 1e12, 1e9))
        thread.join()
        (job,) = found
        with db.read() as session:
            there = session.get(Artifact, job.artifact_id) is not None
        assert there == job.cached, attempt
        if not job.cached:
            finish()


def test_the_loop_sweeps_until_it_is_stopped_and_outlives_a_store_that_fails(
    db: Database, blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, rounds = threading.Event(), []

    def failing(*_: object) -> Swept:
        rounds.append(1)
        if len(rounds) == 3:
            stop.set()
        raise StorageUnavailable("away", fix="wait")

    monkeypatch.setattr(retention, "sweep", failing)
    retention.loop(db, blobs, stop, every_s=0.001, rules=NEVER)
    assert len(rounds) == 3


def test_a_round_that_is_stopped_deletes_nothing_more(db: Database, blobs: LocalBlobs) -> None:
    old(blobs, blobs.put_bytes(b"garbage"))
    stop = threading.Event()
    stop.set()
    assert collect(db, blobs, 3600, stop) == 0
    with pytest.raises(BlobLost):
        blobs.size("00/" + "0" * 64)
    assert len(keys(blobs)) == 1
