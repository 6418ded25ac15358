"""What past jobs and the present queue say of a job that is not made yet."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from compiler.contract import job_kinds
from service.db.models import Job, JobState


def compile_seconds(
    session: Session, owner_id: uuid.UUID, queue: str, *, newest: int
) -> Sequence[tuple[int | None, float]]:
    """Nodes of the model and run seconds of the owner's newest compilations in a queue.

    Counts those that succeeded and were not answered from the cache.
    """
    query = sa.select(Job.report["nodes"].as_integer(), Job.finished_at - Job.started_at).where(
        Job.owner_id == owner_id,
        Job.kind == job_kinds.COMPILE.name,
        Job.queue == queue,
        Job.state == JobState.SUCCEEDED,
        Job.cached.is_(False),
        Job.started_at.is_not(None),
    )
    rows = session.execute(query.order_by(Job.id.desc()).limit(newest))
    return [(nodes, seconds) for nodes, seconds in rows]


def ahead(session: Session, queue: str, priority: int) -> int:
    """How many jobs of a queue would go before a new one of this priority, if all owners had had the same share."""
    query = sa.select(sa.func.count()).where(
        Job.queue == queue, Job.state == JobState.QUEUED, Job.blocked_by == 0, Job.priority >= priority
    )
    return session.scalar(query) or 0
