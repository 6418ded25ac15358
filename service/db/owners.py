"""Owners and their keys."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.engine import clock
from service.db.insert import unless_present
from service.db.models import ApiKey, Owner


def by_key(session: Session, digest: str) -> ApiKey | None:
    """The key with this SHA-256 unless it was revoked."""
    return session.scalar(sa.select(ApiKey).where(ApiKey.digest == digest, ApiKey.revoked_at.is_(None)))


def named(session: Session, name: str) -> uuid.UUID:
    """The id of the owner with this name, who is made when missing; safe against two at once."""
    unless_present(session, Owner, name=name)
    return session.scalars(sa.select(Owner.id).where(Owner.name == name)).one()


def lock(session: Session, owner_id: uuid.UUID) -> None:
    """Keep other transactions that lock this owner out until this one ends."""
    session.execute(sa.select(Owner.id).where(Owner.id == owner_id).with_for_update(key_share=True))


def replace_key(session: Session, owner_id: uuid.UUID, digest: str | None, scopes: Sequence[str], label: str) -> None:
    """Let the owner's key of this label be the one with this digest, and no other; None: there is none any more."""
    others = sa.update(ApiKey).where(ApiKey.owner_id == owner_id, ApiKey.label == label, ApiKey.revoked_at.is_(None))
    if digest is not None:
        others = others.where(ApiKey.digest != digest)
    session.execute(others.values(revoked_at=clock()).execution_options(synchronize_session=False))
    if digest is not None:
        add_key(session, owner_id, digest, scopes, label)
        again = sa.update(ApiKey).where(
            ApiKey.digest == digest, ApiKey.owner_id == owner_id, ApiKey.revoked_at.is_not(None)
        )
        session.execute(again.values(revoked_at=None, label=label).execution_options(synchronize_session=False))


def add_key(session: Session, owner_id: uuid.UUID, digest: str, scopes: Sequence[str], label: str) -> None:
    """Insert the key unless this digest is there already."""
    unless_present(session, ApiKey, owner_id=owner_id, digest=digest, scopes=list(scopes), label=label)
