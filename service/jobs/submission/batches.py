"""Look at batches, cancel what of them has not ended, and try again what failed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from compiler.contract import CompileOptions
from service.db import batches
from service.db.batches import Batch
from service.db.engine import Database
from service.db.models import Job, JobState
from service.errors import NotFound
from service.jobs.accounts import audit
from service.jobs.accounts.quotas import Limits
from service.jobs.lifecycle.cancel import stop
from service.jobs.storage.samples import of_row
from service.jobs.submission.job_terms import Beside
from service.jobs.submission.submit import Submission, Submitted, fingerprint, submit_all

AGAIN = (JobState.FAILED, JobState.CANCELLED)
"""The states of what a retry compiles again."""


@dataclass(frozen=True)
class Found:
    """A batch and its jobs, in the order of the request."""

    batch: Batch
    jobs: Sequence[Job]


def page(
    db: Database, owner: uuid.UUID, *, before: uuid.UUID | None, limit: int
) -> tuple[list[Batch], uuid.UUID | None]:
    """The owner's batches, newest first, and the cursor of the next page (None: there is none)."""
    with db.read() as session:
        found = list(batches.page(session, owner, before=before, limit=limit + 1))
    return found[:limit], found[limit - 1].id if len(found) > limit else None


def look(db: Database, owner: uuid.UUID, batch_id: uuid.UUID) -> Found:
    """One batch. Raises `NotFound`."""
    with db.read() as session:
        return _required(session, owner, batch_id)


def cancel(db: Database, owner: uuid.UUID, batch_id: uuid.UUID) -> Found:
    """The batch after the request: what waited is CANCELLED, and what runs is stopped by its workers within seconds.

    What has ended stays as it is; asking again changes nothing. Raises `NotFound`.
    """
    with db.write() as session:
        asked = stop(session, batches.jobs_of(session, owner, batch_id, lock=True), "with its batch")
        for job in asked:
            audit.note(session, "cancel", f"/jobs/{job.id}")
        session.expire_all()
        return _required(session, owner, batch_id)


def retry(db: Database, owner: uuid.UUID, batch_id: uuid.UUID, *, limits: Limits) -> tuple[Found, list[Submitted]]:
    """Compile again what of a batch FAILED or was CANCELLED, all of it or nothing: the batch with the new jobs.

    They are jobs of the batch too, `cloned_from` those that they stand for, with the same options, samples, priority
    and limits. What was tried again already is not once more: then the newest try counts. Raises `NotFound`,
    `OptionsError` for options that this version does not know any more, and the errors of `submit`.
    """
    found = look(db, owner, batch_id)
    replaced = {job.cloned_from for job in found.jobs}
    failed = [job for job in found.jobs if job.state in AGAIN and job.id not in replaced]
    made = submit_all(db, [_again(job) for job in failed], limits=limits) if failed else []
    return look(db, owner, batch_id), made


def _again(job: Job) -> Submission:
    assert job.model_digest is not None, "batches are of compilations"
    return Submission(
        owner=job.owner_id,
        model=job.model_digest,
        options=CompileOptions.from_json(job.options),
        idempotency_key=fingerprint("retry", str(job.id)),
        priority=job.priority,
        cloned_from=job.id,
        samples=of_row(job.samples),
        beside=Beside(job.name, job.note, tuple(job.tags or ()), job.max_queue_s, job.max_run_s, job.compiler),
        batch=job.batch_id,
    )


def _required(session: Session, owner: uuid.UUID, batch_id: uuid.UUID) -> Found:
    batch = batches.of_owner(session, owner, batch_id)
    if batch is None:
        raise NotFound(f"there is no batch {batch_id}", fix="list them with GET /batches")
    return Found(batch, batches.jobs_of(session, owner, batch_id))
