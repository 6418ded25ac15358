"""Tuning records: measurements of kernels, of the machine, and of searches.

Records are ordered by age: by the time they were measured at, then by id. A `Place` in that order is where a page ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.models import TuningRecord

FILTERS = (
    "kind",
    "operator",
    "workload",
    "target",
    "hardware",
    "job_id",
    "model_digest",
    "threads",
    "imported",
)
"""Columns that a query may fix to one value."""

Place = tuple[float, uuid.UUID]
"""`created_at` and `id` of a record."""


@dataclass(frozen=True)
class Wanted:
    """Which records: `where` fixes some of `FILTERS`.

    Measured at `since` or later, and before `until` (seconds since 1970).
    """

    where: Mapping[str, Any] = field(default_factory=dict)
    since: float | None = None
    until: float | None = None


def add(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert."""
    if rows:
        session.execute(sa.insert(TuningRecord), [dict(row) for row in rows])


def of_owner(session: Session, owner_id: uuid.UUID, record_id: uuid.UUID) -> TuningRecord | None:
    """The owner's record, or None."""
    query = sa.select(TuningRecord).where(TuningRecord.id == record_id, TuningRecord.owner_id == owner_id)
    return session.scalar(query)


def page(
    session: Session, owner_id: uuid.UUID, wanted: Wanted, *, before: Place | None, limit: int
) -> Sequence[TuningRecord]:
    """The owner's records that are wanted, newest first, older than `before`."""
    return session.scalars(paged(owner_id, wanted, before=before, limit=limit)).all()


def paged(owner_id: uuid.UUID, wanted: Wanted, *, before: Place | None, limit: int) -> sa.Select[TuningRecord]:
    """The question that `page` asks."""
    query = sa.select(TuningRecord).where(TuningRecord.owner_id == owner_id)
    for column in FILTERS:
        if column in wanted.where:
            query = query.where(getattr(TuningRecord, column) == wanted.where[column])
    if wanted.since is not None:
        query = query.where(TuningRecord.created_at >= wanted.since)
    if wanted.until is not None and (before is None or wanted.until <= before[0]):
        query = query.where(TuningRecord.created_at < wanted.until)
    if before is not None:  # says more than a later `until`, and SQLite searches by one of the two only
        created_at, id = before
        last = sa.tuple_(sa.literal(created_at, sa.Double()), sa.literal(id, sa.Uuid()))
        query = query.where(sa.tuple_(TuningRecord.created_at, TuningRecord.id) < last)
    return query.order_by(TuningRecord.created_at.desc(), TuningRecord.id.desc()).limit(limit)


def measured_at(session: Session, owner_id: uuid.UUID, times: Sequence[float]) -> Sequence[TuningRecord]:
    """The owner's records that were measured at exactly these times."""
    query = sa.select(TuningRecord).where(TuningRecord.owner_id == owner_id, TuningRecord.created_at.in_(times))
    return session.scalars(query).all()


def measured(
    session: Session, owner_id: uuid.UUID, target: str, hardware: str, columns: Sequence[str], limit: int
) -> Iterator[tuple[Any, ...]]:
    """Columns of the owner's newest `limit` records for one target on one hardware, newest first.

    `variant` is JSON text.
    """
    wanted = Wanted({"target": target, "hardware": hardware})
    query = paged(owner_id, wanted, before=None, limit=limit)
    chosen = [_as_text(column) if column == "variant" else getattr(TuningRecord, column) for column in columns]
    rows = session.execute(query.with_only_columns(*chosen))
    return (tuple(row) for row in rows.yield_per(1000))


def _as_text(column: str) -> sa.ColumnElement[str]:
    return sa.cast(getattr(TuningRecord, column), sa.Text).label(column)
