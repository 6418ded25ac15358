"""What is known of the bytes that rows name: their length, when they were last checked, and what is wrong with them."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from compiler.contract import job_kinds
from service.db.engine import clock
from service.db.models import Artifact, Blob, BlobFault, Job, JobState

BATCH = 500
"""Keys that are named in one statement."""


def name(session: Session, lengths: Mapping[str, int]) -> None:
    """Note that a row names these keys, whose bytes were written a moment ago: nothing is wrong with them any more.

    In one order for all: of two transactions that name the same keys, one waits for the other, never both.
    """
    if not lengths:
        return
    forgive(session, list(lengths))
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    at = now(session)
    for key in sorted(lengths):
        insert = dialect.insert(Blob).values(key=key, bytes=lengths[key], named_at=at, checked_at=0.0)
        session.execute(insert.on_conflict_do_update(index_elements=["key"], set_={"named_at": at}))


def forgive(session: Session, keys: Collection[str]) -> Sequence[str]:
    """These bytes are whole: the faults that were noted go, and the jobs whose artifact they are say no more of them.

    Returns the keys that had a fault.
    """
    update = sa.update(Blob).where(Blob.key.in_(keys), Blob.fault.is_not(None)).values(fault=None).returning(Blob.key)
    mended = session.scalars(update.execution_options(synchronize_session=False)).all()
    if mended:
        jobs = sa.update(Job).where(Job.artifact_id.in_(_made_of(mended)), Job.state == JobState.SUCCEEDED)
        session.execute(jobs.values(problem=None).execution_options(synchronize_session=False))
    return mended


def blame(session: Session, key: str, fault: BlobFault) -> bool:
    """Note what is wrong with the bytes of a key; False when that was known, or the key is not known."""
    update = sa.update(Blob).where(Blob.key == key, sa.or_(Blob.fault.is_(None), Blob.fault != fault))
    made = session.scalar(update.values(fault=fault).returning(Blob.key).execution_options(synchronize_session=False))
    return made is not None


def jobs_of(session: Session, key: str) -> Sequence[Job]:
    """The jobs whose artifact has these bytes, in the order of their ids."""
    query = sa.select(Job).where(Job.artifact_id.in_(_made_of([key])), Job.kind == job_kinds.COMPILE.name)
    return session.scalars(query.order_by(Job.id)).all()


def faults(session: Session, keys: Collection[str]) -> Mapping[str, BlobFault]:
    """What is wrong with those of the keys with which something is."""
    query = sa.select(Blob.key, Blob.fault).where(Blob.key.in_(keys), Blob.fault.is_not(None))
    return {key: BlobFault(str(fault)) for key, fault in session.execute(query)}


def faulty(session: Session) -> Mapping[BlobFault, int]:
    """How many keys have each fault."""
    query = sa.select(Blob.fault, sa.func.count()).where(Blob.fault.is_not(None)).group_by(Blob.fault)
    return {BlobFault(str(fault)): count for fault, count in session.execute(query)}


def forget(session: Session, keys: Collection[str], older_than_s: float) -> None:
    """Forget keys that no row names; one that a row began to name within this time, or begins to now, stays."""
    ordered = sorted(keys)
    for at in range(0, len(ordered), BATCH):
        free = sa.select(Blob.key).where(Blob.key.in_(ordered[at : at + BATCH]), Blob.named_at < clock() - older_than_s)
        gone = sa.delete(Blob).where(Blob.key.in_(free.with_for_update(skip_locked=True)))
        session.execute(gone.execution_options(synchronize_session=False))


@dataclass(frozen=True)
class Due:
    """A key whose bytes are to be checked, and when they last were."""

    key: str
    bytes: int
    checked_at: float


def unchecked(session: Session, keys: Collection[str], within_s: float) -> list[Due]:
    """Those of the keys that were not compared with their digests within this time, ordered."""
    query = sa.select(Blob).where(Blob.key.in_(keys), Blob.checked_at < clock() - within_s).order_by(Blob.key)
    return [Due(blob.key, blob.bytes, blob.checked_at) for blob in session.scalars(query)]


def checked(session: Session, key: str) -> bool:
    """Note that a key's bytes were found whole just now; whether it had a fault until then."""
    update = sa.update(Blob).where(Blob.key == key).values(checked_at=clock())
    session.execute(update.execution_options(synchronize_session=False))
    return bool(forgive(session, [key]))


def give_back(session: Session, due: Sequence[Due]) -> None:
    """These were taken and not checked: they count as before, and are taken first again."""
    for one in due:
        update = sa.update(Blob).where(Blob.key == one.key).values(checked_at=one.checked_at)
        session.execute(update.execution_options(synchronize_session=False))


def unchecked_s(session: Session) -> float:
    """For how long the bytes that wait longest have not been compared with their digest, in seconds; 0: none wait.

    Of bytes that never were: since a row last began to name them.
    """
    checked, named = session.execute(
        sa.select(
            sa.select(sa.func.min(Blob.checked_at)).where(Blob.checked_at > 0.0).scalar_subquery(),
            sa.select(sa.func.min(Blob.named_at)).where(Blob.checked_at == 0.0).scalar_subquery(),
        )
    ).one()
    since = [at for at in (checked, named) if at is not None]
    return max(0.0, now(session) - min(since)) if since else 0.0


def take(session: Session, most_bytes: int, limit: int, *, before: float, at_least: int = 0) -> list[Due]:
    """The keys that were checked longest ago, and before this time; they count as checked from now on.

    As many as have no more than so many bytes together, but `at_least` this many, and `limit` at most. Whoever else
    takes some meanwhile gets others.
    """
    query = sa.select(Blob).where(Blob.checked_at < before).order_by(Blob.checked_at, Blob.key)
    due: list[Due] = []
    for blob in session.scalars(query.limit(limit).with_for_update(skip_locked=True)):
        if len(due) >= at_least and sum(one.bytes for one in due) + blob.bytes > most_bytes:
            break
        due.append(Due(blob.key, blob.bytes, blob.checked_at))
    update = sa.update(Blob).where(Blob.key.in_([one.key for one in due])).values(checked_at=clock())
    session.execute(update.execution_options(synchronize_session=False))
    return due


def lengths(session: Session, keys: Collection[str]) -> dict[str, int]:
    """How many bytes each of these keys names, of those that are known."""
    found = session.execute(sa.select(Blob.key, Blob.bytes).where(Blob.key.in_(keys)))
    return {row.key: row.bytes for row in found}


def now(session: Session) -> float:
    """The database's clock."""
    return session.scalars(sa.select(clock())).one()


def _made_of(keys: Collection[str]) -> sa.Select[uuid.UUID]:
    return sa.select(Artifact.id).where(Artifact.blob_key.in_(keys))
