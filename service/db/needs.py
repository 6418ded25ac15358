"""Which artifacts a benchmark or an inference runs, and which of them are still to be made."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.models import Artifact, Job, JobState, Need


def add(session: Session, job_id: uuid.UUID, artifact_ids: Sequence[uuid.UUID]) -> None:
    """Insert, in order."""
    rows = [{"job_id": job_id, "position": at, "artifact_id": id} for at, id in enumerate(artifact_ids)]
    session.execute(sa.insert(Need), rows)


def of(session: Session, job_id: uuid.UUID) -> Sequence[uuid.UUID]:
    """The artifacts that a job needs, in order."""
    query = sa.select(Need.artifact_id).where(Need.job_id == job_id)
    return session.scalars(query.order_by(Need.position)).all()


def of_all(session: Session, job_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[uuid.UUID]]:
    """The artifacts that each of these jobs needs, in order, by job."""
    query = sa.select(Need.job_id, Need.artifact_id).where(Need.job_id.in_(job_ids))
    found: dict[uuid.UUID, list[uuid.UUID]] = {}
    for job_id, artifact_id in session.execute(query.order_by(Need.job_id, Need.position)):
        found.setdefault(job_id, []).append(artifact_id)
    return found


def artifacts(session: Session, job_id: uuid.UUID) -> Sequence[Artifact]:
    """The artifacts that a job needs and that are made, in order."""
    query = sa.select(Artifact).join(Need, Need.artifact_id == Artifact.id).where(Need.job_id == job_id)
    return session.scalars(query.order_by(Need.position)).all()


def waiting_for(session: Session, artifact_id: uuid.UUID) -> Sequence[uuid.UUID]:
    """The queued jobs that need this artifact."""
    query = sa.select(Job.id).join(Need, Need.job_id == Job.id).where(Need.artifact_id == artifact_id)
    return session.scalars(query.where(Job.state == JobState.QUEUED).order_by(Job.id)).unique().all()


def unblock(session: Session, artifact_id: uuid.UUID) -> None:
    """This artifact is made: the jobs that wait for it wait for one fewer, and are announced anew."""
    waiting = sa.select(Need.job_id).where(Need.artifact_id == artifact_id)
    update = sa.update(Job).where(Job.id.in_(waiting), Job.state == JobState.QUEUED, Job.blocked_by > 0)
    update = update.values(blocked_by=Job.blocked_by - 1, published_at=None)
    session.execute(update.execution_options(synchronize_session=False))
