"""The keys of an owner: list, make, rotate, revoke.

No key makes, replaces or ends a key that allows more than itself, and none that it makes lasts longer than itself, by
its end or by its revocation. So whoever holds a key that ends soon, or allows little, gets no further with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.db import keys, owners, usage
from service.db.engine import Database
from service.db.models import ApiKey, Owner
from service.errors import BadRequest, KeyEnded, NotAllowed, NotFound, QuotaExceeded
from service.jobs.accounts import audit, quotas
from service.jobs.accounts.access import Caller, demand_scopes, digest_of, new_key, role_of
from service.jobs.accounts.quotas import Limits, Use

LONGEST_GRACE_S = 30 * 24 * 3600.0
"""For which a rotated key may stay valid."""


@dataclass(frozen=True)
class Shown:
    """A key's row, its owner's name, and the time (seconds since 1970) at which its state is told."""

    row: ApiKey
    owner: str
    now: float

    @property
    def state(self) -> str:
        """`valid`, `expired` or `revoked`."""
        if self.row.revoked_at is not None:
            return "revoked"
        ended = self.row.expires_at is not None and self.row.expires_at <= self.now
        return "expired" if ended else "valid"


@dataclass(frozen=True)
class Made:
    """A new key: `text` is nowhere else, and cannot be asked for again."""

    shown: Shown
    text: str


@dataclass(frozen=True)
class Me:
    """The key of a request, what its owner may have, and has."""

    key: Shown
    limits: Limits
    use: Use


def me(db: Database, caller: Caller, limits: Limits) -> Me:
    """What there is to say of the caller. Raises `NotFound` when the owner was deleted a moment ago."""
    with db.read() as session:
        whose = owner_of(session, caller, None)
        row = keys.by_id(session, caller.key)
        if row is None:
            raise NotFound(f"there is no key {caller.key}", fix="use another key")
        return Me(
            Shown(row, whose.name, usage.now(session)), limits.granted(whose), quotas.use_of(session, caller.owner)
        )


def page(
    db: Database, caller: Caller, owner: str | None, *, before: uuid.UUID | None, limit: int
) -> tuple[list[Shown], uuid.UUID | None]:
    """Keys of an owner (None: the caller's), newest first, and the cursor of the next page.

    Raises `NotAllowed` when a key that is no operator's names an owner, and `NotFound`.
    """
    with db.read() as session:
        whose = owner_of(session, caller, owner)
        rows = list(keys.page(session, whose.id, before=before, limit=limit + 1))
        now = usage.now(session)
    return [Shown(row, whose.name, now) for row in rows[:limit]], rows[limit - 1].id if len(rows) > limit else None


def make(
    db: Database,
    caller: Caller,
    owner: str | None,
    scopes: Sequence[str],
    label: str,
    expires_at: float | None,
    *,
    most: int = 0,
) -> Made:
    """A new key of an owner (None: the caller's). Without `expires_at` (since 1970) it lasts as long as the caller's.

    An owner has at most `most` valid keys; 0: no limit. Raises `BadRequest`, `NotFound`, `QuotaExceeded`, and
    `NotAllowed` for more than the caller's key allows.
    """
    demand_scopes(scopes)
    with db.write() as session:
        whose = owner_of(session, caller, owner, lock=True)
        quotas.demand_valid(session, caller.key)
        _demand_rights(caller, scopes)
        until = _demand_end(session, caller, expires_at)
        if most and (count := keys.valid(session, whose.id)) >= most:
            raise QuotaExceeded(
                f"owner {whose.name!r} has {count} valid keys, and may have {most}",
                fix="revoke unused ones: DELETE /keys/{id}",
                details={"used": count, "limit": most},
            )
        return _make(session, whose, scopes, label, until, "create", _maker(caller, whose))


def rotate(db: Database, caller: Caller, key_id: uuid.UUID, *, grace_s: float, expires_at: float | None) -> Made:
    """A new key in the place of another, with its scopes and label; the old one stays valid for `grace_s`.

    expires_at  of the new key; None: when the old one would have ended, or the caller's key if that is sooner

    Raises `NotFound`, `KeyEnded`, `BadRequest`, and `NotAllowed` for a key that allows more than the caller's.
    """
    if not 0 <= grace_s <= LONGEST_GRACE_S:
        raise BadRequest(f"a grace of {grace_s:g} s is not between 0 and {LONGEST_GRACE_S:g}", fix="use a shorter one")
    with db.write() as session:
        old, whose = _required(session, caller, key_id)
        now = usage.now(session)
        if (state := Shown(old, whose.name, now).state) != "valid":
            raise KeyEnded(f"key {key_id} is {state}", fix="make a new one: POST /keys")
        wanted = old.expires_at if expires_at is None else expires_at
        ends = [end for end in (wanted, caller.expires_at if expires_at is None else None) if end is not None]
        until = _demand_end(session, caller, min(ends, default=None))
        maker = old.made_by if caller.key == old.id else _maker(caller, whose)
        made = _make(session, whose, old.scopes, old.label, until, "rotate", maker)
        keys.pass_on(session, old.id, made.shown.row.id)
        old.replaced_by = made.shown.row.id
        if grace_s > 0:
            old.expires_at = min(now + grace_s, old.expires_at if old.expires_at is not None else now + grace_s)
        else:
            old.revoked_at = now
        audit.note(session, "expire" if grace_s > 0 else "revoke", f"/keys/{key_id}")
        return made


def revoke(db: Database, caller: Caller, key_id: uuid.UUID) -> Shown:
    """The key after its end, and that of all it made; asking again changes nothing.

    Raises `NotFound` and `NotAllowed`.
    """
    with db.delete() as session:
        row, whose = _required(session, caller, key_id)
        now = usage.now(session)
        for one in (row, *keys.made_by(session, whose.id, key_id)):
            if one.revoked_at is None:
                one.revoked_at = now
                audit.note(session, "revoke", f"/keys/{one.id}")
        return Shown(row, whose.name, now)


def owner_of(session: Session, caller: Caller, name: str | None, *, lock: bool = False) -> Owner:
    """The owner of this name (None: the caller's); with `lock` it is locked until the transaction ends.

    Raises `NotAllowed` when a key that is no operator's names one, and `NotFound`.
    """
    if name is None:
        found = owners.by_id(session, caller.owner)
    else:
        caller.require("admin")
        found = owners.by_name(session, name)
    if found is not None and lock:
        found = owners.lock(session, found.id)
    if found is None or found.deleted_at is not None:
        raise NotFound(f"there is no owner {name!r:.120}", fix="an operator lists them with GET /owners")
    return found


def _required(session: Session, caller: Caller, key_id: uuid.UUID) -> tuple[ApiKey, Owner]:
    """A key that the caller may end, locked, and its owner. Raises `NotFound` and `NotAllowed`."""
    found = keys.by_id(session, key_id)
    if found is None or (found.owner_id != caller.owner and not caller.covers({"admin"})):
        raise NotFound(f"there is no key {key_id}", fix="list keys with GET /keys")
    whose = owners.lock(session, found.owner_id)
    row = keys.of_owner(session, found.owner_id, key_id)
    if whose is None or row is None:
        raise NotFound(f"there is no key {key_id}", fix="list keys with GET /keys")
    quotas.demand_valid(session, caller.key)
    _demand_rights(caller, row.scopes)
    return row, whose


def _demand_rights(caller: Caller, scopes: Sequence[str]) -> None:
    if not caller.covers(scopes):
        raise NotAllowed(
            f"this key allows less than {', '.join(scopes)}",
            fix=f"use a key of the role {role_of(scopes)!r}",
            details={"scopes": sorted(scopes)},
        )


def _demand_end(session: Session, caller: Caller, expires_at: float | None) -> float | None:
    """When a key that the caller makes ends. Raises `BadRequest` for the past, `NotAllowed` past the caller's end."""
    until = caller.expires_at if expires_at is None else expires_at
    if until is not None and until <= usage.now(session):
        raise BadRequest("expires_at has passed", fix="name a time to come, or leave it out")
    if caller.expires_at is not None and until is not None and until > caller.expires_at:
        raise NotAllowed(
            "the key would last longer than the one that makes it",
            fix="name an earlier expires_at, or use a key that lasts longer",
        )
    return until


def _maker(caller: Caller, whose: Owner) -> uuid.UUID | None:
    """Which key a new one is revoked with: the caller's, but where an operator makes it for another owner."""
    return caller.key if caller.owner == whose.id else None


def _make(
    session: Session,
    whose: Owner,
    scopes: Sequence[str],
    label: str,
    expires_at: float | None,
    verb: str,
    maker: uuid.UUID | None,
) -> Made:
    text = new_key()
    row = keys.make(session, whose.id, digest_of(text), scopes, label, expires_at, maker)
    audit.note(session, verb, f"/keys/{row.id}")
    return Made(Shown(row, whose.name, usage.now(session)), text)
