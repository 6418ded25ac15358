"""Questions asked of the table of jobs. Every function works inside the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.engine import clock
from service.db.models import Job, JobState

HELD = (JobState.LEASED, JobState.RUNNING)
"""States in which a worker holds the job."""


def add(session: Session, job: Job) -> Job:
    """Insert."""
    session.add(job)
    session.flush()
    return job


def locked(session: Session, job_id: uuid.UUID) -> Job:
    """The row as it is now, which stays so until the transaction ends. Raises `NoResultFound`."""
    query = sa.select(Job).where(Job.id == job_id).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one()


def of_owner(session: Session, owner_id: uuid.UUID, job_id: uuid.UUID) -> Job | None:
    """The owner's job, or None."""
    return session.scalar(sa.select(Job).where(Job.id == job_id, Job.owner_id == owner_id))


def page(
    session: Session, owner_id: uuid.UUID, *, states: Collection[JobState], before: uuid.UUID | None, limit: int
) -> Sequence[Job]:
    """The owner's jobs, newest first, older than `before`; `states` empty means all."""
    query = sa.select(Job).where(Job.owner_id == owner_id)
    if states:
        query = query.where(Job.state.in_(states))
    if before is not None:
        query = query.where(Job.id < before)
    return session.scalars(query.order_by(Job.id.desc()).limit(limit)).all()


def by_idempotency_key(session: Session, owner_id: uuid.UUID, key: str) -> Job | None:
    """The job that the owner's request with this key made."""
    return session.scalar(sa.select(Job).where(Job.owner_id == owner_id, Job.idempotency_key == key))


def by_artifact(session: Session, owner_id: uuid.UUID, artifact_id: uuid.UUID) -> Job | None:
    """The oldest job that this artifact was promised to."""
    query = sa.select(Job).where(Job.owner_id == owner_id, Job.artifact_id == artifact_id)
    return session.scalar(query.order_by(Job.id).limit(1))


def cached(session: Session, owner_id: uuid.UUID, cache_key: str) -> Job | None:
    """The owner's newest success with this cache key."""
    query = sa.select(Job).where(
        Job.owner_id == owner_id, Job.cache_key == cache_key, Job.state == JobState.SUCCEEDED, Job.cached.is_(False)
    )
    return session.scalar(query.order_by(Job.id.desc()).limit(1))


def waiting(session: Session, owner_id: uuid.UUID) -> int:
    """How many of the owner's jobs are queued."""
    query = sa.select(sa.func.count()).where(Job.owner_id == owner_id, Job.state == JobState.QUEUED)
    return session.scalar(query) or 0


def position(session: Session, job: Job) -> int:
    """How many jobs go before a queued one in its queue, of all owners."""
    ahead = sa.or_(
        Job.priority > job.priority,
        sa.and_(Job.priority == job.priority, Job.created_at < job.created_at),
        sa.and_(Job.priority == job.priority, Job.created_at == job.created_at, Job.id < job.id),
    )
    query = sa.select(sa.func.count()).where(Job.queue == job.queue, Job.state == JobState.QUEUED, ahead)
    return session.scalar(query) or 0


def best(session: Session, queue: str) -> uuid.UUID | None:
    """The job to run next: priority, then age. On PostgreSQL the row is locked and rows locked by others skipped."""
    query = (
        sa.select(Job.id)
        .where(Job.queue == queue, Job.state == JobState.QUEUED)
        .order_by(Job.priority.desc(), Job.created_at, Job.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    return session.scalar(query)


def advance(
    session: Session,
    job_id: uuid.UUID,
    to: JobState,
    sources: Collection[JobState],
    *,
    fence: int | None,
    expired: bool,
    values: dict[str, Any],
) -> bool:
    """One guarded UPDATE of the state: only from `sources`, only with this fence, only (if asked) past its lease."""
    update = sa.update(Job).where(Job.id == job_id, Job.state.in_(sources))
    if fence is not None:
        update = update.where(Job.fence == fence)
    if expired:
        update = update.where(Job.lease_until < clock())
    update = update.values(state=to, **values).execution_options(synchronize_session=False)
    return session.execute(update.returning(Job.id)).first() is not None


def extend(session: Session, job_id: uuid.UUID, fence: int, lease_s: float) -> tuple[JobState, bool] | None:
    """Renew the lease of a held job; its state and whether cancelling is asked for, None when it is not held."""
    update = (
        sa.update(Job)
        .where(Job.id == job_id, Job.fence == fence, Job.state.in_(HELD))
        .values(lease_until=clock() + lease_s)
        .returning(Job.state, Job.cancel_requested)
        .execution_options(synchronize_session=False)
    )
    row = session.execute(update).first()
    return None if row is None else (JobState(row.state), row.cancel_requested)


def progress(session: Session, job_id: uuid.UUID, phase: str, fraction: float) -> None:
    """Set the phase; the fraction never falls."""
    update = sa.update(Job).where(Job.id == job_id)
    grown = sa.case((Job.fraction < fraction, fraction), else_=Job.fraction)
    session.execute(
        update.values(phase=phase or Job.phase, fraction=grown).execution_options(synchronize_session=False)
    )


def ask_to_cancel(session: Session, job_id: uuid.UUID) -> None:
    """Leave the wish for the worker that holds the job."""
    update = sa.update(Job).where(Job.id == job_id).values(cancel_requested=True)
    session.execute(update.execution_options(synchronize_session=False))


def expired(session: Session, limit: int) -> Sequence[Job]:
    """Held jobs whose lease has run out, longest ago first."""
    query = sa.select(Job).where(Job.state.in_(HELD), Job.lease_until < clock())
    return session.scalars(query.order_by(Job.lease_until).limit(limit)).all()


def unannounced(session: Session, queued_before_s: float) -> dict[str, int]:
    """Mark as announced the queued jobs whose doorbell is missing or older than this; how many there are by queue.

    The UPDATE decides between reconcilers that run at the same time: each row is counted by one of them.
    """
    stale = sa.or_(Job.published_at.is_(None), Job.published_at < clock() - queued_before_s)
    update = (
        sa.update(Job)
        .where(Job.state == JobState.QUEUED, stale)
        .values(published_at=clock())
        .returning(Job.queue)
        .execution_options(synchronize_session=False)
    )
    counts: dict[str, int] = {}
    for queue in session.scalars(update):
        counts[queue] = counts.get(queue, 0) + 1
    return counts


def announced(session: Session, job_id: uuid.UUID) -> None:
    """Note that a doorbell has been sent for a queued job."""
    update = sa.update(Job).where(Job.id == job_id, Job.state == JobState.QUEUED).values(published_at=clock())
    session.execute(update.execution_options(synchronize_session=False))


def last_events(session: Session, job_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """The number of the newest event of each of these jobs."""
    rows = session.execute(sa.select(Job.id, Job.event_seq).where(Job.id.in_(job_ids)))
    return {row.id: row.event_seq for row in rows}
