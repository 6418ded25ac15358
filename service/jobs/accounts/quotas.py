"""What an owner may have: bytes that are stored, jobs that wait or run, device seconds of a month.

Limits are the installation's settings, unless the operator granted the owner others; 0 is no limit. What is refused
says what is had already and who can change it. It is decided while the owner is locked, so that two requests at once do
not get by together; a claim decides for itself, while no other claims a job of that owner.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.config import Settings
from service.db import artifacts, jobs, keys, owners, usage
from service.db.engine import Database
from service.db.models import JobState, Owner
from service.errors import DeviceTimeUsed, NotAuthenticated, OwnerSuspended, QueueFull, QuotaExceeded
from service.jobs.accounts import audit

ASK_WITH_A_KEY = "send Authorization: Bearer <key> with a valid key"


@dataclass(frozen=True)
class Limits:
    """The most that an owner may have; 0: no limit. `device_s` are seconds of a calendar month (UTC)."""

    stored_bytes: int = 0
    queued_jobs: int = 0
    device_s: float = 0.0
    concurrent_jobs: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Of an owner whom nothing else was granted."""
        return cls(
            stored_bytes=settings.max_stored_bytes_per_owner,
            queued_jobs=settings.max_queued_per_owner,
            device_s=settings.max_device_seconds_per_month,
            concurrent_jobs=settings.max_concurrent_per_owner,
        )

    def granted(self, owner: Owner) -> Limits:
        """These, but for what the operator granted the owner."""
        return Limits(
            stored_bytes=self.stored_bytes if owner.max_stored_bytes is None else owner.max_stored_bytes,
            queued_jobs=self.queued_jobs if owner.max_queued_jobs is None else owner.max_queued_jobs,
            device_s=self.device_s if owner.max_device_s is None else owner.max_device_s,
            concurrent_jobs=self.concurrent_jobs if owner.max_concurrent_jobs is None else owner.max_concurrent_jobs,
        )


UNLIMITED = Limits()


@dataclass(frozen=True)
class Use:
    """What an owner has; `device_s` of the month (UTC, such as `2026-11`) that ends at `month_ends` (since 1970)."""

    stored_bytes: int
    queued_jobs: int
    device_s: float
    concurrent_jobs: int
    month: str
    month_ends: float


def use_of(session: Session, owner_id: uuid.UUID) -> Use:
    """What the owner has now."""
    now = usage.now(session)
    month = usage.month_of(now)
    return Use(
        stored_bytes=usage.stored_bytes(session, owner_id),
        queued_jobs=usage.jobs_in(session, owner_id, JobState.QUEUED),
        device_s=usage.device_s(session, owner_id, month),
        concurrent_jobs=usage.jobs_in(session, owner_id, *jobs.HELD),
        month=month,
        month_ends=usage.end_of_month(now),
    )


def opened(session: Session, owner_id: uuid.UUID) -> Owner:
    """The owner, locked until the transaction ends: of two requests the later sees what the earlier has made.

    Raises `NotAuthenticated` when the owner was deleted, or is about to be, and as `demand_valid` does for the key of
    the request that is answered; and `OwnerSuspended`.
    """
    owner = present(session, owner_id)
    asking = audit.asking.get()
    if asking is not None and asking.key is not None:
        demand_valid(session, asking.key)
    if owner.suspended_at is not None:
        raise suspended(owner)
    return owner


def present(session: Session, owner_id: uuid.UUID) -> Owner:
    """The owner, suspended or not, locked as `opened` does. Raises `NotAuthenticated`."""
    owner = owners.lock(session, owner_id)
    if owner is None or owner.deleted_at is not None:
        raise NotAuthenticated("the key's owner was deleted", fix="use a key of another owner")
    return owner


def demand_valid(session: Session, key: uuid.UUID) -> None:
    """Raises `NotAuthenticated` for a key that was revoked, or has ended, since its request was let in.

    What outlives a request is made after this, in one transaction with it and with the owner locked: so a key makes
    nothing once its revocation is committed, however long it is remembered.
    """
    if not keys.is_valid(session, key):
        raise NotAuthenticated("the API key was revoked, or has ended, meanwhile", fix=ASK_WITH_A_KEY)


def suspended(owner: Owner) -> OwnerSuspended:
    """What is said to the keys of an owner whom the operator has barred."""
    return OwnerSuspended(
        f"owner {owner.name!r} is suspended",
        fix=f"ask an operator to let it in again: tilewright owners resume {owner.name}",
        details={"owner": owner.name},
    )


def demand_turn(session: Session, owner: Owner, limits: Limits) -> None:
    """Whether the owner, who is locked, may queue one more job. Raises `QueueFull` and `DeviceTimeUsed`."""
    mine = limits.granted(owner)
    waiting = usage.jobs_in(session, owner.id, JobState.QUEUED)
    if mine.queued_jobs and waiting >= mine.queued_jobs:
        raise QueueFull(
            f"{waiting} jobs of owner {owner.name!r} are waiting already, and its limit is {mine.queued_jobs}",
            fix=f"wait for some to finish, cancel some, or {_ask(owner, '--queued-jobs')}, or raise "
            "TILEWRIGHT_MAX_QUEUED_PER_OWNER",
            details={"limit": mine.queued_jobs, "used": waiting},
        )
    if mine.device_s:
        _demand_time(session, owner, mine.device_s)


def _demand_time(session: Session, owner: Owner, limit_s: float) -> None:
    now = usage.now(session)
    month = usage.month_of(now)
    had = usage.device_s(session, owner.id, month)
    if had >= limit_s:
        raise DeviceTimeUsed(
            f"owner {owner.name!r} has had {had:.0f} of its {limit_s:.0f} device seconds of {month}",
            fix=f"wait for the next month (UTC), or {_ask(owner, '--device-seconds')}",
            details={
                "limit": limit_s,
                "used": had,
                "month": month,
                "retry_after_s": math.ceil(usage.end_of_month(now) - now),
            },
        )


def demand_room(session: Session, owner: Owner, size: int, limits: Limits) -> None:
    """Whether the owner, who is locked, may store `size` more bytes. Raises `QuotaExceeded`.

    A size of 0 asks whether it may store anything at all.
    """
    now = _room(session, owner, limits, model=False)
    if now.left is not None and max(size, 1) > now.left:
        raise now.exceeded(size)


def demand_passage(session: Session, owner: Owner, size: int, limits: Limits) -> None:
    """The same of a model that is about to be sent, before it is known which: see `Room.mending`."""
    now = _room(session, owner, limits, model=True)
    if now.left is not None and max(size, 1) > now.left:
        raise now.exceeded(size)


@dataclass(frozen=True)
class Room:
    """How many bytes the owner may still store, or send.

    mending  bytes of models that the owner has and of which a file is lost or damaged: so much more may be on its way,
             since sending such a model again, which mends it, takes no room when it is kept
    """

    owner: Owner
    limit: int
    used: int
    mending: int = 0

    @property
    def left(self) -> int | None:
        """Bytes; None: no limit."""
        return max(self.limit + self.mending - self.used, 0) if self.limit else None

    def exceeded(self, size: int) -> QuotaExceeded:
        """The refusal of `size` more bytes, or of a body whose size is not known yet (0)."""
        return _exceeded(self.owner, self.limit, self.used, size)


def room(db: Database, owner_id: uuid.UUID, limits: Limits, *, model: bool) -> Room:
    """What is left now, to stop a body early that may hold a `model`; what is kept is decided by `demand_room`.

    Raises as `opened` does.
    """
    with db.read() as session:
        owner = owners.by_id(session, owner_id)
        if owner is None:
            raise NotAuthenticated("the key's owner was deleted", fix="use a key of another owner")
        return _room(session, owner, limits, model=model)


def _room(session: Session, owner: Owner, limits: Limits, *, model: bool) -> Room:
    limit = limits.granted(owner).stored_bytes
    if limit == 0:
        return Room(owner, limit, 0)
    mending = artifacts.faulty_models_bytes(session, owner.id) if model else 0
    return Room(owner, limit, usage.stored_bytes(session, owner.id), mending)


def barred(session: Session, limits: Limits) -> sa.Select[uuid.UUID]:
    """Owners of whose jobs none may be started now."""
    month = usage.month_of(usage.now(session))
    return usage.barred(month, most_device_s=limits.device_s, most_at_once=limits.concurrent_jobs)


def may_start(session: Session, owner_id: uuid.UUID, limits: Limits) -> bool:
    """Whether one more job of an owner who was not barred a moment ago may be started; holds for this transaction."""
    owner = owners.by_id(session, owner_id)
    at_once = limits.granted(owner).concurrent_jobs if owner is not None else 0
    if at_once == 0:
        return True
    owners.one_claim_at_a_time(session, owner_id)
    return usage.jobs_in(session, owner_id, *jobs.HELD) < at_once


def _exceeded(owner: Owner, limit: int, used: int, size: int) -> QuotaExceeded:
    asked = f"{size} more" if size else "more"
    return QuotaExceeded(
        f"owner {owner.name!r} stores {used} bytes, and {asked} are above its limit of {limit}",
        fix=f"delete models that are not needed (DELETE /models/{{digest}}), or {_ask(owner, '--stored-bytes')}",
        details={"limit": limit, "used": used, "asked": size},
    )


def _ask(owner: Owner, option: str) -> str:
    return f"ask an operator for more: tilewright owners limit {owner.name} {option} N"
