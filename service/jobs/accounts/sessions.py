"""Sessions of the web page: keys of their own, which a browser keeps in a cookie and no script of it can read.

A link of the page signs in once. Its row is a key without scopes, which opens nothing but a session; when that is
opened, the row becomes the session's key, so that the link is gone in the same transaction.
"""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.db import keys, owners, usage
from service.db.engine import Database
from service.db.models import ApiKey, Owner
from service.errors import NotAllowed, NotAuthenticated, QuotaExceeded
from service.jobs.accounts import audit, quotas
from service.jobs.accounts.access import SCOPES, Caller, digest_of
from service.jobs.accounts.keys import Made, Shown, owner_of

PREFIX = "twb_"
"""Of a session's token."""
LINK_PREFIX = "twl_"
"""Of a link's token."""
LABEL, LINK_LABEL = "session of the page", "link to the page"
SESSION_S = 7 * 24 * 3600.0
"""After which a browser has to be let in again."""
LINK_S = 24 * 3600.0


@dataclass(frozen=True)
class _Granter:
    """Whose rights a session has, and when they end (seconds since 1970; None: never)."""

    key: uuid.UUID
    scopes: list[str]
    expires_at: float | None

    def until(self, now: float, lasts_s: float) -> float:
        return now + lasts_s if self.expires_at is None else min(now + lasts_s, self.expires_at)


def invite(db: Database, caller: Caller, *, most: int) -> Made:
    """A link's token: whoever sends it first, within `LINK_S`, has a session with what the caller's key allows.

    A key has one link that was not used; the next takes its place. An owner has at most `most` valid keys, with
    sessions and links (0: no limit). Raises `NotAllowed` for a link, and `QuotaExceeded`.
    """
    if not caller.scopes:
        raise NotAllowed("a link to the page makes no other", fix="use an API key")
    text = LINK_PREFIX + secrets.token_urlsafe(32)
    with db.write() as session:
        whose = owner_of(session, caller, None, lock=True)
        quotas.demand_valid(session, caller.key)
        now = usage.now(session)
        until = _Granter(caller.key, [], caller.expires_at).until(now, LINK_S)
        row = keys.unused(session, whose.id, caller.key, LINK_LABEL)
        if row is None:
            _demand_room(session, whose, most)
            row = keys.make(session, whose.id, digest_of(text), [], LINK_LABEL, until, caller.key)
            audit.note(session, "create", f"/keys/{row.id}")
        else:
            row.digest, row.expires_at = digest_of(text), until
        return Made(Shown(row, whose.name, now), text)


def begin(db: Database, caller: Caller, *, most: int) -> Made:
    """A session's token, for the caller's key or, once, for a link's.

    It allows what the key allows, ends no later, and is revoked with it. Raises `NotAuthenticated` for a link that was
    used, or whose key has ended, and `QuotaExceeded`.
    """
    text = PREFIX + secrets.token_urlsafe(32)
    with db.write() as session:
        whose = owner_of(session, caller, None, lock=True)
        now = usage.now(session)
        if caller.scopes:
            quotas.demand_valid(session, caller.key)
            _demand_room(session, whose, most)
            granter = _Granter(caller.key, [scope for scope in SCOPES if scope in caller.scopes], caller.expires_at)
            until = granter.until(now, SESSION_S)
            row = keys.make(session, whose.id, digest_of(text), granter.scopes, LABEL, until, caller.key)
        else:
            row, granter = _used_up(session, whose, caller.key, now)
            row.digest, row.label, row.scopes = digest_of(text), LABEL, granter.scopes
            row.expires_at = granter.until(now, SESSION_S)
        audit.note(session, "create", f"/keys/{row.id}")
        return Made(Shown(row, whose.name, now), text)


def end(db: Database, caller: Caller, text: str) -> bool:
    """Revoke the caller's session with this token, and all keys that it made; whether there was one."""
    with db.delete() as session:
        whose = owners.lock(session, caller.owner)
        known = keys.by_digest(session, digest_of(text))
        if whose is None or known is None or known.owner.id != whose.id:
            return False
        for one in (known.key, *keys.made_by(session, whose.id, known.key.id)):
            if one.revoked_at is None:
                one.revoked_at = known.now
                audit.note(session, "revoke", f"/keys/{one.id}")
        return True


def _used_up(session: Session, whose: Owner, key_id: uuid.UUID, now: float) -> tuple[ApiKey, _Granter]:
    """The row of a link, locked, and the key that made it. Raises `NotAuthenticated`."""
    row = keys.of_owner(session, whose.id, key_id)
    maker = None if row is None or row.made_by is None else keys.of_owner(session, whose.id, row.made_by)
    if row is None or row.scopes or Shown(row, whose.name, now).state != "valid":
        raise NotAuthenticated("this link was used already, or has ended", fix="use an API key, or ask for a new link")
    if maker is None or Shown(maker, whose.name, now).state != "valid":
        raise NotAuthenticated("the key that made this link has ended", fix="use an API key")
    return row, _Granter(maker.id, list(maker.scopes), maker.expires_at)


def _demand_room(session: Session, whose: Owner, most: int) -> None:
    if most and (count := keys.valid(session, whose.id)) >= most:
        raise QuotaExceeded(
            f"owner {whose.name!r} has {count} valid keys, sessions and links, and may have {most}",
            fix="revoke unused ones: DELETE /keys/{id}",
            details={"used": count, "limit": most},
        )
