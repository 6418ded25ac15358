"""Webhooks: addresses of an owner's that are told when its jobs end, signed as Standard Webhooks says.

What is to be sent is written in the transaction that ends the job, so that no end is forgotten;
`service.jobs.notifications.delivery` sends it, at least once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from service.db import usage, webhooks
from service.db.engine import Database, clock
from service.db.models import Delivery, Job, JobState, Webhook, new_id
from service.db.plain import dumps
from service.errors import InvalidWebhook, NotFound
from service.jobs.accounts import audit, quotas
from service.jobs.notifications import outbound

MOST = 20
"""Webhooks of one owner."""
PREFIX = "whsec_"
SECRET_BYTES = (24, 64)
TEST, CHALLENGE = "webhook.test", "webhook.challenge"
MOST_WAITING, MOST_WAITING_OF_OWNER = 1000, 5000
"""Messages of one webhook, and of all of an owner's, that wait to be sent; the oldest makes room for a newer one."""
CHALLENGE_BYTES = 32


@dataclass(frozen=True)
class Sent:
    """What goes to a receiver: bytes, and the headers that say whose they are."""

    body: bytes
    headers: dict[str, str]


def make(
    db: Database, owner: uuid.UUID, url: str, secret: str | None, states: Collection[JobState], *, private: bool
) -> Webhook:
    """A new webhook, and its challenge; without a secret one is made.

    Raises `InvalidWebhook`, and as `quotas.opened` does.
    """
    try:
        outbound.place_of(url, private=private)
    except outbound.Refused as refused:
        raise InvalidWebhook(f"{url!r:.200} cannot be told of anything: {refused}", fix=FIX) from None
    if secret is not None:
        key_of(secret)
    with db.write() as session:
        quotas.opened(session, owner)
        if len(webhooks.all_of(session, owner)) >= MOST:
            raise InvalidWebhook(f"there are {MOST} webhooks already", fix="delete one that is not needed")
        row = Webhook(id=new_id(), owner_id=owner, url=url, secret=secret or new_secret(), states=sorted(states))
        session.add(row)
        session.flush()
        audit.note(session, "create", f"/webhooks/{row.id}")
        _challenge(session, row)
        session.refresh(row)
        return row


FIX = (
    "give an https URL of a public address, without a password in it; "
    "the operator may allow private ones with TILEWRIGHT_WEBHOOKS_PRIVATE"
)


def listed(db: Database, owner: uuid.UUID) -> Sequence[Webhook]:
    """The owner's webhooks, newest first."""
    with db.read() as session:
        return webhooks.all_of(session, owner)


def find(db: Database, owner: uuid.UUID, webhook_id: uuid.UUID) -> Webhook:
    """One webhook. Raises `NotFound`."""
    with db.read() as session:
        return _required(session, owner, webhook_id)


def delete(db: Database, owner: uuid.UUID, webhook_id: uuid.UUID) -> None:
    """Send nothing more to it, and forget what was sent. Raises `NotFound`."""
    with db.delete() as session:
        session.delete(_required(session, owner, webhook_id))
        audit.note(session, "delete", f"/webhooks/{webhook_id}")


def test(db: Database, owner: uuid.UUID, webhook_id: uuid.UUID) -> Delivery:
    """Send it something that tells of no job: its challenge, if it was not verified. Raises `NotFound`.

    One that was disabled is told of jobs again.
    """
    with db.write() as session:
        webhook = _required(session, owner, webhook_id)
        webhook.disabled_at = None
        audit.note(session, "test", f"/webhooks/{webhook_id}")
        if webhook.verified_at is None:
            return webhooks.challenge_again(session, webhook_id) or _challenge(session, webhook)
        return _add(session, webhook, None, TEST, {"webhook": str(webhook_id)})


def page(
    db: Database, owner: uuid.UUID, webhook_id: uuid.UUID, *, before: uuid.UUID | None, limit: int
) -> tuple[list[Delivery], uuid.UUID | None]:
    """What was sent to it, or is to be, newest first, and the cursor of the next page. Raises `NotFound`."""
    with db.read() as session:
        _required(session, owner, webhook_id)
        rows = list(webhooks.deliveries(session, webhook_id, before=before, limit=limit + 1))
    return rows[:limit], rows[limit - 1].id if len(rows) > limit else None


def tell(session: Session, owner: uuid.UUID, job_id: uuid.UUID) -> None:
    """A job has just ended in this transaction: its owner's webhooks are to be told."""
    listening = [one for one in webhooks.all_of(session, owner) if one.disabled_at is None]
    if not listening:
        return
    job = session.get_one(Job, job_id, populate_existing=True)
    for webhook in listening:
        if not webhook.states or job.state in webhook.states:
            _add(session, webhook, job.id, f"job.{job.state.lower()}", _told(job))


def signed(delivery: Delivery, secret: str, now: float) -> Sent:
    """What is sent, `now` seconds since 1970; https://www.standardwebhooks.com, symmetric signatures."""
    body = delivery.payload.encode()
    at = str(int(now))
    content = b".".join((f"msg_{delivery.id}".encode(), at.encode(), body))
    mac = base64.b64encode(hmac.new(key_of(secret), content, hashlib.sha256).digest()).decode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "tilewright-webhooks",
        "webhook-id": f"msg_{delivery.id}",
        "webhook-timestamp": at,
        "webhook-signature": f"v1,{mac}",
    }
    return Sent(body, headers)


def answers(challenge: str, body: bytes) -> bool:
    """Whether the body of an answer is the challenge, or JSON of an object whose `challenge` it is."""
    try:
        text = body.decode().strip()
        found = json.loads(text).get("challenge") if text.startswith("{") else text
        return hmac.compare_digest(str(found).encode(), challenge.encode())
    except ValueError:
        return False


def new_secret() -> str:
    """A secret of 32 random bytes."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def key_of(secret: str) -> bytes:
    """The bytes that a secret stands for. Raises `InvalidWebhook`."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or not SECRET_BYTES[0] <= len(key) <= SECRET_BYTES[1]:
        raise InvalidWebhook(
            "the secret is not of the form that Standard Webhooks says",
            fix=f"give {PREFIX} and the base64 of {SECRET_BYTES[0]} to {SECRET_BYTES[1]} random bytes, or leave it out",
        )
    return key


def _challenge(session: Session, webhook: Webhook) -> Delivery:
    asked = secrets.token_urlsafe(CHALLENGE_BYTES)
    return _add(session, webhook, None, CHALLENGE, {"webhook": str(webhook.id), "challenge": asked}, asked)


def _add(
    session: Session,
    webhook: Webhook,
    job_id: uuid.UUID | None,
    kind: str,
    data: dict[str, Any],
    challenge: str | None = None,
) -> Delivery:
    at = datetime.fromtimestamp(usage.now(session), UTC).isoformat()
    payload = dumps({"type": kind, "timestamp": at, "data": data})
    row = Delivery(
        id=new_id(),
        webhook_id=webhook.id,
        owner_id=webhook.owner_id,
        job_id=job_id,
        payload=payload,
        challenge=challenge,
        next_at=clock(),
    )
    session.add(row)
    session.flush()
    for whose, most in (
        (Delivery.webhook_id == webhook.id, MOST_WAITING),
        (Delivery.owner_id == webhook.owner_id, MOST_WAITING_OF_OWNER),
    ):
        webhooks.give_up_oldest(session, whose, most, f"{most} newer messages wait")
    session.refresh(row)
    return row


def _told(job: Job) -> dict[str, Any]:
    """No more than what lets a receiver ask for the rest with a key of its own."""
    problem = job.problem or {}
    return {
        "job": str(job.id),
        "kind": str(job.kind),
        "state": str(job.state),
        "name": job.name,
        "tags": job.tags or [],
        "artifact": None if job.artifact_id is None else str(job.artifact_id),
        "problem": {name: problem.get(name) for name in ("code", "fault")} if problem else None,
        "link": f"/jobs/{job.id}",
    }


def _required(session: Session, owner: uuid.UUID, webhook_id: uuid.UUID) -> Webhook:
    found = webhooks.of_owner(session, owner, webhook_id)
    if found is None:
        raise NotFound(f"there is no webhook {webhook_id}", fix="list them with GET /webhooks")
    return found
