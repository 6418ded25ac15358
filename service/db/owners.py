"""Owners: who they are, whether they are let in, what the operator granted them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.engine import clock
from service.db.insert import unless_present
from service.db.models import Owner


def named(session: Session, name: str) -> uuid.UUID:
    """The id of the owner with this name, who is made when missing; safe against two at once."""
    unless_present(session, Owner, name=name)
    return session.scalars(sa.select(Owner.id).where(Owner.name == name)).one()


def make(session: Session, name: str) -> Owner | None:
    """A new owner; None when there is one of this name."""
    return by_name(session, name) if unless_present(session, Owner, name=name) else None


def by_name(session: Session, name: str) -> Owner | None:
    """The owner with this name."""
    return session.scalar(sa.select(Owner).where(Owner.name == name))


def by_id(session: Session, owner_id: uuid.UUID) -> Owner | None:
    """The owner."""
    return session.get(Owner, owner_id)


def names(session: Session, owner_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
    """The names of these owners."""
    rows = session.execute(sa.select(Owner.id, Owner.name).where(Owner.id.in_(owner_ids)))
    return {row.id: row.name for row in rows}


def page(session: Session, *, after: str | None, limit: int) -> Sequence[Owner]:
    """Owners by name, whose names follow `after`."""
    query = sa.select(Owner)
    if after is not None:
        query = query.where(Owner.name > after)
    return session.scalars(query.order_by(Owner.name).limit(limit)).all()


def lock(session: Session, owner_id: uuid.UUID) -> Owner | None:
    """Keep other transactions that lock this owner out until this one ends; the owner as it is now, None: gone."""
    query = sa.select(Owner).where(Owner.id == owner_id).with_for_update(key_share=True)
    return session.scalar(query.execution_options(populate_existing=True))


def one_claim_at_a_time(session: Session, owner_id: uuid.UUID) -> None:
    """Keep other claims of this owner's jobs out until the transaction ends.

    No row is locked for it: a claim holds a job's row already, and others lock the owner before the job. On SQLite
    writes are one at a time anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        key = int.from_bytes(owner_id.bytes[8:], "big", signed=True)
        session.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))


def change(session: Session, owner_id: uuid.UUID, values: Mapping[str, Any]) -> None:
    """Set columns."""
    if values:
        update = sa.update(Owner).where(Owner.id == owner_id).values(dict(values))
        session.execute(update.execution_options(synchronize_session=False))


def suspend(session: Session, owner_id: uuid.UUID, suspended: bool) -> None:
    """Bar the owner, or let it in again; the time of a suspension that holds stays."""
    since = sa.func.coalesce(Owner.suspended_at, clock()) if suspended else sa.null()
    change(session, owner_id, {"suspended_at": since})


def doom(session: Session, owner_id: uuid.UUID) -> None:
    """Note that the owner is to be deleted; the time of the first request stays."""
    change(session, owner_id, {"deleted_at": sa.func.coalesce(Owner.deleted_at, clock())})


def doomed(session: Session) -> Sequence[uuid.UUID]:
    """Who is to be deleted, longest ago first."""
    return session.scalars(sa.select(Owner.id).where(Owner.deleted_at.is_not(None)).order_by(Owner.deleted_at)).all()
