"""The event log of jobs."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.models import Event, Job


def append(session: Session, job_id: uuid.UUID, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> int:
    """Add (kind, data) lines with the next numbers; returns the last number.

    The numbers come from a counter in the job's row, whose lock is held until the commit: numbers have no
    gaps, and a reader who sees number n has seen all before it.
    """
    count = sa.update(Job).where(Job.id == job_id).values(event_seq=Job.event_seq + len(entries))
    last = session.scalars(count.returning(Job.event_seq).execution_options(synchronize_session=False)).one()
    first = last - len(entries) + 1
    rows = [
        {"job_id": job_id, "seq": first + index, "kind": kind, "data": dict(data)}
        for index, (kind, data) in enumerate(entries)
    ]
    if rows:
        session.execute(sa.insert(Event), rows)
    return last


def of_kind(session: Session, job_id: uuid.UUID, kind: str) -> Sequence[Event]:
    """All lines of one kind, in order."""
    query = sa.select(Event).where(Event.job_id == job_id, Event.kind == kind)
    return session.scalars(query.order_by(Event.seq)).all()


def messages(session: Session, job_ids: Collection[uuid.UUID], kind: str) -> dict[uuid.UUID, set[str]]:
    """The `message` of each line of one kind, by job; jobs without one are left out."""
    found: dict[uuid.UUID, set[str]] = {}
    for job_id, data in session.execute(
        sa.select(Event.job_id, Event.data).where(Event.job_id.in_(job_ids), Event.kind == kind)
    ):
        found.setdefault(job_id, set()).add(str(data.get("message", "")))
    return found


def after(session: Session, job_id: uuid.UUID, seq: int, limit: int) -> Sequence[Event]:
    """At most `limit` lines numbered above `seq`, in order."""
    query = sa.select(Event).where(Event.job_id == job_id, Event.seq > seq)
    return session.scalars(query.order_by(Event.seq).limit(limit)).all()
