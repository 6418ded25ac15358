"""What may be removed, and what must stay because something refers to it."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from compiler.contract import LIVE, job_kinds
from service.db.engine import clock
from service.db.models import (
    Artifact,
    Delivery,
    Event,
    Inference,
    Job,
    JobState,
    Model,
    Need,
    Owner,
    PartialArtifact,
    TuningRecord,
    Upload,
    Workload,
)

ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
BATCH = 500
"""Rows whose ids are named in one statement."""
FETCH = 2000
"""Rows that are in memory at a time."""


@dataclass(frozen=True)
class Gone:
    """How much was deleted. `jobs` counts those of every kind."""

    jobs: int = 0
    artifacts: int = 0
    benchmarks: int = 0
    inferences: int = 0

    def __add__(self, other: Gone) -> Gone:
        return Gone(**{name: mine + getattr(other, name) for name, mine in vars(self).items()})


def hanging_on(session: Session, owner_id: uuid.UUID, digest: str) -> Sequence[Job]:
    """The compilations of a model and what needs their artifacts, locked, in the order of their ids."""
    compiles = sa.select(Job.id, Job.artifact_id).where(Job.owner_id == owner_id, Job.model_digest == digest).subquery()
    runs = sa.select(Need.job_id).where(Need.artifact_id.in_(sa.select(compiles.c.artifact_id)))
    query = sa.select(Job).where(
        Job.owner_id == owner_id, sa.or_(Job.id.in_(sa.select(compiles.c.id)), Job.id.in_(runs))
    )
    query = query.order_by(Job.id).with_for_update().execution_options(populate_existing=True)
    return session.scalars(query).all()


def delete_jobs(session: Session, job_ids: Sequence[uuid.UUID]) -> Gone:
    """Delete jobs with their events, attempts, artifacts, results and what webhooks were told of them.

    Tuning records stay, without their job.
    """
    gone = Gone()
    for at in range(0, len(job_ids), BATCH):
        ids = job_ids[at : at + BATCH]
        made = session.scalar(sa.select(sa.func.count()).select_from(Artifact).where(Artifact.job_id.in_(ids)))
        session.execute(sa.delete(Delivery).where(Delivery.job_id.in_(ids)), execution_options=_UNSYNCED)
        rows = session.execute(sa.delete(Job).where(Job.id.in_(ids)).returning(Job.kind), execution_options=_UNSYNCED)
        kinds = list(rows.scalars())
        benchmarks, inferences = (kinds.count(kind.name) for kind in (job_kinds.BENCHMARK, job_kinds.INFERENCE))
        gone += Gone(len(kinds), made or 0, benchmarks, inferences)
    return gone


@dataclass(frozen=True)
class Measurements:
    """How much was deleted of what jobs measured."""

    tuning_records: int = 0
    workloads: int = 0


def delete_measurements(session: Session, job: Job) -> Measurements:
    """Delete the tuning records that a job made, and the texts of workloads that no other record of its owner is of."""
    mine = TuningRecord.job_id == job.id
    keys = session.scalars(sa.select(TuningRecord.workload).where(mine).distinct()).all()
    records = _drop_records(session, mine)
    unread = sa.select(TuningRecord.id).where(
        TuningRecord.owner_id == Workload.owner_id, TuningRecord.workload == Workload.workload
    )
    left = sa.delete(Workload).where(Workload.owner_id == job.owner_id, ~unread.exists()).returning(Workload.workload)
    texts = 0
    for at in range(0, len(keys), BATCH):
        found = session.scalars(left.where(Workload.workload.in_(keys[at : at + BATCH])), execution_options=_UNSYNCED)
        texts += len(found.all())
    if not _goes_on(session, job.owner_id):  # else a text may be that of a record on its way
        during = Workload.created_at.between(job.created_at, job.finished_at)
        texts += len(session.scalars(left.where(during), execution_options=_UNSYNCED).all())
    return Measurements(records, texts)


def _goes_on(session: Session, owner_id: uuid.UUID) -> bool:
    held = sa.select(Job.id).where(Job.owner_id == owner_id, Job.state.not_in(ENDED), Job.state != JobState.QUEUED)
    return session.scalar(held.limit(1)) is not None


def heirs(session: Session, job: Job) -> Sequence[uuid.UUID]:
    """The other jobs that were answered with a job's artifact, oldest first."""
    query = sa.select(Job.id).where(Job.owner_id == job.owner_id, Job.artifact_id == job.artifact_id, Job.id != job.id)
    return session.scalars(query.order_by(Job.id)).all()


def hand_over(session: Session, job: Job, heir: uuid.UUID) -> None:
    """Let the artifact that a job made be another job's, which was answered with it."""
    update = sa.update(Artifact).where(Artifact.job_id == job.id).values(job_id=heir)
    session.execute(update.execution_options(synchronize_session=False))


def runs_ahead(session: Session, artifact_id: uuid.UUID) -> int:
    """How many benchmarks and inferences of an artifact have not ended."""
    query = sa.select(sa.func.count(sa.distinct(Job.id))).join(Need, Need.job_id == Job.id)
    return session.scalar(query.where(Need.artifact_id == artifact_id, Job.state.not_in(ENDED))) or 0


def delete_model(session: Session, owner_id: uuid.UUID, digest: str) -> None:
    """Delete a model that no job refers to, and the uploads it came by."""
    session.execute(
        sa.delete(Upload).where(Upload.owner_id == owner_id, Upload.model_digest == digest), execution_options=_UNSYNCED
    )
    session.execute(
        sa.delete(Model).where(Model.owner_id == owner_id, Model.digest == digest), execution_options=_UNSYNCED
    )


def some_jobs(session: Session, owner_id: uuid.UUID) -> Sequence[uuid.UUID]:
    """Some of the owner's jobs."""
    query = sa.select(Job.id).where(Job.owner_id == owner_id).order_by(Job.id.desc()).limit(BATCH)
    return session.scalars(query).all()


def delete_records(session: Session, owner_id: uuid.UUID) -> int:
    """Delete some of the owner's tuning records; how many."""
    some = sa.select(TuningRecord.id).where(TuningRecord.owner_id == owner_id).limit(FETCH)
    return _drop_records(session, TuningRecord.id.in_(some))


def _drop_records(session: Session, which: sa.ColumnElement[bool]) -> int:
    gone = sa.delete(TuningRecord).where(which).returning(TuningRecord.id)
    return len(session.scalars(gone, execution_options=_UNSYNCED).all())


def delete_owner(session: Session, owner_id: uuid.UUID) -> None:
    """Delete an owner who has no jobs: models, uploads, keys and all else that is its own go with the row."""
    session.execute(sa.delete(Owner).where(Owner.id == owner_id), execution_options=_UNSYNCED)


def records_of(session: Session, owner_id: uuid.UUID, digest: str) -> int:
    """How many tuning records a model's compilations left."""
    query = sa.select(sa.func.count()).select_from(TuningRecord)
    return session.scalar(query.where(TuningRecord.owner_id == owner_id, TuningRecord.model_digest == digest)) or 0


def owners_of_old_jobs(session: Session, older_than_s: float) -> Sequence[uuid.UUID]:
    """Whose jobs ended longer ago than this."""
    query = sa.select(Job.owner_id).where(Job.state.in_(ENDED), Job.finished_at < clock() - older_than_s)
    return session.scalars(query.distinct()).all()


def old_jobs(session: Session, owner_id: uuid.UUID, older_than_s: float) -> Sequence[uuid.UUID]:
    """Some of the owner's jobs that ended longer ago than this.

    Those whose artifact a younger job names or needs are not among them.
    """
    limit = clock() - older_than_s
    other, needer = aliased(Job), aliased(Job)
    named = (
        sa.select(other.id)
        .where(other.artifact_id == Job.artifact_id, other.id != Job.id)
        .where(sa.or_(other.finished_at.is_(None), other.finished_at >= limit))
    )
    needed = (
        sa.select(Need.job_id)
        .join(needer, needer.id == Need.job_id)
        .where(Need.artifact_id == Job.artifact_id)
        .where(sa.or_(needer.finished_at.is_(None), needer.finished_at >= limit))
    )
    query = sa.select(Job.id).where(Job.owner_id == owner_id, Job.state.in_(ENDED), Job.finished_at < limit)
    query = query.where(~named.exists(), ~needed.exists())
    return session.scalars(query.order_by(Job.finished_at).limit(BATCH)).all()


def unused_models(session: Session, older_than_s: float, digest: str | None = None) -> Sequence[tuple[uuid.UUID, str]]:
    """Owner and digest of some models that no job names, last used longer ago than this; only of this digest."""
    named = sa.select(Job.id).where(Job.owner_id == Model.owner_id, Job.model_digest == Model.digest)
    query = sa.select(Model.owner_id, Model.digest).where(Model.used_at < clock() - older_than_s, ~named.exists())
    if digest is not None:
        query = query.where(Model.digest == digest)
    return [(owner, found) for owner, found in session.execute(query.limit(BATCH))]


def forget_arrays(session: Session, older_than_s: float) -> int:
    """Let go of inputs and outputs of inferences that ended longer ago, and of what they told live; of how many."""
    old = sa.select(Job.id).where(
        Job.kind == job_kinds.INFERENCE.name, Job.state.in_(ENDED), Job.finished_at < clock() - older_than_s
    )
    update = sa.update(Inference).where(Inference.job_id.in_(old), Inference.input_key != "")
    told = sa.select(Inference.job_id).where(Inference.job_id.in_(old), Inference.input_key != "")
    empty = sa.update(Event).where(Event.job_id.in_(told), Event.kind.in_(LIVE)).values(data={})
    session.execute(empty, execution_options=_UNSYNCED)
    update = update.values(input_key="", output_key=None).returning(Inference.job_id)
    return len(session.scalars(update.execution_options(synchronize_session=False)).all())


def forget_uploads(session: Session, older_than_s: float) -> int:
    """Delete the uploads that nothing was added to for this long; how many."""
    gone = sa.delete(Upload).where(Upload.updated_at < clock() - older_than_s).returning(Upload.id)
    return len(session.scalars(gone.execution_options(synchronize_session=False)).all())


def referenced(session: Session) -> Iterator[str]:
    """The key of every blob that a row names, some of them repeatedly."""
    plain = (Model.blob_key, Artifact.blob_key, PartialArtifact.blob_key, Inference.input_key, Inference.output_key)
    for column in plain:
        for key in session.scalars(sa.select(column).where(column.is_not(None)).execution_options(yield_per=FETCH)):
            yield str(key)
    for several in (Model.files, Upload.parts, Job.samples):
        lists = sa.select(several).where(several.is_not(None), sa.cast(several, sa.String) != "[]")
        for entries in session.scalars(lists.execution_options(yield_per=FETCH)):
            yield from (str(entry["key"]) for entry in entries or ())


def named(session: Session, keys: Collection[str]) -> set[str]:
    """Those of the keys that a row names."""
    asked = set(keys)
    return {key for key in referenced(session) if key in asked}


_UNSYNCED = {"synchronize_session": False}
