"""Ask for the best found so far: measuring ends, and the job goes on to its artifact."""

from __future__ import annotations

import uuid

from compiler.contract import job_kinds
from service.db import events, jobs
from service.db.engine import Database
from service.db.models import Job
from service.errors import JobFinished, WrongKind
from service.jobs.accounts import audit
from service.jobs.lifecycle import transitions
from service.jobs.lifecycle.find import required


def finish(db: Database, owner: uuid.UUID, job_id: uuid.UUID) -> Job:
    """The job after the request; its worker stops measuring within a second, or never begins to.

    Asking again changes nothing. Raises `NotFound`, `WrongKind` for what is no compilation, and `JobFinished`.
    """
    with db.write() as session:
        job = required(session, owner, job_id, lock=True)
        if job.kind != job_kinds.COMPILE.name:
            raise WrongKind(f"job {job_id} is of kind {job.kind}, which has no best so far", fix="cancel it instead")
        if job.state in transitions.TERMINAL:
            raise JobFinished(f"job {job_id} has ended as {job.state}", fix="there is nothing left to finish")
        if not job.finish_requested:
            jobs.ask_to_finish(session, job_id)
            events.append(session, job_id, [("notice", {"message": "the best found so far was asked for"})])
            audit.note(session, "finish", f"/jobs/{job_id}")
        return jobs.locked(session, job_id)
