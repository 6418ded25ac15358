"""Rows of finished artifacts and of uploaded models."""

from __future__ import annotations

import uuid

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.insert import unless_present
from service.db.models import Artifact, Model


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


def keep_model(session: Session, owner_id: uuid.UUID, digest: str, size: int, blob_key: str) -> None:
    """Insert the model unless the owner has it; safe against the same upload at the same time."""
    unless_present(session, Model, owner_id=owner_id, digest=digest, bytes=size, blob_key=blob_key)
