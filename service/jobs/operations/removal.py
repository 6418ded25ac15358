"""Remove a model with all that hangs on it, or a job with all that it made."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from service.db import artifacts, jobs, owners, retention
from service.db.engine import Database
from service.db.models import Job, JobState
from service.db.retention import Gone, Measurements
from service.errors import JobInUse, ModelInUse
from service.jobs.accounts import audit
from service.jobs.lifecycle import find
from service.jobs.lifecycle.cancel import stop
from service.jobs.storage import models


@dataclass(frozen=True)
class Removal:
    """What became of the request: `stopping` jobs must end first, and nothing was deleted; 0: all of it is gone."""

    digest: str
    stopping: int
    deleted: Gone
    records_kept: int


def remove(db: Database, owner: uuid.UUID, digest: str, *, cancel: bool) -> Removal:
    """Delete a model, its jobs with events, attempts and artifacts, and what ran these artifacts. Tuning records stay.

    Jobs that are queued or held prevent it, unless `cancel`: then the queued ones end at once and the held ones are
    asked to end, and while there are held ones the caller asks again. Raises `NotFound` and `ModelInUse`.
    """
    with db.delete() as session:
        owners.lock(session, owner)  # nobody submits a job for it meanwhile
        models.required(session, owner, digest)
        records = retention.records_of(session, owner, digest)
        hanging = retention.hanging_on(session, owner, digest)
        held = [job for job in hanging if job.state in jobs.HELD]
        queued = [job for job in hanging if job.state == JobState.QUEUED]
        if (held or queued) and not cancel:
            raise ModelInUse(
                f"{len(queued)} jobs of model {digest} are queued and {len(held)} run",
                fix="wait for them, or cancel them with ?cancel=true",
                details={"queued": len(queued), "running": len(held)},
            )
        asked = stop(session, hanging, "to remove its model")
        if held:
            _note_cancelled(session, asked)
            return Removal(digest, len(held), Gone(), records)
        gone = retention.delete_jobs(session, [job.id for job in hanging])
        retention.delete_model(session, owner, digest)
        audit.note(session, "delete", f"/models/{digest}")
        return Removal(digest, 0, gone, records)


@dataclass(frozen=True)
class Purge:
    """What became of the request: while it is `stopping` nothing was deleted.

    `kept_by` are jobs that were answered with its artifact, which stays for them; the first of them has it from now on.
    """

    job: uuid.UUID
    stopping: bool
    artifacts: int = 0
    measured: Measurements = field(default_factory=Measurements)
    kept_by: tuple[uuid.UUID, ...] = ()


def purge(db: Database, owner: uuid.UUID, job_id: uuid.UUID) -> Purge:
    """Delete a job of any kind with all that came of it, as if it had never been.

    Its row, events, attempts and what they printed, report, result, artifact, tuning records, and the texts of
    workloads that nothing else of the owner's was measured on; the bytes go with the next sweep after the grace. The
    model stays. A job that waits is cancelled first; one that is held is asked to end, and the caller asks again.
    Raises `NotFound`, and `JobInUse` while benchmarks or inferences of its artifact wait or run.
    """
    with db.delete() as session:
        owners.lock(session, owner)  # nobody is promised its artifact meanwhile
        job = find.required(session, owner, job_id, lock=True)
        asked = stop(session, [job], "to remove it")
        job = jobs.locked(session, job_id)
        if job.state in jobs.HELD:
            _note_cancelled(session, asked)
            return Purge(job_id, stopping=True)
        made = None if job.artifact_id is None else artifacts.of_owner(session, owner, job.artifact_id)
        mine = made is not None and made.job_id == job.id
        heirs = tuple(retention.heirs(session, job)) if mine else ()
        if heirs:
            retention.hand_over(session, job, heirs[0])
        elif mine and job.artifact_id is not None and (count := retention.runs_ahead(session, job.artifact_id)):
            raise JobInUse(
                f"{count} benchmarks or inferences of its artifact wait or run",
                fix="wait for them, or cancel them with POST /jobs/{id}/cancel",
                details={"artifact": str(job.artifact_id), "jobs": count},
            )
        measured = retention.delete_measurements(session, job)
        gone = retention.delete_jobs(session, [job.id])
        audit.note(session, "purge", f"/jobs/{job_id}")
        return Purge(job_id, False, gone.artifacts, measured, heirs)


def _note_cancelled(session: Session, asked: Iterable[Job]) -> None:
    for job in asked:
        audit.note(session, "cancel", f"/jobs/{job.id}")
