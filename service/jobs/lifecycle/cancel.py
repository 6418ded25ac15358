"""Cancel a job: at once while it waits, through its worker while it runs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from sqlalchemy.orm import Session

from service.db import events, jobs
from service.db.engine import Database
from service.db.models import Job, JobState
from service.errors import JobFinished
from service.jobs.accounts import audit
from service.jobs.lifecycle import transitions
from service.jobs.lifecycle.find import required


def cancel(db: Database, owner: uuid.UUID, job_id: uuid.UUID) -> Job:
    """The job after the request: CANCELLED, or held with `cancel_requested` until its worker has stopped.

    Asking again changes nothing. Raises `NotFound`, and `JobFinished` for one that succeeded or failed.
    """
    with db.delete() as session:
        job = required(session, owner, job_id, lock=True)
        if job.state in (JobState.SUCCEEDED, JobState.FAILED):
            raise JobFinished(f"job {job_id} has ended as {job.state}", fix="there is nothing left to cancel")
        if job.state == JobState.QUEUED:
            transitions.move(session, job_id, JobState.CANCELLED)
            audit.note(session, "cancel", f"/jobs/{job_id}")
        elif job.state in jobs.HELD and not job.cancel_requested:
            jobs.ask_to_cancel(session, job_id)
            events.append(session, job_id, [("notice", {"message": "cancelling was asked for"})])
            audit.note(session, "cancel", f"/jobs/{job_id}")
        return jobs.locked(session, job_id)


def stop(session: Session, open_jobs: Iterable[Job], why: str) -> list[Job]:
    """End the queued jobs at once, and ask the held ones to end; those of them that were told so just now.

    why  what they are stopped for, which the logs of the held ones say
    """
    asked = []
    for job in open_jobs:
        if job.state == JobState.QUEUED:
            if transitions.move(session, job.id, JobState.CANCELLED):  # else it ended with one before
                asked.append(job)
        elif job.state in jobs.HELD and not job.cancel_requested:
            jobs.ask_to_cancel(session, job.id)
            events.append(session, job.id, [("notice", {"message": f"cancelling was asked for, {why}"})])
            asked.append(job)
    return asked
