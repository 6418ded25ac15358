"""Questions asked of the table of jobs. Every function works inside the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from compiler.contract import job_kinds
from service.db import labels
from service.db.engine import clock
from service.db.models import Artifact, Blob, Job, JobState, Share

HELD = (JobState.LEASED, JobState.RUNNING)
"""States in which a worker holds the job."""
StatusRow = sa.Row[Any]
"""What of a job is told to those who ask for its state, by the names of `Job`'s columns. Objects of `Job`, with reports
to be parsed, would cost twice as much."""
UNTOLD = ("report", "samples_bytes", "cache_key", "idempotency_key", "body_hash", "fence", "event_seq", "published_at")
_REPORT = sa.case((Job.artifact_id.is_(None), Job.report)).label("report")
"""Not of compilations, whose reports are long: others' name the model that they made."""
_COMPARED = sa.case((Job.artifact_id.is_not(None), Job.report["compared"])).label("compared")
"""Of compilations: how the artifact fared beside other runtimes."""
_LATENCY = sa.case((Job.artifact_id.is_not(None), Job.report["latency_s"])).label("latency_s")
_ERRORS = sa.case((Job.artifact_id.is_not(None), Job.report["errors"])).label("errors")
_STATUS: sa.Select[Any] = sa.select(
    *(column for column in Job.__table__.columns if column.name not in UNTOLD), _REPORT, _COMPARED, _LATENCY, _ERRORS
)


def add(session: Session, job: Job) -> Job:
    """Insert."""
    session.add(job)
    session.flush()
    return job


def locked(session: Session, job_id: uuid.UUID) -> Job:
    """The row as it is now, which stays so until the transaction ends. Raises `NoResultFound`."""
    query = sa.select(Job).where(Job.id == job_id).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one()


def of_owner(session: Session, owner_id: uuid.UUID, job_id: uuid.UUID, *, lock: bool = False) -> Job | None:
    """The owner's job, or None; with `lock` it stays as it is until the transaction ends."""
    query = sa.select(Job).where(Job.id == job_id, Job.owner_id == owner_id)
    return session.scalar(query.with_for_update() if lock else query)


def open_of(session: Session, owner_id: uuid.UUID) -> Sequence[Job]:
    """The owner's jobs that have not ended, as they are now and stay until the transaction ends."""
    query = sa.select(Job).where(Job.owner_id == owner_id, Job.state.in_((JobState.QUEUED, *HELD)))
    query = query.order_by(Job.id).with_for_update().execution_options(populate_existing=True)
    return session.scalars(query).all()


def status_rows(session: Session, job_ids: Collection[uuid.UUID]) -> Sequence[StatusRow]:
    """What is told of the jobs with these ids, of any owner."""
    return session.execute(_STATUS.where(Job.id.in_(job_ids))).all()


@dataclass(frozen=True)
class Wanted:
    """Which jobs: all that is given must hold; of states and kinds one of those given, of tags all.

    text          in name or note
    since, until  made then or later, and before; seconds since 1970
    """

    states: Collection[JobState] = ()
    kinds: Collection[str] = ()
    tags: Collection[str] = ()
    text: str = ""
    model: str | None = None
    queue: str | None = None
    batch: uuid.UUID | None = None
    since: float | None = None
    until: float | None = None


def page(
    session: Session, owner_id: uuid.UUID, wanted: Wanted, *, before: uuid.UUID | None, limit: int
) -> Sequence[Job]:
    """The owner's jobs that are wanted, newest first, older than `before`."""
    return session.scalars(paged(session, owner_id, wanted, before=before, limit=limit)).all()


def paged(
    session: Session, owner_id: uuid.UUID, wanted: Wanted, *, before: uuid.UUID | None, limit: int
) -> sa.Select[Job]:
    """The question that `page` asks."""
    query = sa.select(Job).where(Job.owner_id == owner_id, *labels.tagged(session, Job, wanted.tags))
    if wanted.states:
        query = query.where(Job.state.in_(wanted.states))
    if wanted.kinds:
        query = query.where(Job.kind.in_(wanted.kinds))
    if wanted.text:
        query = query.where(labels.saying(Job, wanted.text))
    if wanted.model is not None:
        query = query.where(Job.model_digest == wanted.model)
    if wanted.queue is not None:
        query = query.where(Job.queue == wanted.queue)
    if wanted.batch is not None:
        query = query.where(Job.batch_id == wanted.batch)
    if wanted.since is not None:
        query = query.where(Job.created_at >= wanted.since)
    if wanted.until is not None:
        query = query.where(Job.created_at < wanted.until)
    if before is not None:
        query = query.where(Job.id < before)
    return query.order_by(Job.id.desc()).limit(limit)


def by_idempotency_key(session: Session, owner_id: uuid.UUID, key: str) -> Job | None:
    """The job that the owner's request with this key made."""
    return session.scalar(sa.select(Job).where(Job.owner_id == owner_id, Job.idempotency_key == key))


def by_artifact(session: Session, owner_id: uuid.UUID, artifact_id: uuid.UUID) -> Job | None:
    """The oldest job that this artifact was promised to."""
    query = sa.select(Job).where(Job.owner_id == owner_id, Job.artifact_id == artifact_id)
    return session.scalar(query.order_by(Job.id).limit(1))


def cached(session: Session, owner_id: uuid.UUID, cache_key: str) -> Job | None:
    """The owner's newest success with this cache key whose artifact is there, as far as is known."""
    query = sa.select(Job).where(
        Job.owner_id == owner_id, Job.cache_key == cache_key, Job.state == JobState.SUCCEEDED, Job.cached.is_(False)
    )
    fault = sa.select(Blob.key).where(Blob.key == Artifact.blob_key, Blob.fault.is_not(None))
    query = query.join(Artifact, Artifact.id == Job.artifact_id).where(~fault.exists())
    return session.scalar(query.order_by(Job.id.desc()).limit(1))


def open_counts(session: Session) -> Sequence[tuple[str, str, str, int]]:
    """Kind, state, queue and number of the jobs that have not ended, of all owners."""
    query = sa.select(Job.kind, Job.state, Job.queue, sa.func.count()).where(Job.state.in_((JobState.QUEUED, *HELD)))
    rows = session.execute(query.group_by(Job.kind, Job.state, Job.queue))
    return [(str(kind), str(state), queue, count) for kind, state, queue, count in rows]


def queue_ages(session: Session) -> Sequence[tuple[str, float]]:
    """Each queue in which jobs wait, and the seconds that the oldest has."""
    age = clock() - sa.func.min(Job.created_at)
    query = sa.select(Job.queue, age).where(Job.state == JobState.QUEUED, Job.blocked_by == 0).group_by(Job.queue)
    return [(queue, seconds) for queue, seconds in session.execute(query)]


def waiting_in(session: Session, queues: Collection[str]) -> dict[str, int]:
    """How many jobs, of all owners, each of these queues holds that a worker could begin now."""
    query = sa.select(Job.queue, sa.func.count()).where(Job.queue.in_(queues), Job.state == JobState.QUEUED)
    rows = session.execute(query.where(Job.blocked_by == 0).group_by(Job.queue))
    return {queue: count for queue, count in rows}  # noqa: C416 - a Row is no pair to mypy


def newest_waiting(session: Session, queues: Collection[str]) -> uuid.UUID | None:
    """The job of these queues that was made last of those that a worker could begin now."""
    query = sa.select(Job.id).where(Job.queue.in_(queues), Job.state == JobState.QUEUED, Job.blocked_by == 0)
    return session.scalar(query.order_by(Job.id.desc()).limit(1))


def positions(session: Session, asked: Collection[Job | StatusRow]) -> dict[uuid.UUID, int]:
    """How many jobs go before each of these in its queue, by id, for those that are queued.

    Jobs of all owners count, as if all owners had had the same share.
    """
    queued = [job for job in asked if job.state == JobState.QUEUED]
    if not queued:
        return {}
    order = (Job.priority.desc(), Job.created_at, Job.id)
    ready = sa.case((Job.blocked_by == 0, 1), else_=0)
    before = sa.func.sum(ready).over(partition_by=Job.queue, order_by=order, rows=(None, -1))
    line = sa.select(Job.id, sa.func.coalesce(before, 0).label("ahead"))
    line = line.where(Job.queue.in_({job.queue for job in queued}), Job.state == JobState.QUEUED)
    places = line.subquery()
    found = session.execute(sa.select(places).where(places.c.id.in_([job.id for job in queued])))
    return {row.id: int(row.ahead) for row in found}


def best(
    session: Session,
    queues: Collection[str],
    barred: sa.Select[uuid.UUID] | None = None,
    *,
    compiler: str,
    wait: bool = False,
) -> uuid.UUID | None:
    """The job to run next: priority, then the owner who has had least of the queue, then age.

    Jobs of owners that `barred` selects are passed over, those that ask for another version than `compiler`, and kinds
    of job that this program does not know. On PostgreSQL the row is locked, and rows locked by others are skipped, or
    with `wait` waited for: one that was taken meanwhile is not answered, and neither is another then.
    """
    had = sa.and_(Share.queue == Job.queue, Share.owner_id == Job.owner_id)
    query = (
        _ready(queues, barred, compiler)
        .outerjoin(Share, had)
        .order_by(Job.priority.desc(), sa.func.coalesce(Share.used_s, 0.0), Job.created_at, Job.id)
        .limit(1)
        .with_for_update(skip_locked=not wait, of=Job)
    )
    return session.scalar(query)


def any_ready(session: Session, queues: Collection[str], barred: sa.Select[uuid.UUID], *, compiler: str) -> bool:
    """Whether `best` would find one."""
    return session.scalar(_ready(queues, barred, compiler).limit(1)) is not None


def _ready(queues: Collection[str], barred: sa.Select[uuid.UUID] | None, compiler: str) -> sa.Select[uuid.UUID]:
    query = sa.select(Job.id).where(
        Job.queue.in_(queues),
        Job.state == JobState.QUEUED,
        Job.blocked_by == 0,
        Job.kind.in_(job_kinds.names()),  # a newer program beside this one may know others
        _may_take(compiler),
    )
    return query if barred is None else query.where(Job.owner_id.not_in(barred))


@dataclass(frozen=True)
class Moved:
    """A job whose state was changed."""

    kind: str
    queue: str
    owner_id: uuid.UUID
    artifact_id: uuid.UUID | None
    attempts: int


def advance(
    session: Session,
    job_id: uuid.UUID,
    to: JobState,
    sources: Collection[JobState],
    *,
    fence: int | None,
    expired: bool,
    values: dict[str, Any],
) -> Moved | None:
    """One guarded UPDATE of the state: only from `sources`, only with this fence, only (if asked) past its lease.

    None when nothing was written.
    """
    update = sa.update(Job).where(Job.id == job_id, Job.state.in_(sources))
    if fence is not None:
        update = update.where(Job.fence == fence)
    if expired:
        update = update.where(Job.lease_until < clock())
    update = update.values(state=to, **values).execution_options(synchronize_session=False)
    row = session.execute(update.returning(Job.kind, Job.queue, Job.owner_id, Job.artifact_id, Job.attempts)).first()
    return None if row is None else Moved(**row._asdict())


@dataclass(frozen=True)
class Held:
    """A job whose lease was renewed, and what its owner wants."""

    state: JobState
    cancel: bool
    finish: bool


def extend(session: Session, job_id: uuid.UUID, fence: int, lease_s: float) -> Held | None:
    """Renew the lease of a held job; None when it is not held."""
    update = (
        sa.update(Job)
        .where(Job.id == job_id, Job.fence == fence, Job.state.in_(HELD))
        .values(lease_until=clock() + lease_s)
        .returning(Job.state, Job.cancel_requested, Job.finish_requested)
        .execution_options(synchronize_session=False)
    )
    row = session.execute(update).first()
    return None if row is None else Held(JobState(row.state), row.cancel_requested, row.finish_requested)


def progress(session: Session, job_id: uuid.UUID, phase: str, fraction: float) -> None:
    """Set the phase; the fraction never falls."""
    update = sa.update(Job).where(Job.id == job_id)
    grown = sa.case((Job.fraction < fraction, fraction), else_=Job.fraction)
    session.execute(
        update.values(phase=phase or Job.phase, fraction=grown).execution_options(synchronize_session=False)
    )


def ask_to_cancel(session: Session, job_id: uuid.UUID) -> None:
    """Leave the wish for the worker that holds the job."""
    update = sa.update(Job).where(Job.id == job_id).values(cancel_requested=True)
    session.execute(update.execution_options(synchronize_session=False))


def ask_to_finish(session: Session, job_id: uuid.UUID) -> None:
    """Leave the wish for the worker that holds the job, or will."""
    update = sa.update(Job).where(Job.id == job_id).values(finish_requested=True)
    session.execute(update.execution_options(synchronize_session=False))


def expired(session: Session, limit: int) -> Sequence[Job]:
    """Held jobs whose lease has run out, longest ago first."""
    query = sa.select(Job).where(Job.state.in_(HELD), Job.lease_until < clock())
    return session.scalars(query.order_by(Job.lease_until).limit(limit)).all()


def overdue(session: Session, limit: int) -> Sequence[uuid.UUID]:
    """Jobs that no worker has begun in the time that they may wait, those that are overdue longest first."""
    due = Job.created_at + Job.max_queue_s
    query = sa.select(Job.id).where(Job.state == JobState.QUEUED, Job.attempts == 0, due < clock())
    return session.scalars(query.order_by(due).limit(limit)).all()


Served = Mapping[str, Collection[str]]
"""The queues that live workers serve, by the version of their compiler."""


def _locked(chosen: sa.Select[uuid.UUID]) -> sa.Select[uuid.UUID]:
    """Chosen rows, locked before one is written, but for those that another transaction has locked.

    Two that update many rows, and wait for each other's, would be a deadlock.
    """
    return sa.select(chosen.with_for_update(skip_locked=True).cte("locked").c.id)


def unserved(session: Session, served: Served, limit: int) -> Sequence[tuple[uuid.UUID, str, str | None]]:
    """Id, queue and version of jobs that are noted just now as waiting where no worker serves; oldest first."""
    waiting = sa.select(Job.id).where(Job.state == JobState.QUEUED, Job.blocked_by == 0, Job.unserved_since.is_(None))
    chosen = waiting.where(sa.not_(_is_served(served))).order_by(Job.created_at).limit(limit)
    update = sa.update(Job).where(Job.id.in_(_locked(chosen)))
    update = update.values(unserved_since=clock()).returning(Job.id, Job.queue, Job.compiler)
    found = session.execute(update.execution_options(synchronize_session=False))
    return [(row.id, row.queue, row.compiler) for row in found]


def served_again(session: Session, served: Served) -> None:
    """Jobs that such workers may take do not wait for want of a worker any more."""
    noted = sa.select(Job.id).where(Job.state == JobState.QUEUED, Job.unserved_since.is_not(None), _is_served(served))
    update = sa.update(Job).where(Job.id.in_(_locked(noted)))
    session.execute(update.values(unserved_since=None).execution_options(synchronize_session=False))


def unannounced(session: Session, queued_before_s: float) -> dict[str, int]:
    """Mark as announced the queued jobs whose doorbell is missing or older than this; how many there are by queue.

    Of reconcilers that run at the same time each row is counted by the one that has locked it.
    """
    stale = sa.or_(Job.published_at.is_(None), Job.published_at < clock() - queued_before_s)
    waiting = sa.select(Job.id).where(Job.state == JobState.QUEUED, Job.blocked_by == 0, stale)
    update = (
        sa.update(Job)
        .where(Job.id.in_(_locked(waiting)))
        .values(published_at=clock())
        .returning(Job.queue)
        .execution_options(synchronize_session=False)
    )
    counts: dict[str, int] = {}
    for queue in session.scalars(update):
        counts[queue] = counts.get(queue, 0) + 1
    return counts


def not_announced(session: Session, job_id: uuid.UUID) -> None:
    """Note that no doorbell could be sent for a queued job."""
    update = sa.update(Job).where(Job.id == job_id, Job.state == JobState.QUEUED).values(published_at=None)
    session.execute(update.execution_options(synchronize_session=False))


def last_events(session: Session, job_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, tuple[int, JobState]]:
    """The number of the newest event of each of these jobs, and its state."""
    rows = session.execute(sa.select(Job.id, Job.event_seq, Job.state).where(Job.id.in_(job_ids)))
    return {row.id: (row.event_seq, JobState(row.state)) for row in rows}


def _may_take(compiler: str) -> sa.ColumnElement[bool]:
    """That a job asks for no other version of the compiler; as `service.jobs.submission.job_terms.allows` decides."""
    pattern = sa.func.replace(Job.compiler, "*", "%")
    return sa.or_(Job.compiler.is_(None), sa.literal(compiler).like(pattern))


def _is_served(served: Served) -> sa.ColumnElement[bool]:
    each = [sa.and_(Job.queue.in_(queues), _may_take(compiler)) for compiler, queues in served.items()]
    return sa.or_(sa.false(), *each)
