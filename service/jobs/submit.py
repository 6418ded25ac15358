"""Accept a compilation: at most one job per idempotency key, and none at all for what the cache can answer."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass

from sqlalchemy.orm import Session

from compiler.contract import CompileOptions
from service.blobs.local import StoredBlob
from service.db import artifacts, events, jobs, owners
from service.db.engine import Database, clock
from service.db.models import Job, JobState, new_id
from service.errors import IdempotencyKeyReused, QueueFull


@dataclass(frozen=True)
class Submission:
    """What a request asks for. The model is already in the blob store and has not been read."""

    owner: uuid.UUID
    model: StoredBlob
    options: CompileOptions
    fresh: bool = False
    """Compile even if the cache holds the answer."""
    idempotency_key: str | None = None
    priority: int = 0

    @property
    def body_hash(self) -> str:
        """What two requests with one idempotency key must share: model, options and `fresh` (SHA-256, hex)."""
        text = json.dumps([self.model.sha256, self.options.to_json(), self.fresh], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def queue(self) -> str:
        """The device class that has to compile it: `cpu` for `cpu` and every `cpu:<profile>`."""
        return self.options.target.split(":")[0]


@dataclass(frozen=True)
class Submitted:
    """The job that answers a request; `replayed` when an earlier request with the same key made it."""

    job: Job
    replayed: bool


def submit(db: Database, submission: Submission, *, max_queued: int) -> Submitted:
    """Make the job's row, durably; the caller rings the doorbell afterwards if the job is QUEUED.

    Raises `IdempotencyKeyReused` (key known with another body) and `QueueFull` (`max_queued` jobs are waiting).
    """
    with db.write() as session:
        owners.lock(session, submission.owner)  # two requests of one owner at once: the later sees the earlier's row
        return _submit(session, submission, max_queued)


def _submit(session: Session, submission: Submission, max_queued: int) -> Submitted:
    if (earlier := _earlier(session, submission)) is not None:
        return Submitted(earlier, replayed=True)
    digest, owner = submission.model.sha256, submission.owner
    artifacts.keep_model(session, owner, digest, submission.model.bytes, submission.model.key)
    job = Job(
        id=new_id(),
        owner_id=owner,
        model_digest=digest,
        options=submission.options.to_json(),
        cache_key=submission.options.cache_key(digest),
        idempotency_key=submission.idempotency_key,
        body_hash=submission.body_hash,
        queue=submission.queue,
        priority=submission.priority,
        state=JobState.QUEUED,
    )
    source = None if submission.fresh else jobs.cached(session, owner, job.cache_key)
    if source is not None:
        _answer_from(job, source)
    elif jobs.waiting(session, owner) >= max_queued:
        raise QueueFull(
            f"{max_queued} jobs are waiting already",
            fix="wait for some to finish, cancel some, or raise TILEWRIGHT_MAX_QUEUED_PER_OWNER",
            details={"limit": max_queued},
        )
    jobs.add(session, job)
    events.append(session, job.id, [("state", {"state": str(job.state), "cached": job.cached})])
    session.refresh(job)
    return Submitted(job, replayed=False)


def _earlier(session: Session, submission: Submission) -> Job | None:
    if submission.idempotency_key is None:
        return None
    job = jobs.by_idempotency_key(session, submission.owner, submission.idempotency_key)
    if job is not None and job.body_hash != submission.body_hash:
        raise IdempotencyKeyReused(
            f"idempotency key {submission.idempotency_key!r} was used with another model, options or fresh",
            fix="use a new key for a new request",
            details={"job": str(job.id)},
        )
    return job


def _answer_from(job: Job, source: Job) -> None:
    """Make the new job a success that names the artifact of `source`."""
    job.state = JobState.SUCCEEDED
    job.cached = True
    job.artifact_id = source.artifact_id
    job.report = source.report
    job.phase, job.fraction = source.phase, 1.0
    job.started_at = job.finished_at = clock()
