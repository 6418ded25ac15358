"""Links that open one job, read only, for whoever has them.

A link's token is signed: an id, when it expires and whether it opens the artifact's file, then ed25519's signature of
these by the key of the service, which also signs attestations. So what was tampered with or has expired is refused
without a look into the database; the row there says whether it was revoked. The token itself is not kept.
"""

from __future__ import annotations

import base64
import binascii
import struct
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from service.db import share_links, usage
from service.db.engine import Database
from service.db.share_links import ShareLink
from service.errors import BadRequest, NotAuthenticated, NotFound, QuotaExceeded
from service.jobs.accounts import audit, quotas
from service.jobs.accounts.access import Caller, Opened
from service.jobs.lifecycle import find
from service.jobs.lifecycle.attestation import Signer

PREFIX = "tws_"
DOMAIN = b"tilewright-share-v1\0"
"""Goes before what is signed, so that no signature of this key for anything else is one of a link."""
FIELDS = struct.Struct(">B16sQ")
"""Flags, the link's id, when it expires (whole seconds since 1970)."""
DOWNLOAD = 1
DAY_S = 86_400.0
DEFAULT_S, LONGEST_S = 7 * DAY_S, 365 * DAY_S
MOST = 50
"""Links of one job, those that have ended too."""
FIX = "ask whoever shared the job for a new link"


@dataclass(frozen=True)
class Shown:
    """A link as its owner sees it, at the time `now` (seconds since 1970); its token only when it was just made."""

    link: ShareLink
    now: float
    token: str | None = None

    @property
    def state(self) -> str:
        """`valid`, `expired` or `revoked`."""
        if self.link.revoked_at is not None:
            return "revoked"
        return "expired" if self.link.expires_at <= self.now else "valid"


def make(
    db: Database, signer: Signer, owner: uuid.UUID, job_id: uuid.UUID, *, expires_at: float | None, download: bool
) -> Shown:
    """A new link to the owner's job; without `expires_at` (seconds since 1970) it is valid for a week.

    Raises `NotFound`, `BadRequest` for a time that is over or more than a year ahead, `QuotaExceeded` for too many
    links of one job, `NotReady` without a signing key, and as `quotas.opened` does.
    """
    with db.write() as session:
        quotas.opened(session, owner)
        find.required(session, owner, job_id, lock=True)
        now = usage.now(session)
        until = float(int(now + DEFAULT_S if expires_at is None else expires_at))
        if not now < until <= now + LONGEST_S:
            raise BadRequest("a link expires later than now and within a year", fix="name such a time in expires_at")
        if len(share_links.of_job(session, job_id)) >= MOST:
            raise QuotaExceeded(f"this job has {MOST} links already", fix="hand out one of those, or clone the job")
        row = ShareLink(owner_id=owner, job_id=job_id, download=download, expires_at=until)
        session.add(row)
        session.flush()
        token = token_of(signer, row.id, until, download=download)
        audit.note(session, "share", f"/jobs/{job_id}/shares/{row.id}")
        session.refresh(row)
        return Shown(row, now, token)


def listed(db: Database, owner: uuid.UUID, job_id: uuid.UUID) -> Sequence[Shown]:
    """The links of the owner's job, newest first, those that have ended too. Raises `NotFound`."""
    with db.read() as session:
        find.required(session, owner, job_id)
        now = usage.now(session)
        return [Shown(row, now) for row in share_links.of_job(session, job_id)]


def revoke(db: Database, owner: uuid.UUID, job_id: uuid.UUID, link_id: uuid.UUID) -> Shown:
    """From now on it opens nothing; its row stays. Asking again changes nothing. Raises `NotFound`."""
    with db.delete() as session:
        find.required(session, owner, job_id)
        row = share_links.one_of_job(session, job_id, link_id)
        if row is None:
            raise NotFound(f"job {job_id} has no link {link_id}", fix="list them with GET /jobs/{id}/shares")
        now = usage.now(session)
        if row.revoked_at is None:
            row.revoked_at = now
        audit.note(session, "revoke", f"/jobs/{job_id}/shares/{link_id}")
        return Shown(row, now)


def token_of(signer: Signer, link_id: uuid.UUID, expires_at: float, *, download: bool) -> str:
    """The text that opens a link. Raises `NotReady` without a signing key."""
    fields = FIELDS.pack(DOWNLOAD if download else 0, link_id.bytes, int(expires_at))
    return PREFIX + base64.urlsafe_b64encode(fields + signer.sign(DOMAIN + fields)).rstrip(b"=").decode()


def enter(db: Database, signer: Signer, token: str, *, now: float | None = None) -> Caller:
    """Who has this token, as one who may read what its link opens.

    Raises `NotAuthenticated` for one that is no token of this service, has expired, was revoked, or whose job or owner
    is gone or suspended; `NotReady` without a signing key. `now` is in seconds since 1970.
    """
    text = token.removeprefix(PREFIX)
    try:
        signed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        signed = b""
    fields, signature = signed[: FIELDS.size], signed[FIELDS.size :]
    # One text for each token: base64 leaves bits over that mean nothing.
    canonical = base64.urlsafe_b64encode(signed).rstrip(b"=").decode()
    if canonical != text or len(fields) < FIELDS.size or not signer.signed(DOMAIN + fields, signature):
        raise NotAuthenticated("this link was not made by this service, or was damaged", fix=FIX)
    flags, link_id, expires_at = FIELDS.unpack(fields)
    if expires_at <= (time.time() if now is None else now):
        raise NotAuthenticated("this link has expired", fix=FIX)
    with db.read() as session:
        known = share_links.by_id(session, uuid.UUID(bytes=link_id))
    if known is None or not _stands(known):
        raise NotAuthenticated("this link was revoked, or its job is gone", fix=FIX)
    if known.link.expires_at <= known.now:
        raise NotAuthenticated("this link has expired", fix=FIX)
    opened = Opened(known.link.job_id, known.artifact, bool(flags & DOWNLOAD))
    return Caller(known.owner.id, frozenset({"read"}), known.link.id, known.link.expires_at, opened)


def opens(db: Database, link_id: uuid.UUID) -> bool:
    """Whether a link that was entered by still opens its job. Raises `DatabaseUnavailable`."""
    with db.read() as session:
        known = share_links.by_id(session, link_id)
    return known is not None and _stands(known) and known.link.expires_at > known.now


def _stands(known: share_links.Known) -> bool:
    """Whether nobody has taken it back, and its owner is there."""
    taken = (known.link.revoked_at, known.owner.deleted_at, known.owner.suspended_at)
    return all(since is None for since in taken)
