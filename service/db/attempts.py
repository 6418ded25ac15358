"""Tries of workers at jobs, and what they printed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.engine import clock
from service.db.models import Attempt

MAX_UNREPORTED_S = 300.0
"""Seconds that count, at most, between two reports of a try: a third of the longest lease that can be set. More is a
clock that was set, or a worker that is gone."""


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
    """The try is over; `log` None leaves what is there. None when it was over before.

    It ends now, or MAX_UNREPORTED_S after its last tally if that is earlier. The caller holds the job's row.
    """
    if (span := _untallied(session, job_id, attempt)) is None:
        return None
    ended = span.since + span.charged
    values = {"ended_at": ended, "outcome": outcome} | ({} if log is None else {"log": log})
    _update(session, job_id, attempt, values)
    return Ended(ended - span.began, span.since, ended)


def untallied(session: Session, job_id: uuid.UUID, attempt: int, at_least_s: float) -> tuple[float, float] | None:
    """From when to when a try that goes on is not in its owner's tally yet; from now on it is.

    None when that is less than `at_least_s`. The caller holds the job's row: nobody else asks at the same time. Where
    the clock was set meanwhile, the try began by the new clock when it began by the old one, so that its length holds.
    """
    span = _untallied(session, job_id, attempt)
    if span is None or 0 <= span.passed < at_least_s:
        return None
    moved = span.passed - span.charged
    _update(session, job_id, attempt, {"tallied_until": span.now, "started_at": span.began + moved})
    return span.since + moved, span.now


@dataclass(frozen=True)
class _Untallied:
    """Of a try that goes on: when it began, from when on it is not tallied, and what the database's clock shows."""

    began: float
    since: float
    now: float

    @property
    def passed(self) -> float:
        """Seconds since then by the clock, which may have been set."""
        return self.now - self.since

    @property
    def charged(self) -> float:
        """What of them counts."""
        return min(max(self.passed, 0.0), MAX_UNREPORTED_S)


def _untallied(session: Session, job_id: uuid.UUID, attempt: int) -> _Untallied | None:
    since = sa.func.coalesce(Attempt.tallied_until, Attempt.started_at)
    mine = (Attempt.job_id == job_id, Attempt.attempt == attempt, Attempt.ended_at.is_(None))
    row = session.execute(sa.select(Attempt.started_at, since, clock()).where(*mine)).first()
    return None if row is None else _Untallied(*row)


def _update(session: Session, job_id: uuid.UUID, attempt: int, values: dict[str, object]) -> None:
    update = sa.update(Attempt).where(Attempt.job_id == job_id, Attempt.attempt == attempt).values(values)
    session.execute(update.execution_options(synchronize_session=False))


def takes(session: Session, job_id: uuid.UUID, attempt: int, batch: int) -> bool:
    """Whether a batch of this number is new to the attempt; it counts as written from now on."""
    update = sa.update(Attempt).where(Attempt.job_id == job_id, Attempt.attempt == attempt, Attempt.batches < batch)
    update = update.values(batches=batch).execution_options(synchronize_session=False)
    return session.scalar(update.returning(Attempt.batches)) is not None


def of(session: Session, job_id: uuid.UUID) -> Sequence[Attempt]:
    """All tries at a job, in order."""
    return session.scalars(sa.select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.attempt)).all()
