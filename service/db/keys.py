"""Rows of API keys. Every function works inside the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.engine import clock
from service.db.insert import unless_present
from service.db.models import ApiKey, Owner


@dataclass(frozen=True)
class Known:
    """A key and its owner, at the time `now` (seconds since 1970) of the database."""

    key: ApiKey
    owner: Owner
    now: float


def by_digest(session: Session, digest: str) -> Known | None:
    """The key with this SHA-256, whether it is valid or not."""
    query = sa.select(ApiKey, Owner, clock()).join(Owner, Owner.id == ApiKey.owner_id).where(ApiKey.digest == digest)
    row = session.execute(query).first()
    return None if row is None else Known(row[0], row[1], row[2])


def of_owner(session: Session, owner_id: uuid.UUID, key_id: uuid.UUID) -> ApiKey | None:
    """The owner's key, or None; it stays as it is until the transaction ends."""
    return session.scalar(sa.select(ApiKey).where(ApiKey.id == key_id, ApiKey.owner_id == owner_id).with_for_update())


def by_id(session: Session, key_id: uuid.UUID) -> ApiKey | None:
    """The key of any owner, or None."""
    return session.get(ApiKey, key_id)


def is_valid(session: Session, key_id: uuid.UUID) -> bool:
    """Whether the key is let in at this moment, and its owner too."""
    standing = (ApiKey.revoked_at.is_(None), Owner.deleted_at.is_(None), Owner.suspended_at.is_(None))
    query = sa.select(ApiKey.id).join(Owner, Owner.id == ApiKey.owner_id).where(ApiKey.id == key_id, *standing)
    return session.scalar(query.where(_lasting())) is not None


def page(session: Session, owner_id: uuid.UUID, *, before: uuid.UUID | None, limit: int) -> Sequence[ApiKey]:
    """The owner's keys, newest first, older than `before`."""
    query = sa.select(ApiKey).where(ApiKey.owner_id == owner_id)
    if before is not None:
        query = query.where(ApiKey.id < before)
    return session.scalars(query.order_by(ApiKey.id.desc()).limit(limit)).all()


def add(session: Session, owner_id: uuid.UUID, digest: str, scopes: Sequence[str], label: str) -> None:
    """Insert the key unless this digest is there already."""
    unless_present(session, ApiKey, owner_id=owner_id, digest=digest, scopes=list(scopes), label=label)


def replace(session: Session, owner_id: uuid.UUID, digest: str | None, scopes: Sequence[str], label: str) -> None:
    """Let the owner's key of this label be the one with this digest, and no other; None: there is none any more."""
    others = sa.update(ApiKey).where(ApiKey.owner_id == owner_id, ApiKey.label == label, ApiKey.revoked_at.is_(None))
    if digest is not None:
        others = others.where(ApiKey.digest != digest)
    session.execute(others.values(revoked_at=clock()).execution_options(synchronize_session=False))
    if digest is not None:
        add(session, owner_id, digest, scopes, label)
        again = sa.update(ApiKey).where(
            ApiKey.digest == digest, ApiKey.owner_id == owner_id, ApiKey.revoked_at.is_not(None)
        )
        session.execute(again.values(revoked_at=None, label=label).execution_options(synchronize_session=False))


def make(
    session: Session,
    owner_id: uuid.UUID,
    digest: str,
    scopes: Sequence[str],
    label: str,
    expires_at: float | None,
    maker: uuid.UUID | None = None,
) -> ApiKey:
    """Insert a key whose digest is new."""
    given = {"scopes": list(scopes), "label": label, "expires_at": expires_at, "made_by": maker}
    key = ApiKey(owner_id=owner_id, digest=digest, **given)
    session.add(key)
    session.flush()
    session.refresh(key)
    return key


def valid(session: Session, owner_id: uuid.UUID) -> int:
    """How many keys of an owner are let in."""
    mine = (ApiKey.owner_id == owner_id, ApiKey.revoked_at.is_(None), _lasting())
    return session.scalar(sa.select(sa.func.count()).select_from(ApiKey).where(*mine)) or 0


def unused(session: Session, owner_id: uuid.UUID, maker: uuid.UUID, label: str) -> ApiKey | None:
    """A key of this label that the owner's key `maker` made, and that was given no scopes and not revoked; locked."""
    query = sa.select(ApiKey).where(ApiKey.owner_id == owner_id, ApiKey.made_by == maker, ApiKey.label == label)
    rows = session.scalars(query.where(ApiKey.revoked_at.is_(None)).with_for_update()).all()
    return next((row for row in rows if not row.scopes), None)


def made_by(session: Session, owner_id: uuid.UUID, key_id: uuid.UUID) -> Sequence[ApiKey]:
    """The owner's keys that this one made, that these made, and so on, revoked ones included."""
    found: list[ApiKey] = []
    makers = [key_id]
    while makers:
        query = sa.select(ApiKey).where(ApiKey.owner_id == owner_id, ApiKey.made_by.in_(makers)).with_for_update()
        rows = session.scalars(query.order_by(ApiKey.id)).all()
        found += rows
        makers = [row.id for row in rows]
    return found


def pass_on(session: Session, old: uuid.UUID, new: uuid.UUID) -> None:
    """What one key made counts as made by another from now on."""
    update = sa.update(ApiKey).where(ApiKey.made_by == old, ApiKey.id != new).values(made_by=new)
    session.execute(update.execution_options(synchronize_session=False))


def used(session: Session, ages_s: Mapping[uuid.UUID, float]) -> None:
    """Note when keys were last used: so many seconds ago, by key.

    In one order for all: of two processes that note the same keys, one waits for the other, never both.
    """
    for key_id in sorted(ages_s):
        at = clock() - ages_s[key_id]
        update = sa.update(ApiKey).where(ApiKey.id == key_id)
        update = update.where(sa.or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < at)).values(last_used_at=at)
        session.execute(update.execution_options(synchronize_session=False))


def _lasting() -> sa.ColumnElement[bool]:
    return sa.or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > clock())
