"""Rows of finished artifacts and of uploaded models."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.insert import unless_present
from service.db.models import Artifact, Job, Model


def of_owner(session: Session, owner_id: uuid.UUID, artifact_id: uuid.UUID) -> Artifact | None:
    """The owner's artifact, or None."""
    return session.scalar(sa.select(Artifact).where(Artifact.id == artifact_id, Artifact.owner_id == owner_id))


def add(session: Session, artifact: Artifact) -> None:
    """Insert."""
    session.add(artifact)
    session.flush()


def model(session: Session, owner_id: uuid.UUID, digest: str) -> Model | None:
    """The owner's model with this SHA-256."""
    return session.get(Model, (owner_id, digest))


def keep_model(
    session: Session, owner_id: uuid.UUID, digest: str, size: int, blob_key: str, files: list[dict[str, Any]]
) -> None:
    """Insert the model unless the owner has it; safe against the same upload at the same time."""
    unless_present(session, Model, owner_id=owner_id, digest=digest, bytes=size, blob_key=blob_key, files=files)


def models_page(
    session: Session, owner_id: uuid.UUID, *, before: tuple[float, str] | None, limit: int
) -> Sequence[Model]:
    """The owner's models, newest first; `before` is time and digest of the last one seen."""
    query = sa.select(Model).where(Model.owner_id == owner_id)
    if before is not None:
        created_at, digest = before
        same = sa.and_(Model.created_at == created_at, Model.digest < digest)
        query = query.where(sa.or_(Model.created_at < created_at, same))
    return session.scalars(query.order_by(Model.created_at.desc(), Model.digest.desc()).limit(limit)).all()


def jobs_of_model(session: Session, owner_id: uuid.UUID, digest: str) -> int:
    """How many compilations of this model there are."""
    query = sa.select(sa.func.count()).where(Job.owner_id == owner_id, Job.model_digest == digest)
    return session.scalar(query) or 0
