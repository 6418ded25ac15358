"""How the database finds a page of jobs among many."""

from __future__ import annotations

import uuid

import sqlalchemy as sa

from service.db import jobs
from service.db.engine import Database
from service.db.jobs import Wanted
from service.db.models import Job, JobState, new_id
from tests.service.db.test_records import fill, plan, walks

QUESTIONS = (
    Wanted(),
    Wanted(states=[JobState.FAILED]),
    Wanted(kinds=["compile"]),
    Wanted(states=[JobState.QUEUED, JobState.RUNNING], kinds=["compile"]),
    Wanted(text="night"),
    Wanted(queue="cpu"),
    Wanted(since=5.0, until=9.0),
)
"""Those that the page asks, and those that no index but that of an owner's jobs serves."""


def test_a_page_of_jobs_is_read_in_the_order_of_an_index(db: Database) -> None:
    owner = fill(db, 300)
    with db.write() as session:
        plain = {"owner_id": owner, "options": {}, "body_hash": "", "queue": "cpu", "state": JobState.SUCCEEDED}
        session.execute(sa.insert(Job), [{"id": new_id(), "model_digest": f"{0:064x}", **plain} for _ in range(300)])
    with db.write() as session:
        if session.connection().dialect.name == "postgresql":  # of so few rows it would else read or sort all
            for way in ("seqscan", "sort", "incremental_sort", "bitmapscan"):
                session.execute(sa.text(f"SET LOCAL enable_{way} = off"))
            # The key has the same order, and of few rows, or few owners, costs as little: what it chose was chance.
            session.execute(sa.text("ALTER TABLE jobs DROP CONSTRAINT pk_jobs CASCADE"))
        for wanted in QUESTIONS:
            for before in (None, uuid.UUID(int=50)):
                reported = plan(session, jobs.paged(session, owner, wanted, before=before, limit=51))
                assert "ix_jobs_owner_id" in reported, (wanted, reported)
                assert walks(reported) == [], (wanted, reported)
                assert "Sort" not in reported, (wanted, reported)
        session.rollback()
