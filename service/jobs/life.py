"""The life of a job: the table of allowed transitions, and the one function that moves a job along it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy.orm import Session

from service.db import events, jobs
from service.db.engine import clock
from service.db.models import JobState

NEXT: Mapping[JobState, frozenset[JobState]] = MappingProxyType(
    {
        JobState.QUEUED: frozenset({JobState.LEASED, JobState.CANCELLED}),
        JobState.LEASED: frozenset(
            {JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.QUEUED}
        ),
        JobState.RUNNING: frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.QUEUED}),
        JobState.SUCCEEDED: frozenset(),
        JobState.FAILED: frozenset(),
        JobState.CANCELLED: frozenset(),
    }
)
"""What may follow what. LEASED goes straight to an end when the outcome arrives before any progress."""

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
) -> bool:
    """Move a job to `to` if the table allows it from where it is now; False (and nothing written) if not.

    fence    demand that the job still carries this value: the writer is the worker that holds the lease
    expired  demand that the lease has run out
    said     what the `state` event tells beside the state
    also     further columns to set in the same UPDATE
    """
    sources = [state for state in JobState if to in NEXT[state]]
    values = dict(also or {})
    if to in UNHELD:
        values |= {"lease_owner": None, "lease_until": None}
    if to in TERMINAL:
        values |= {"finished_at": clock()}
    if to is JobState.QUEUED:
        values |= {"published_at": None, "phase": None, "fraction": 0.0}
    moved = jobs.advance(session, job_id, to, sources, fence=fence, expired=expired, values=values)
    if moved:
        events.append(session, job_id, [("state", {"state": str(to), **(said or {})})])
    return moved
