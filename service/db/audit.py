"""Rows of the audit log. Every function works inside the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.engine import clock
from service.db.models import AuditEntry

BATCH = 5000
"""Rows that are removed in one statement."""


@dataclass(frozen=True)
class Wanted:
    """Which entries; None and the empty text leave a condition out.

    verb, outcome, object  that say just this
    key                    made with this key
    since, until           at or after, and before, in seconds since 1970
    """

    verb: str = ""
    outcome: str = ""
    object: str = ""
    key: uuid.UUID | None = None
    since: float | None = None
    until: float | None = None


def add(session: Session, entry: AuditEntry) -> None:
    """Insert."""
    session.add(entry)
    session.flush()


def page(
    session: Session, owner_id: uuid.UUID | None, wanted: Wanted, *, before: uuid.UUID | None, limit: int
) -> Sequence[AuditEntry]:
    """Entries of an owner (None: of all, and of nobody), newest first, older than `before`."""
    fixed = {"owner_id": owner_id, "key_id": wanted.key, "verb": wanted.verb or None}
    fixed |= {"outcome": wanted.outcome or None, "object": wanted.object or None}
    query = sa.select(AuditEntry)
    for column, value in fixed.items():
        if value is not None:
            query = query.where(getattr(AuditEntry, column) == value)
    if wanted.since is not None:
        query = query.where(AuditEntry.created_at >= wanted.since)
    if wanted.until is not None:
        query = query.where(AuditEntry.created_at < wanted.until)
    if before is not None:
        query = query.where(AuditEntry.id < before)
    return session.scalars(query.order_by(AuditEntry.id.desc()).limit(limit)).all()


def forget(session: Session, older_than_s: float) -> int:
    """Remove some of the entries that are older than this, at most `BATCH`; how many."""
    old = sa.select(AuditEntry.id).where(AuditEntry.created_at < clock() - older_than_s)
    old = old.order_by(AuditEntry.created_at).limit(BATCH)
    gone = sa.delete(AuditEntry).where(AuditEntry.id.in_(old)).returning(AuditEntry.id)
    return len(session.scalars(gone.execution_options(synchronize_session=False)).all())
