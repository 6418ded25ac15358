"""Batches: jobs that one request asked for. A batch is its jobs, and gone with the last of them."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.models import Benchmark, Job, JobState, Need


@dataclass(frozen=True)
class Batch:
    """How many of its jobs are in each state, the model of all, and when the first was made."""

    id: uuid.UUID
    model: str
    created_at: float
    states: dict[JobState, int]


def page(session: Session, owner_id: uuid.UUID, *, before: uuid.UUID | None, limit: int) -> Sequence[Batch]:
    """The owner's batches, newest first, older than `before`."""
    query = sa.select(Job.batch_id).where(Job.owner_id == owner_id, Job.batch_id.is_not(None)).distinct()
    if before is not None:
        query = query.where(Job.batch_id < before)
    ids = [id for id in session.scalars(query.order_by(Job.batch_id.desc()).limit(limit)) if id is not None]
    return _of_ids(session, owner_id, ids)


def of_owner(session: Session, owner_id: uuid.UUID, batch_id: uuid.UUID) -> Batch | None:
    """The owner's batch, or None."""
    return next(iter(_of_ids(session, owner_id, [batch_id])), None)


def jobs_of(session: Session, owner_id: uuid.UUID, batch_id: uuid.UUID, *, lock: bool = False) -> Sequence[Job]:
    """The jobs of a batch, in the order of the request; with `lock` they stay so until the transaction ends."""
    query = sa.select(Job).where(Job.owner_id == owner_id, Job.batch_id == batch_id).order_by(Job.id)
    return session.scalars(query.with_for_update() if lock else query).all()


def benchmarks_of(
    session: Session, owner_id: uuid.UUID, artifact_ids: Collection[uuid.UUID], limit: int
) -> Sequence[Benchmark]:
    """The newest benchmarks of the owner that ran any of these artifacts."""
    ran = sa.select(Need.job_id).where(Need.artifact_id.in_(artifact_ids))
    query = sa.select(Benchmark).join(Job, Job.id == Benchmark.job_id).where(Job.owner_id == owner_id, Job.id.in_(ran))
    return session.scalars(query.order_by(Benchmark.job_id.desc()).limit(limit)).all()


def _of_ids(session: Session, owner_id: uuid.UUID, ids: Sequence[uuid.UUID]) -> list[Batch]:
    query = sa.select(
        Job.batch_id, Job.state, sa.func.count(), sa.func.min(Job.created_at), sa.func.min(Job.model_digest)
    ).where(Job.owner_id == owner_id, Job.batch_id.in_(ids))
    found: dict[uuid.UUID, Batch] = {}
    for id, state, count, created, model in session.execute(query.group_by(Job.batch_id, Job.state)):
        assert id is not None, "it is among those asked for"
        assert model is not None, "batches are of compilations"
        known = found.setdefault(id, Batch(id, model, created, {}))
        known.states[JobState(state)] = count
        found[id] = Batch(id, model, min(created, known.created_at), known.states)
    return [found[id] for id in ids if id in found]
