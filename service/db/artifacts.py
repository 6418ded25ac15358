"""Rows of finished artifacts and of uploaded models."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db import kept, labels
from service.db.engine import clock
from service.db.insert import unless_present
from service.db.models import Artifact, BlobFault, Job, Model, PartialArtifact


def of_owner(session: Session, owner_id: uuid.UUID, artifact_id: uuid.UUID) -> Artifact | None:
    """The owner's artifact, or None."""
    return session.scalar(sa.select(Artifact).where(Artifact.id == artifact_id, Artifact.owner_id == owner_id))


def add(session: Session, artifact: Artifact) -> None:
    """Insert; its bytes were written a moment ago."""
    session.add(artifact)
    session.flush()
    kept.name(session, {artifact.blob_key: artifact.bytes})


def partial(session: Session, job_id: uuid.UUID) -> PartialArtifact | None:
    """What a compilation made before measuring."""
    return session.get(PartialArtifact, job_id)


def keep_partial(session: Session, made: PartialArtifact) -> None:
    """Insert it in place of an earlier attempt's; its bytes were written a moment ago."""
    drop_partial(session, made.job_id)
    session.add(made)
    session.flush()
    kept.name(session, {made.blob_key: made.bytes})


def drop_partial(session: Session, job_id: uuid.UUID) -> None:
    """Let go of it: there is the artifact itself."""
    gone = sa.delete(PartialArtifact).where(PartialArtifact.job_id == job_id)
    session.execute(gone.execution_options(synchronize_session=False))


def model(session: Session, owner_id: uuid.UUID, digest: str) -> Model | None:
    """The owner's model with this SHA-256."""
    return session.get(Model, (owner_id, digest))


def keep_model(
    session: Session, owner_id: uuid.UUID, digest: str, size: int, blob_key: str, files: list[dict[str, Any]]
) -> None:
    """Insert the model unless the owner has it; safe against the same upload at the same time.

    Its bytes were written a moment ago.
    """
    unless_present(session, Model, owner_id=owner_id, digest=digest, bytes=size, blob_key=blob_key, files=files)
    of_data = {str(one["key"]): int(one["bytes"]) for one in files}
    kept.name(session, {**of_data, blob_key: size - sum(int(one["bytes"]) for one in files)})
    use_model(session, owner_id, digest)


def use_model(session: Session, owner_id: uuid.UUID, digest: str) -> None:
    """Note that the owner uses the model now."""
    update = sa.update(Model).where(Model.owner_id == owner_id, Model.digest == digest).values(used_at=clock())
    session.execute(update.execution_options(synchronize_session=False))


def model_faults(session: Session, model: Model) -> Collection[BlobFault]:
    """What is wrong with the bytes of a model's files."""
    return kept.faults(session, [model.blob_key, *(str(one["key"]) for one in model.files)]).values()


def faulty_models_bytes(session: Session, owner_id: uuid.UUID) -> int:
    """Bytes of the owner's models of which a file is known to be lost or damaged."""
    if not kept.faulty(session):
        return 0
    query = sa.select(Model.bytes, Model.blob_key, Model.files).where(Model.owner_id == owner_id)
    keys_of = [(size, {key, *(str(one["key"]) for one in files)}) for size, key, files in session.execute(query)]
    all_keys = sorted(set().union(*(keys for _, keys in keys_of)))
    bad = set().union(
        *(kept.faults(session, all_keys[at : at + kept.BATCH]) for at in range(0, len(all_keys), kept.BATCH))
    )
    return sum(size for size, keys in keys_of if keys & bad)


def models_page(
    session: Session,
    owner_id: uuid.UUID,
    tags: Collection[str],
    text: str,
    *,
    before: tuple[float, str] | None,
    limit: int,
) -> Sequence[Model]:
    """The owner's models with all these tags and this text in name or note, newest first.

    `before` is time and digest of the last one seen.
    """
    query = sa.select(Model).where(Model.owner_id == owner_id, *labels.tagged(session, Model, tags))
    if text:
        query = query.where(labels.saying(Model, text))
    if before is not None:
        created_at, digest = before
        same = sa.and_(Model.created_at == created_at, Model.digest < digest)
        query = query.where(sa.or_(Model.created_at < created_at, same))
    return session.scalars(query.order_by(Model.created_at.desc(), Model.digest.desc()).limit(limit)).all()


def onnx_bytes(model: Model) -> int:
    """The length of a model's ONNX file."""
    return model.bytes - sum(int(one["bytes"]) for one in model.files)


def jobs_of_model(session: Session, owner_id: uuid.UUID, digest: str) -> int:
    """How many compilations of this model there are."""
    query = sa.select(sa.func.count()).where(Job.owner_id == owner_id, Job.model_digest == digest)
    return session.scalar(query) or 0
