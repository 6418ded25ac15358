"""The life of a job: the table of allowed transitions, and the one function that moves a job along it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy.orm import Session

from compiler.contract import job_kinds
from service.db import attempts, events, jobs, needs, shares, totals, usage
from service.db.engine import clock
from service.db.models import JobState
from service.errors import ArtifactNeverMade
from service.jobs.notifications import webhooks

NEXT: Mapping[JobState, frozenset[JobState]] = MappingProxyType(
    {
        JobState.QUEUED: frozenset({JobState.LEASED, JobState.CANCELLED, JobState.FAILED}),
        JobState.LEASED: frozenset(
            {JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.QUEUED}
        ),
        JobState.RUNNING: frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.QUEUED}),
        JobState.SUCCEEDED: frozenset(),
        JobState.FAILED: frozenset(),
        JobState.CANCELLED: frozenset(),
    }
)
"""What may follow what.

LEASED goes straight to an end when the outcome arrives before any progress.
QUEUED goes to FAILED when what it waits for failed.
"""

TERMINAL = frozenset(state for state, following in NEXT.items() if not following)
UNHELD = frozenset(JobState) - set(jobs.HELD)


def move(
    session: Session,
    job_id: uuid.UUID,
    to: JobState,
    *,
    fence: int | None = None,
    expired: bool = False,
    said: Mapping[str, Any] | None = None,
    also: Mapping[str, Any] | None = None,
    outcome: str = "",
    log: str | None = None,
) -> bool:
    """Move a job to `to` if the table allows it from where it is now; False (and nothing written) if not.

    fence    demand that the job is held and carries this value: the writer is the worker that holds the lease
    expired  demand that the lease has run out
    said     what the `state` event says beside the state
    also     further columns to set in the same UPDATE
    outcome  what the attempt that ends is said to have come to, if not `to`
    log      what the process that did the work printed, for the attempt that ends

    What hangs on the move happens with it: the attempt ends, the owner is charged for the device, its webhooks are to
    be told, and the jobs that wait for this one's artifact go on or fail.
    """
    sources = [state for state in JobState if to in NEXT[state] and (fence is None or state in jobs.HELD)]
    values = dict(also or {})
    if to in UNHELD:
        values |= {"lease_owner": None, "lease_until": None}
    if to in TERMINAL:
        values |= {"finished_at": clock()}
    if to is JobState.QUEUED:
        values |= {"published_at": None, "phase": None, "fraction": 0.0, "unserved_since": None}
    moved = jobs.advance(session, job_id, to, sources, fence=fence, expired=expired, values=values)
    if moved is None:
        return False
    events.append(session, job_id, [("state", {"state": str(to), **(said or {})})])
    if to in UNHELD:
        ended = attempts.end(session, job_id, moved.attempts, outcome or str(to), log)
        if ended is not None:
            shares.charge(session, moved.queue, moved.owner_id, max(ended.held_s - shares.ADVANCE_S, 0.0))
            usage.tally(session, moved.owner_id, ended.since, ended.until)
            totals.count(session, "device_seconds", ended.held_s, queue=moved.queue)
    if to in TERMINAL:
        webhooks.tell(session, moved.owner_id, job_id)
        totals.count(session, "jobs_ended", kind=str(moved.kind), state=str(to), queue=moved.queue)
        if moved.kind == job_kinds.COMPILE.name and moved.artifact_id is not None:
            _release_waiting(session, job_id, moved.artifact_id, to)
    return True


def _release_waiting(session: Session, job_id: uuid.UUID, artifact_id: uuid.UUID, ended: JobState) -> None:
    """Let what waits for an artifact go on now that it is made, or fail now that it never will be."""
    if ended is JobState.SUCCEEDED:
        needs.unblock(session, artifact_id)
        return
    never = ArtifactNeverMade(
        f"job {job_id}, which was to make artifact {artifact_id}, ended as {ended}",
        fix="look at that job's problem, then submit again",
        details={"job": str(job_id), "artifact": str(artifact_id)},
    )
    why = {"problem": never.to_json()}
    for waiting in needs.waiting_for(session, artifact_id):
        move(session, waiting, JobState.FAILED, said=why, also=why)
