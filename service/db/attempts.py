"""Tries of workers at jobs, and what they printed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.engine import clock
from service.db.models import Attempt


def begin(session: Session, job_id: uuid.UUID, attempt: int, worker: str) -> None:
    """A worker took the job."""
    session.execute(sa.insert(Attempt).values(job_id=job_id, attempt=attempt, worker=worker))


@dataclass(frozen=True)
class Ended:
    """How long a try lasted, in seconds, and from when to when (since 1970) it is not in its owner's tally yet."""

    held_s: float
    since: float
    until: float


def end(session: Session, job_id: uuid.UUID, attempt: int, outcome: str, log: str | None = None) -> Ended | None:
    """The try is over; `log` None leaves what is there. None when it was over before."""
    update = sa.update(Attempt).where(Attempt.job_id == job_id, Attempt.attempt == attempt, Attempt.ended_at.is_(None))
    values = {"ended_at": clock(), "outcome": outcome} | ({} if log is None else {"log": log})
    update = update.values(values).execution_options(synchronize_session=False)
    since = sa.func.coalesce(Attempt.tallied_until, Attempt.started_at)
    row = session.execute(update.returning(Attempt.started_at, since, Attempt.ended_at)).first()
    if row is None:
        return None
    began, since_s, ended = row
    assert ended is not None, "it was set just now"
    return Ended(ended - began, since_s, ended)


def untallied(session: Session, job_id: uuid.UUID, attempt: int, at_least_s: float) -> tuple[float, float] | None:
    """From when to when a try that goes on is not in its owner's tally yet; from now on it is.

    None when that is less than `at_least_s`. The caller holds the job's row: nobody else asks at the same time.
    """
    since = sa.func.coalesce(Attempt.tallied_until, Attempt.started_at)
    mine = (Attempt.job_id == job_id, Attempt.attempt == attempt, Attempt.ended_at.is_(None))
    row = session.execute(sa.select(since, clock()).where(*mine)).first()
    if row is None or row[1] - row[0] < at_least_s:
        return None
    update = sa.update(Attempt).where(*mine).values(tallied_until=row[1])
    session.execute(update.execution_options(synchronize_session=False))
    return row[0], row[1]


def takes(session: Session, job_id: uuid.UUID, attempt: int, batch: int) -> bool:
    """Whether a batch of this number is new to the attempt; it counts as written from now on."""
    update = sa.update(Attempt).where(Attempt.job_id == job_id, Attempt.attempt == attempt, Attempt.batches < batch)
    update = update.values(batches=batch).execution_options(synchronize_session=False)
    return session.scalar(update.returning(Attempt.batches)) is not None


def of(session: Session, job_id: uuid.UUID) -> Sequence[Attempt]:
    """All tries at a job, in order."""
    return session.scalars(sa.select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.attempt)).all()
