"""The texts of workloads that tuning records refer to."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.insert import unless_present
from service.db.models import Workload


def keep_all(session: Session, owner_id: uuid.UUID, texts: Mapping[str, str]) -> None:
    """Insert the texts, by workload, that the owner does not have.

    In one order for all: of two transactions that keep the same workloads, one waits for the other, never both.
    """
    for workload in sorted(texts):
        unless_present(session, Workload, owner_id=owner_id, workload=workload, text=texts[workload])


def of_owner(session: Session, owner_id: uuid.UUID, workload: str) -> Workload | None:
    """The owner's workload with this key."""
    return session.get(Workload, (owner_id, workload))


def page(session: Session, owner_id: uuid.UUID, after: str, limit: int) -> Sequence[Workload]:
    """The owner's workloads whose keys follow `after`, by key."""
    query = sa.select(Workload).where(Workload.owner_id == owner_id, Workload.workload > after)
    return session.scalars(query.order_by(Workload.workload).limit(limit)).all()


def present(session: Session, owner_id: uuid.UUID, keys: Sequence[str]) -> set[str]:
    """Those of the keys that the owner has a text for."""
    query = sa.select(Workload.workload).where(Workload.owner_id == owner_id, Workload.workload.in_(keys))
    return set(session.scalars(query))
