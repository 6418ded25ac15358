"""Rows of webhooks and of what is sent to them. Every function works inside the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.engine import clock
from service.db.models import Delivery, Webhook

BATCH = 5000
"""Rows that are removed in one statement."""


def of_owner(session: Session, owner_id: uuid.UUID, webhook_id: uuid.UUID) -> Webhook | None:
    """The owner's webhook, or None."""
    return session.scalar(sa.select(Webhook).where(Webhook.id == webhook_id, Webhook.owner_id == owner_id))


def all_of(session: Session, owner_id: uuid.UUID) -> Sequence[Webhook]:
    """The owner's webhooks, newest first."""
    query = sa.select(Webhook).where(Webhook.owner_id == owner_id)
    return session.scalars(query.order_by(Webhook.id.desc())).all()


def deliveries(session: Session, webhook_id: uuid.UUID, *, before: uuid.UUID | None, limit: int) -> Sequence[Delivery]:
    """What was sent to a webhook, or is to be, newest first."""
    query = sa.select(Delivery).where(Delivery.webhook_id == webhook_id)
    if before is not None:
        query = query.where(Delivery.id < before)
    return session.scalars(query.order_by(Delivery.id.desc()).limit(limit)).all()


def due(session: Session, passed_over: Collection[uuid.UUID], limit: int) -> Sequence[tuple[uuid.UUID, uuid.UUID]]:
    """Id and owner of what is to be sent now, but for that of these owners; what waits longest first.

    To a receiver that was not verified only a challenge is sent.
    """
    query = sa.select(Delivery.id, Delivery.owner_id).join(Webhook, Webhook.id == Delivery.webhook_id)
    query = query.where(sa.or_(Webhook.verified_at.is_not(None), Delivery.challenge.is_not(None)))
    query = query.where(Delivery.next_at <= clock())
    query = query.where(Delivery.owner_id.not_in(passed_over)).order_by(Delivery.next_at).limit(limit)
    return [(id, owner) for id, owner in session.execute(query)]


def take(session: Session, delivery_id: uuid.UUID, lease_s: float) -> Delivery | None:
    """What is to be sent, as the caller's until the lease is over; None when another has taken it."""
    update = sa.update(Delivery).where(Delivery.id == delivery_id, Delivery.next_at <= clock())
    update = update.values(next_at=clock() + lease_s, attempts=Delivery.attempts + 1).returning(Delivery.id)
    if session.scalar(update.execution_options(synchronize_session=False)) is None:
        return None
    return session.get(Delivery, delivery_id, populate_existing=True)


def settle(
    session: Session,
    delivery_id: uuid.UUID,
    attempt: int,
    *,
    status: int | None,
    fault: str | None,
    again_s: float | None,
) -> None:
    """Write what became of an attempt, unless another one has begun since, or the message was given up.

    again_s  seconds until the next one; None: this was the last
    """
    ended = again_s is None
    update = sa.update(Delivery).where(Delivery.id == delivery_id, Delivery.attempts == attempt)
    update = update.where(Delivery.next_at.is_not(None))
    values = {"status": status, "fault": fault, "delivered": ended and fault is None}
    ends = {"next_at": None, "ended_at": clock()} if again_s is None else {"next_at": clock() + again_s}
    session.execute(update.values(**values, **ends).execution_options(synchronize_session=False))


def verify(session: Session, webhook_id: uuid.UUID) -> None:
    """The receiver has answered a challenge: what waits for it may be sent."""
    session.execute(sa.update(Webhook).where(Webhook.id == webhook_id).values(verified_at=clock()))


def challenge_again(session: Session, webhook_id: uuid.UUID) -> Delivery | None:
    """The challenge that waits, as to be sent now; None: there is none."""
    update = sa.update(Delivery).where(Delivery.webhook_id == webhook_id, Delivery.challenge.is_not(None))
    update = update.where(Delivery.next_at.is_not(None)).values(next_at=clock()).returning(Delivery.id)
    found = session.scalars(update.execution_options(synchronize_session=False)).first()
    return None if found is None else session.get(Delivery, found, populate_existing=True)


def give_up_oldest(session: Session, whose: sa.ColumnElement[bool], most: int, why: str) -> None:
    """Of the messages of `whose` that wait only the newest `most` go on waiting; challenges do not count."""
    waiting = sa.select(Delivery.id).where(whose, Delivery.next_at.is_not(None), Delivery.challenge.is_(None))
    oldest = waiting.order_by(Delivery.id.desc()).offset(most)
    given_up = sa.update(Delivery).where(Delivery.id.in_(oldest.scalar_subquery()))
    values = given_up.values(next_at=None, ended_at=clock(), fault=why)
    session.execute(values.execution_options(synchronize_session=False))


def disable(session: Session, webhook_id: uuid.UUID, why: str) -> None:
    """Send nothing more to a webhook, nor what waits."""
    update = sa.update(Webhook).where(Webhook.id == webhook_id, Webhook.disabled_at.is_(None))
    session.execute(update.values(disabled_at=clock()).execution_options(synchronize_session=False))
    waiting = sa.update(Delivery).where(Delivery.webhook_id == webhook_id, Delivery.next_at.is_not(None))
    given_up = waiting.values(next_at=None, ended_at=clock(), fault=why)
    session.execute(given_up.execution_options(synchronize_session=False))


def forget(session: Session, older_than_s: float, tests_s: float) -> int:
    """Remove some of what ended longer ago than this, at most `BATCH`, and of what told of no job; how many.

    tests_s  how long that is kept which told of no job
    """
    count = 0
    for which in (
        Delivery.ended_at < clock() - older_than_s,
        sa.and_(Delivery.job_id.is_(None), Delivery.ended_at < clock() - tests_s),
    ):
        old = sa.select(Delivery.id).where(which).order_by(Delivery.ended_at).limit(BATCH)
        gone = sa.delete(Delivery).where(Delivery.id.in_(old)).returning(Delivery.id)
        count += len(session.scalars(gone.execution_options(synchronize_session=False)).all())
    return count
