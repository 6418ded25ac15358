from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import sqlalchemy as sa

from compiler.contract import BenchmarkOptions, CompileOptions, Event
from service.blobs.local import LocalBlobs
from service.config import Settings
from service.db.engine import Database
from service.db.models import Job, JobState, Model, TuningRecord, Workload
from service.db.retention import Gone, Measurements
from service.errors import JobInUse, ModelInUse, NotFound
from service.jobs.accounts.quotas import UNLIMITED
from service.jobs.lifecycle import find
from service.jobs.operations import removal, retention
from service.jobs.operations.retention import Rules
from service.jobs.scheduling import lease
from service.jobs.storage import models
from service.jobs.submission import runs
from service.jobs.submission.submit import Submission, submit


def test_what_runs_an_artifact_of_the_model_goes_with_it_and_other_models_stay(
    db: Database, owner: uuid.UUID, queued: Callable[..., Job], finish: Callable[..., lease.Claim]
) -> None:
    first, other = queued(b"a"), queued(b"b")
    finish()
    finish()
    assert first.artifact_id is not None
    assert other.artifact_id is not None
    both = runs.benchmark(db, owner, [other.artifact_id, first.artifact_id], BenchmarkOptions(), limits=UNLIMITED).job
    alone = runs.benchmark(db, owner, [other.artifact_id], BenchmarkOptions(), limits=UNLIMITED).job
    gone = removal.remove(db, owner, str(first.model_digest), cancel=True)
    assert gone.deleted == Gone(jobs=2, artifacts=1, benchmarks=1)
    for job in (first, both):
        with pytest.raises(NotFound):
            find.job(db, owner, job.id)
    assert find.job(db, owner, alone.id).job.state == JobState.QUEUED
    assert find.artifact(db, owner, other.artifact_id).job_id == other.id


def test_without_leave_to_cancel_nothing_is_touched(
    db: Database, owner: uuid.UUID, queued: Callable[..., Job], claimed: Callable[..., lease.Claim]
) -> None:
    job = queued()
    held = claimed()
    waiting = queued()
    with pytest.raises(ModelInUse) as refused:
        removal.remove(db, owner, str(job.model_digest), cancel=False)
    assert refused.value.details == {"queued": 1, "running": 1}
    assert lease.heartbeat(db, held, []) == "ok"
    assert find.job(db, owner, waiting.id).job.state == JobState.QUEUED


def test_while_a_job_stops_the_queued_ones_are_cancelled_and_nothing_is_deleted(
    db: Database, owner: uuid.UUID, queued: Callable[..., Job], claimed: Callable[..., lease.Claim]
) -> None:
    queued()
    held = claimed()
    waiting = queued()
    gone = removal.remove(db, owner, str(waiting.model_digest), cancel=True)
    assert (gone.stopping, gone.deleted) == (1, Gone())
    assert find.job(db, owner, waiting.id).job.state == JobState.CANCELLED
    assert lease.heartbeat(db, held, []) == "cancel"


def test_a_worker_whose_job_was_removed_is_told_that_it_lost_it(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, queued: Callable[..., Job], claimed: Callable[..., lease.Claim]
) -> None:
    job = queued()
    claim = claimed()
    assert lease.cancelled(db, claim)
    removal.remove(db, owner, str(job.model_digest), cancel=False)
    assert lease.heartbeat(db, claim, [Event("progress", "tile", 0.5)]) == "lost"
    assert not lease.cancelled(db, claim)
    assert not lease.fail(db, claim, {"code": "x"})
    assert not lease.succeed(db, claim, made=blobs.put_bytes(b"a"), report={}, circumstances={})


def test_a_submission_at_the_same_moment_comes_before_or_after(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID
) -> None:
    for attempt in range(8):
        digest = models.keep(db, owner, blobs.put_bytes(bytes([attempt]))).digest
        start = threading.Barrier(2)
        outcomes: list[object] = []

        def ask(digest: str = digest, start: threading.Barrier = start, said: list[object] = outcomes) -> None:
            start.wait()
            try:
                said.append(submit(db, Submission(owner, digest, CompileOptions()), limits=UNLIMITED).job)
            except NotFound as error:
                said.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        start.wait()
        try:
            removal.remove(db, owner, digest, cancel=False)
            removed = True
        except ModelInUse:
            removed = False
        thread.join()
        assert isinstance(outcomes[0], NotFound if removed else Job), attempt


MARKED = ("artifact", "record", "text", "log", "event", "told")
MARKS = {name: f"xyzzy-{name}-{uuid.UUID(int=7).hex}" for name in MARKED}


def seen(db: Database, settings: Settings) -> set[str]:
    """The marks that are still in a table, in the file of the database or its log, or among the blobs."""
    with db.read() as session:
        metadata = sa.MetaData()
        metadata.reflect(session.connection())
        tables = "".join(str(session.execute(sa.select(table)).all()) for table in metadata.sorted_tables)
    files = [path for path in settings.data_dir.rglob("*") if path.is_file()]
    kept = tables.encode() + b"".join(path.read_bytes() for path in files)
    return {name for name, mark in MARKS.items() if mark.encode() in kept}


def compiled(
    db: Database, blobs: LocalBlobs, claim: lease.Claim, records: Sequence[dict[str, object]], texts: dict[str, str]
) -> None:
    """Brings a claimed job to SUCCEEDED, with a mark in everything that it leaves."""
    reported = Event("notice", "tile", 0.5, MARKS["event"])
    lease.heartbeat(db, claim, [reported], lease.Measured(records, texts))
    stored = blobs.put_bytes(MARKS["artifact"].encode())
    assert lease.succeed(
        db, claim, made=stored, report={"r": MARKS["told"]}, circumstances={"r": MARKS["told"]}, log=MARKS["log"]
    )


def test_nothing_is_left_of_a_job_that_was_purged(
    db: Database,
    blobs: LocalBlobs,
    settings: Settings,
    owner: uuid.UUID,
    queued: Callable[..., Job],
    claimed: Callable[..., lease.Claim],
    record: dict[str, object],
) -> None:
    job = queued(b"model")
    mine = {**record, "description": MARKS["record"], "workload": "w1"}
    shared = {**record, "description": MARKS["record"], "workload": "w2"}
    orphan = {"w1": MARKS["text"], "w2": "of both", "w3": MARKS["text"]}
    compiled(db, blobs, claimed(), [mine, mine, shared], orphan)
    other = queued(b"other")
    compiled_by_other = lease.Measured([{**record, "workload": "w2"}], {"w2": "of both"})
    claim = claimed()
    lease.heartbeat(db, claim, [], compiled_by_other)
    assert lease.fail(db, claim, {"code": "x"})
    assert seen(db, settings) == set(MARKS)
    gone = removal.purge(db, owner, job.id)
    assert (gone.stopping, gone.artifacts, gone.kept_by) == (False, 1, ())
    assert gone.measured == Measurements(tuning_records=3, workloads=2)
    for path in blobs.root.glob("??/*"):
        os.utime(path, (1.0, 1.0))
    retention.sweep(db, blobs, Rules(jobs_s=0, uploads_s=1e9, inferences_s=1e9, grace_s=60))
    assert seen(db, settings) == set()
    with db.read() as session:
        assert session.scalars(sa.select(Workload.workload)).all() == ["w2"]
        assert session.scalars(sa.select(TuningRecord.job_id)).all() == [other.id]
    with pytest.raises(NotFound):
        removal.purge(db, owner, job.id)
    assert models.row(db, owner, str(job.model_digest)).blob_key
    again = submit(db, Submission(owner, str(job.model_digest), CompileOptions()), limits=UNLIMITED).job
    assert not again.cached


def test_an_artifact_that_another_job_was_answered_with_stays_that_ones(
    db: Database, owner: uuid.UUID, queued: Callable[..., Job], finish: Callable[..., lease.Claim]
) -> None:
    first = queued(fresh=False)
    finish()
    hit = queued(fresh=False)
    assert (hit.cached, first.artifact_id is not None) == (True, True)
    gone = removal.purge(db, owner, first.id)
    assert (gone.artifacts, gone.kept_by) == (0, (hit.id,))
    assert find.artifact(db, owner, uuid.UUID(str(hit.artifact_id))).job_id == hit.id
    assert removal.purge(db, owner, hit.id).artifacts == 1
    with pytest.raises(NotFound):
        find.artifact(db, owner, uuid.UUID(str(hit.artifact_id)))


def test_a_job_that_was_answered_from_the_cache_goes_alone(
    db: Database, owner: uuid.UUID, queued: Callable[..., Job], finish: Callable[..., lease.Claim]
) -> None:
    first = queued(fresh=False)
    finish()
    hit = queued(fresh=False)
    assert removal.purge(db, owner, hit.id).artifacts == 0
    assert find.artifact(db, owner, uuid.UUID(str(first.artifact_id))).job_id == first.id


def test_a_job_is_not_purged_while_its_artifact_is_to_be_run(
    db: Database, owner: uuid.UUID, queued: Callable[..., Job], finish: Callable[..., lease.Claim]
) -> None:
    job = queued()
    finish()
    run = runs.benchmark(db, owner, [uuid.UUID(str(job.artifact_id))], BenchmarkOptions(), limits=UNLIMITED).job
    with pytest.raises(JobInUse):
        removal.purge(db, owner, job.id)
    assert not removal.purge(db, owner, run.id).stopping
    assert removal.purge(db, owner, job.id).artifacts == 1


def test_a_job_that_waits_is_purged_at_once_and_one_that_runs_when_it_has_ended(
    db: Database, owner: uuid.UUID, queued: Callable[..., Job], claimed: Callable[..., lease.Claim]
) -> None:
    held = queued()
    claim = claimed()
    waiting = queued()
    assert not removal.purge(db, owner, waiting.id).stopping
    assert removal.purge(db, owner, held.id).stopping
    assert removal.purge(db, owner, held.id).stopping
    assert lease.heartbeat(db, claim, []) == "cancel"
    assert lease.cancelled(db, claim)
    assert not removal.purge(db, owner, held.id).stopping
    for job in (held, waiting):
        with pytest.raises(NotFound):
            find.job(db, owner, job.id)


def test_models_that_no_job_names_go_when_they_were_not_used_for_long(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, queued: Callable[..., Job]
) -> None:
    named = queued(b"named")
    unused, used, young = (models.keep(db, owner, blobs.put_bytes(name)) for name in (b"unused", b"used", b"young"))
    with db.write() as session:
        session.execute(sa.update(Model).where(Model.digest != young.digest).values(used_at=5.0))
    removal.purge(db, owner, submit(db, Submission(owner, used.digest, CompileOptions()), limits=UNLIMITED).job.id)
    rules = Rules(jobs_s=0, uploads_s=1e9, inferences_s=1e9, grace_s=1e9)
    assert retention.sweep(db, blobs, rules).models == 0
    assert retention.sweep(db, blobs, replace(rules, models_s=3600.0)).models == 1
    with db.read() as session:
        left = set(session.scalars(sa.select(Model.digest)))
    assert left == {named.model_digest, used.digest, young.digest}
    assert unused.digest not in left
