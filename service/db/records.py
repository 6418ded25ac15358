"""Tuning records: measurements of kernels, stages, plans and models."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.models import TuningRecord

FILTERS = ("kind", "operator", "workload", "target", "hardware", "job_id", "model_digest")
"""Columns that a query may fix to one value."""


def add(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert."""
    if rows:
        session.execute(sa.insert(TuningRecord), [dict(row) for row in rows])


def of_owner(session: Session, owner_id: uuid.UUID, record_id: uuid.UUID) -> TuningRecord | None:
    """The owner's record, or None."""
    query = sa.select(TuningRecord).where(TuningRecord.id == record_id, TuningRecord.owner_id == owner_id)
    return session.scalar(query)


def page(
    session: Session, owner_id: uuid.UUID, *, where: Mapping[str, Any], before: uuid.UUID | None, limit: int
) -> Sequence[TuningRecord]:
    """The owner's records that match `where` (keys of `FILTERS`), newest first, older than `before`."""
    query = sa.select(TuningRecord).where(TuningRecord.owner_id == owner_id)
    for column in FILTERS:
        if column in where:
            query = query.where(getattr(TuningRecord, column) == where[column])
    if before is not None:
        query = query.where(TuningRecord.id < before)
    return session.scalars(query.order_by(TuningRecord.id.desc()).limit(limit)).all()


def measured(session: Session, owner_id: uuid.UUID, target: str, hardware: str, limit: int) -> Sequence[TuningRecord]:
    """The owner's newest `limit` records for one target on one hardware, newest first."""
    query = sa.select(TuningRecord).where(
        TuningRecord.owner_id == owner_id, TuningRecord.target == target, TuningRecord.hardware == hardware
    )
    return session.scalars(query.order_by(TuningRecord.id.desc()).limit(limit)).all()
