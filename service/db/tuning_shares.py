"""Kernels that compilations offer to be measured: who may take which, and what became of them."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, Session, aliased, mapped_column

from service.db.engine import clock
from service.db.jobs import HELD
from service.db.models import Job, Row, TuningRecord, new_id

Place = tuple[str, str]
"""A target and the fingerprint of its hardware, as records name them."""


class TuningShare(Row):
    """A kernel that a compilation offers to be measured; its text is a `Workload`, its measurements are records.

    It counts while the attempt that offered it goes on: `fence` is its job's.
    """

    __tablename__ = "tuning_shares"
    __table_args__ = (
        sa.Index("ix_tuning_shares_job_id_offer", "job_id", "offer"),
        sa.Index("ix_tuning_shares_done_at_target_hardware", "done_at", "target", "hardware"),
        sa.Index("ix_tuning_shares_owner_id_workload", "owner_id", "workload"),
    )

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=new_id)
    job_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("jobs.id", ondelete="CASCADE"))
    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"))
    fence: Mapped[int]
    offer: Mapped[int]
    """A number for each time that the attempt offered kernels."""
    place: Mapped[int]
    """Among the kernels of the offer: the first is worth the most."""
    workload: Mapped[str] = mapped_column(sa.Text)
    target: Mapped[str] = mapped_column(sa.String(100))
    hardware: Mapped[str] = mapped_column(sa.Text)
    compiler: Mapped[str] = mapped_column(sa.String(50))
    """Who generates the code that is measured."""
    terms: Mapped[dict[str, Any]]
    task: Mapped[dict[str, Any]]
    """Its tiles, how long they may take, and whether they were measured before."""
    worker: Mapped[str | None] = mapped_column(sa.String(200))
    """Who measures it, or has."""
    own: Mapped[bool] = mapped_column(default=False)
    """Whether that is the job's own worker."""
    lease_until: Mapped[float | None]
    done_at: Mapped[float | None]
    seconds: Mapped[float] = mapped_column(default=0.0)
    measured: Mapped[int] = mapped_column(default=0)
    """Tiles; of kernels that were taken together, this and `seconds` are evenly divided."""
    created_at: Mapped[float] = mapped_column(default=clock())


def add(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that have their `id`."""
    now = session.scalar(sa.select(clock()))
    session.execute(sa.insert(TuningShare), [{"created_at": now, **row} for row in rows])


def free(
    session: Session,
    places: Collection[Place],
    compiler: str,
    *,
    job_id: uuid.UUID | None = None,
    offer: int | None = None,
) -> Sequence[TuningShare]:
    """Kernels that nobody measures now, of one offer, the first first; locked until the transaction ends.

    A kernel that another job of the same owner has being measured on such a device is left out: its records come. What
    an attempt held that is over is nobody's.
    Without a job the oldest offer that has any. Empty where there is none.
    """
    query = _free(places, compiler)
    if job_id is not None:
        query = query.where(TuningShare.job_id == job_id)
    if offer is not None:
        query = query.where(TuningShare.offer == offer)
    first = session.scalar(query.order_by(TuningShare.created_at, TuningShare.place).limit(1))
    if first is None:
        return []
    one = query.where(TuningShare.job_id == first.job_id, TuningShare.offer == first.offer)
    locked = one.order_by(TuningShare.place).with_for_update(of=TuningShare, skip_locked=True)
    return session.scalars(locked).all()


def is_free(session: Session, places: Collection[Place], compiler: str, job_id: uuid.UUID | None = None) -> bool:
    """Whether `free` would find one of a job; None: of any."""
    query = _free(places, compiler).with_only_columns(TuningShare.id)
    if job_id is not None:
        query = query.where(TuningShare.job_id == job_id)
    return session.scalar(query.limit(1)) is not None


def is_held(session: Session, job_id: uuid.UUID, fence: int) -> bool:
    """Whether the attempt with this fence has its job."""
    query = sa.select(Job.id).where(Job.id == job_id, Job.state.in_(HELD), Job.fence == fence)
    return session.scalar(query) is not None


def measured_by(session: Session, job_id: uuid.UUID, fence: int) -> Mapping[str, str]:
    """By workload, which worker measured it last for an attempt."""
    query = sa.select(TuningShare.workload, TuningShare.worker).where(
        TuningShare.job_id == job_id,
        TuningShare.fence == fence,
        TuningShare.done_at.is_not(None),
        TuningShare.worker.is_not(None),
    )
    return {workload: str(worker) for workload, worker in session.execute(query.order_by(TuningShare.done_at))}


def seconds_of_others(session: Session, job_id: uuid.UUID, fence: int) -> float:
    """That workers other than the job's own measured for an attempt."""
    query = sa.select(sa.func.sum(TuningShare.seconds)).where(
        TuningShare.job_id == job_id, TuningShare.fence == fence, ~TuningShare.own
    )
    return session.scalar(query) or 0.0


def age_s(session: Session, share: TuningShare) -> float:
    """Seconds since it was offered, by the database's clock."""
    return float(session.scalar(sa.select(clock())) or 0.0) - share.created_at


def newest(session: Session) -> uuid.UUID | None:
    """The kernel that was offered last of those that nobody took."""
    query = sa.select(TuningShare.id).where(TuningShare.done_at.is_(None), TuningShare.worker.is_(None))
    return session.scalar(query.order_by(TuningShare.id.desc()).limit(1))


def _free(places: Collection[Place], compiler: str) -> sa.Select[TuningShare]:
    other, its_job = aliased(TuningShare), aliased(Job)
    elsewhere = (
        sa.select(other.id)
        .join(its_job, its_job.id == other.job_id)
        .where(
            other.owner_id == TuningShare.owner_id,
            other.workload == TuningShare.workload,
            other.target == TuningShare.target,
            other.hardware == TuningShare.hardware,
            other.job_id != TuningShare.job_id,
            other.done_at.is_(None),
            other.lease_until >= clock(),
            its_job.state.in_(HELD),
            its_job.fence == other.fence,
        )
    )
    return (
        sa.select(TuningShare)
        .join(Job, Job.id == TuningShare.job_id)
        .where(
            TuningShare.done_at.is_(None),
            sa.tuple_(TuningShare.target, TuningShare.hardware).in_(list(places)),
            TuningShare.compiler == compiler,
            sa.or_(TuningShare.lease_until.is_(None), TuningShare.lease_until < clock()),
            Job.state.in_(HELD),
            Job.fence == TuningShare.fence,
            ~elsewhere.exists(),
        )
    )


def hold(session: Session, ids: Collection[uuid.UUID], worker: str, lease_s: float, *, own: bool) -> None:
    """These rows, which were free and are locked, are measured by `worker`."""
    _change(session, TuningShare.id.in_(ids), worker=worker, own=own, lease_until=clock() + lease_s)


def renew(session: Session, ids: Collection[uuid.UUID], worker: str, lease_s: float) -> bool:
    """Keep them; False when the worker no longer has all of them, or their job has ended."""
    held = sa.select(TuningShare.id).join(Job, Job.id == TuningShare.job_id)
    held = held.where(TuningShare.id.in_(ids), *_of(worker), Job.state.in_(HELD), Job.fence == TuningShare.fence)
    if len(session.scalars(held.with_for_update(of=TuningShare)).all()) < len(ids):
        return False
    _change(session, TuningShare.id.in_(ids), lease_until=clock() + lease_s)
    return True


def done(session: Session, ids: Collection[uuid.UUID], worker: str, seconds: float, measured: int) -> None:
    """Those of them that the worker still has are measured; it took so much for all."""
    each, rest = divmod(measured, max(len(ids), 1))
    for at, one in enumerate(ids):
        facts = {"seconds": seconds / len(ids), "measured": each + (at < rest)}
        _change(session, TuningShare.id == one, *_of(worker), done_at=clock(), **facts)


def give_back(session: Session, ids: Collection[uuid.UUID], worker: str) -> None:
    """Those of them that the worker still has may be taken by others."""
    _change(session, TuningShare.id.in_(ids), *_of(worker), worker=None, lease_until=None)


def withdraw(session: Session, job_id: uuid.UUID) -> None:
    """Remove the job's kernels that are not done: whoever measures some of them has them no longer."""
    session.execute(sa.delete(TuningShare).where(TuningShare.job_id == job_id, TuningShare.done_at.is_(None)))


def of_offer(session: Session, job_id: uuid.UUID, fence: int, offer: int) -> Sequence[TuningShare]:
    """All kernels of an offer, as they are now."""
    query = sa.select(TuningShare).where(
        TuningShare.job_id == job_id, TuningShare.fence == fence, TuningShare.offer == offer
    )
    query = query.order_by(TuningShare.place).execution_options(populate_existing=True)
    return session.scalars(query).all()


def by_helpers(session: Session, job_id: uuid.UUID) -> Sequence[tuple[str, int, int, float]]:
    """Workers other than the job's own that measured kernels for it: name, kernels, tiles, seconds."""
    query = sa.select(
        TuningShare.worker,
        sa.func.count(sa.distinct(TuningShare.workload)),
        sa.func.sum(TuningShare.measured),
        sa.func.sum(TuningShare.seconds),
    ).where(TuningShare.job_id == job_id, TuningShare.done_at.is_not(None), ~TuningShare.own)
    rows = session.execute(query.group_by(TuningShare.worker).order_by(TuningShare.worker))
    return [(str(name), int(kernels), int(tiles), float(seconds)) for name, kernels, tiles, seconds in rows]


def measured_since(
    session: Session, owner_id: uuid.UUID, place: Place, workloads: Collection[str], since: float
) -> Sequence[TuningRecord]:
    """The owner's records of kernels on a device, as of a time, oldest first."""
    query = sa.select(TuningRecord).where(
        TuningRecord.owner_id == owner_id,
        TuningRecord.workload.in_(workloads),
        TuningRecord.target == place[0],
        TuningRecord.hardware == place[1],
        TuningRecord.kind == "kernel",
        TuningRecord.created_at >= since,
    )
    return session.scalars(query.order_by(TuningRecord.created_at, TuningRecord.id)).all()


def _of(worker: str) -> tuple[sa.ColumnElement[bool], ...]:
    return TuningShare.worker == worker, TuningShare.done_at.is_(None)


def _change(session: Session, *where: sa.ColumnElement[bool], **values: Any) -> None:
    update = sa.update(TuningShare).where(*where).values(**values)
    session.execute(update.execution_options(synchronize_session=False))
