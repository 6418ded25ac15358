"""What an owner has and uses, as its quotas count it. Every function works inside the caller's transaction."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from compiler.contract import job_kinds
from service.db.engine import clock
from service.db.insert import add_up
from service.db.jobs import HELD
from service.db.models import Artifact, Inference, Job, JobState, Model, Owner, Upload, Usage


def now(session: Session) -> float:
    """Seconds since 1970 by the database's clock."""
    return session.scalars(sa.select(clock())).one()


def month_of(seconds: float) -> str:
    """The calendar month (UTC) of a time, such as `2026-11`."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m}"


def end_of_month(seconds: float) -> float:
    """When the calendar month (UTC) of a time ends, in seconds since 1970."""
    at = datetime.fromtimestamp(seconds, UTC)
    following = (at.year + 1, 1) if at.month == 12 else (at.year, at.month + 1)
    return datetime(*following, 1, tzinfo=UTC).timestamp()


def tally(session: Session, owner_id: uuid.UUID, since: float, until: float) -> None:
    """Add the device seconds from `since` to `until` to the months that they lie in."""
    while since < until:
        piece = min(until, end_of_month(since))
        add_up(session, Usage, "device_s", piece - since, owner_id=owner_id, month=month_of(since))
        since = piece


def device_s(session: Session, owner_id: uuid.UUID, month: str) -> float:
    """Device seconds of a month."""
    found = session.get(Usage, (owner_id, month))
    return 0.0 if found is None else found.device_s


def stored_bytes(session: Session, owner_id: uuid.UUID) -> int:
    """Bytes of models, artifacts, samples, of arrays of inferences that are still kept, and of uploads under way.

    An upload counts with the size that was announced until it has become a model.
    """
    mine = sa.select(Job.id).where(Job.owner_id == owner_id, Job.kind == job_kinds.INFERENCE.name)
    parts = (
        sa.select(sa.func.sum(Model.bytes)).where(Model.owner_id == owner_id),
        sa.select(sa.func.sum(Artifact.bytes)).where(Artifact.owner_id == owner_id),
        sa.select(sa.func.sum(Job.samples_bytes)).where(Job.owner_id == owner_id),
        sa.select(sa.func.sum(Upload.bytes)).where(Upload.owner_id == owner_id, Upload.model_digest.is_(None)),
        sa.select(sa.func.sum(Inference.input_bytes)).where(Inference.job_id.in_(mine), Inference.input_key != ""),
        sa.select(sa.func.sum(Inference.output_bytes)).where(
            Inference.job_id.in_(mine), Inference.output_key.is_not(None)
        ),
    )
    return sum(int(session.scalar(part) or 0) for part in parts)


def jobs_in(session: Session, owner_id: uuid.UUID, *states: JobState) -> int:
    """How many of the owner's jobs are in these states."""
    query = sa.select(sa.func.count()).where(Job.owner_id == owner_id, Job.state.in_(states))
    return session.scalar(query) or 0


def barred(month: str, *, most_device_s: float, most_at_once: int) -> sa.Select[uuid.UUID]:
    """Owners of whose jobs none may be started now.

    Those that are suspended or to be deleted, that have had their device seconds of `month`, or as many of whose jobs
    are held as may be at once; by what each was granted, else by what is given here (0: no limit).
    """
    held = sa.select(sa.func.count()).where(Job.owner_id == Owner.id, Job.state.in_(HELD)).scalar_subquery()
    had = sa.select(Usage.device_s).where(Usage.owner_id == Owner.id, Usage.month == month).scalar_subquery()
    at_once = sa.func.coalesce(Owner.max_concurrent_jobs, most_at_once)
    seconds = sa.func.coalesce(Owner.max_device_s, most_device_s)
    return sa.select(Owner.id).where(
        sa.or_(
            Owner.suspended_at.is_not(None),
            Owner.deleted_at.is_not(None),
            sa.and_(seconds > 0, sa.func.coalesce(had, 0.0) >= seconds),
            sa.and_(at_once > 0, held >= at_once),
        )
    )
