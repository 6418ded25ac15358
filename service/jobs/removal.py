"""Remove a model with all that hangs on it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from service.db import events, jobs, owners, retention
from service.db.engine import Database
from service.db.models import JobState
from service.db.retention import Gone
from service.errors import ModelInUse
from service.jobs import audit, life, models


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
    with db.write() as session:
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
        for job in queued:
            life.move(session, job.id, JobState.CANCELLED)
        for job in held:
            if not job.cancel_requested:
                jobs.ask_to_cancel(session, job.id)
                events.append(
                    session, job.id, [("notice", {"message": "cancelling was asked for, to remove its model"})]
                )
        if held:
            return Removal(digest, len(held), Gone(), records)
        gone = retention.delete_jobs(session, [job.id for job in hanging])
        retention.delete_model(session, owner, digest)
        audit.note(session, "delete", f"/models/{digest}")
        return Removal(digest, 0, gone, records)
