"""Tries of workers at jobs, and what they printed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.engine import clock
from service.db.models import Attempt


def begin(session: Session, job_id: uuid.UUID, attempt: int, worker: str) -> None:
    """A worker took the job."""
    session.execute(sa.insert(Attempt).values(job_id=job_id, attempt=attempt, worker=worker))


def end(session: Session, job_id: uuid.UUID, attempt: int, outcome: str, log: str | None = None) -> float | None:
    """The try is over; `log` None leaves what is there. How many seconds it lasted, None when it was over before."""
    update = sa.update(Attempt).where(Attempt.job_id == job_id, Attempt.attempt == attempt, Attempt.ended_at.is_(None))
    values = {"ended_at": clock(), "outcome": outcome} | ({} if log is None else {"log": log})
    update = update.values(values).execution_options(synchronize_session=False)
    return session.scalar(update.returning(Attempt.ended_at - Attempt.started_at))


def takes(session: Session, job_id: uuid.UUID, attempt: int, batch: int) -> bool:
    """Whether a batch of this number is new to the attempt; it counts as written from now on."""
    update = sa.update(Attempt).where(Attempt.job_id == job_id, Attempt.attempt == attempt, Attempt.batches < batch)
    update = update.values(batches=batch).execution_options(synchronize_session=False)
    return session.scalar(update.returning(Attempt.batches)) is not None


def of(session: Session, job_id: uuid.UUID) -> Sequence[Attempt]:
    """All tries at a job, in order."""
    return session.scalars(sa.select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.attempt)).all()
