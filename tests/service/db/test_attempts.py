"""How long a try lasted, and what its owner is charged for it, whatever the clock does meanwhile."""

from __future__ import annotations

import uuid

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db import attempts
from service.db.attempts import MAX_UNREPORTED_S
from service.db.engine import Database
from service.db.models import Attempt, Job, JobState, new_id
from tests.service.db.test_records import fill

HOUR = 3600.0
SOON = 60.0
"""Seconds that a test may take between two statements."""


def begun(db: Database) -> uuid.UUID:
    """A job with a try that has just begun."""
    owner, job = fill(db, 1), new_id()
    with db.write() as session:
        plain = {"owner_id": owner, "options": {}, "body_hash": "", "queue": "cpu", "state": JobState.RUNNING}
        session.execute(sa.insert(Job).values(id=job, model_digest=f"{0:064x}", **plain))
        attempts.begin(session, job, 1, "w")
    return job


def set_clock(session: Session, job: uuid.UUID, by_s: float) -> None:
    """As if the clock had been set: what was written before is older by so much."""
    values = {"started_at": Attempt.started_at - by_s, "tallied_until": Attempt.tallied_until - by_s}
    session.execute(sa.update(Attempt).where(Attempt.job_id == job).values(values))
    session.expire_all()


@pytest.mark.parametrize("by_s", [HOUR, -HOUR])
def test_a_clock_that_is_set_while_a_try_goes_on_charges_no_more_than_one_report_late(
    db: Database, by_s: float
) -> None:
    job, charged = begun(db), 0.0
    with db.write() as session:
        for _ in range(3):
            set_clock(session, job, by_s)
            since, until = attempts.untallied(session, job, 1, 5.0) or (0.0, 0.0)
            assert 0 <= until - since <= (MAX_UNREPORTED_S if by_s > 0 else 0.0)
            charged += until - since
        ended = attempts.end(session, job, 1, "SUCCEEDED")
        assert ended is not None
        charged += ended.until - ended.since
        assert charged == pytest.approx(ended.held_s, abs=1e-3)
        assert 0 <= ended.held_s <= 3 * MAX_UNREPORTED_S + SOON


@pytest.mark.parametrize(("by_s", "most"), [(HOUR, MAX_UNREPORTED_S), (-HOUR, 0.0), (100.0, 100.0 + SOON)])
def test_a_try_ends_no_later_than_its_last_report_may_be_old_and_never_before_it_began(
    db: Database, by_s: float, most: float
) -> None:
    job = begun(db)
    with db.write() as session:
        set_clock(session, job, by_s)
        ended = attempts.end(session, job, 1, "lost")
        assert ended is not None
        assert min(max(by_s, 0.0), most) <= ended.held_s <= most
        assert attempts.end(session, job, 1, "lost") is None
