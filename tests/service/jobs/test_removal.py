from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

import pytest

from compiler.contract import BenchmarkOptions, CompileOptions, Event
from service.blobs.local import LocalBlobs
from service.db.engine import Database
from service.db.models import Job, JobState
from service.db.retention import Gone
from service.errors import ModelInUse, NotFound
from service.jobs import find, lease, models, removal, runs
from service.jobs.quotas import UNLIMITED
from service.jobs.submit import Submission, submit


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
    assert not lease.succeed(db, claim, artifact=blobs.put_bytes(b"a"), report={}, receipt={})


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
