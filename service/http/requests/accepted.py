"""What every request that makes a job answers with, beside the job: where it is, whether it was there, who is woken."""

from __future__ import annotations

from typing import Annotated

from fastapi import BackgroundTasks, Header, Response

from service.db.models import JobState
from service.http.state import State
from service.jobs.scheduling.doorbell import announce
from service.jobs.submission.submit import Submitted

IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=200, description="Repeating a request with the same key makes no second job."),
]


def accepted(here: State, response: Response, background: BackgroundTasks, submitted: Submitted, location: str) -> None:
    """Set the headers, and ring the doorbell after the answer if a worker can begin.

    What waits for an artifact rings later.
    """
    job = submitted.job
    if job.state == JobState.QUEUED and job.blocked_by == 0:
        background.add_task(announce, here.db, here.ring, job.id, job.queue)
    response.headers["Location"] = location
    if submitted.replayed:
        response.headers["Idempotent-Replayed"] = "true"
