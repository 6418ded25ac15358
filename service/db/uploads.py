"""Rows of models that arrive in pieces. Every function works inside the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db import kept
from service.db.engine import clock
from service.db.models import Upload


def add(session: Session, upload: Upload) -> Upload:
    """Insert."""
    session.add(upload)
    session.flush()
    session.refresh(upload)
    return upload


def of_owner(session: Session, owner_id: uuid.UUID, upload_id: uuid.UUID) -> Upload | None:
    """The owner's upload, or None."""
    return session.scalar(sa.select(Upload).where(Upload.id == upload_id, Upload.owner_id == owner_id))


def append(
    session: Session, upload_id: uuid.UUID, offset: int, parts: Sequence[dict[str, Any]], part: dict[str, Any]
) -> bool:
    """Add a piece that begins at `offset`; `parts` are those before it.

    The guarded UPDATE decides between two who append at once: False, and nothing written, for the one who comes later.
    """
    update = sa.update(Upload).where(Upload.id == upload_id, Upload.received == offset)
    update = update.values(received=offset + part["bytes"], parts=[*parts, part], updated_at=clock())
    made = session.scalar(update.returning(Upload.id).execution_options(synchronize_session=False))
    if made is not None:
        kept.name(session, {str(part["key"]): int(part["bytes"])})
    return made is not None


def hashed(session: Session, upload_id: uuid.UUID, digest: str) -> None:
    """Note the SHA-256 of a whole upload."""
    update = sa.update(Upload).where(Upload.id == upload_id, Upload.received == Upload.bytes)
    session.execute(update.values(found_sha256=digest), execution_options={"synchronize_session": False})


def become(session: Session, upload_id: uuid.UUID, digest: str) -> bool:
    """Note which model a whole upload became, and let go of its pieces; False when that was done, or it is gone."""
    update = sa.update(Upload).where(
        Upload.id == upload_id, Upload.received == Upload.bytes, Upload.model_digest.is_(None)
    )
    update = update.values(model_digest=digest, parts=[], updated_at=clock()).returning(Upload.id)
    return session.scalar(update.execution_options(synchronize_session=False)) is not None


def remove(session: Session, owner_id: uuid.UUID, upload_id: uuid.UUID) -> bool:
    """Delete; whether it was there."""
    gone = sa.delete(Upload).where(Upload.id == upload_id, Upload.owner_id == owner_id).returning(Upload.id)
    return session.scalar(gone.execution_options(synchronize_session=False)) is not None
