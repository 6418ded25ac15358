"""API keys: who calls, and what the key allows.

A key is `twk_` and 256 random bits; the database holds its SHA-256 only. Without configuration the service makes
one for the owner `local` in a file of mode 0600, where the command line finds it.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from service.blobs.private import make_once
from service.db import keys, owners
from service.db.engine import Database
from service.errors import BadRequest, DatabaseUnavailable, NotAllowed, NotAuthenticated, OwnerSuspended
from service.jobs.accounts import audit, quotas
from service.logs import logger

log = logger(__name__)

SCOPES = ("read", "compile", "keys", "admin")
"""read: look at and download one's own; compile: submit, cancel, delete; keys: make, rotate and revoke the owner's
keys; admin: all of them, and to manage owners."""

ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "reader": ("read",),
        "compiler": ("read", "compile"),
        "manager": ("read", "compile", "keys"),
        "operator": ("read", "compile", "keys", "admin"),
    }
)
"""The scopes that a key of each role has; rows of keys hold scopes."""

LOCAL_OWNER = "local"
OWNER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
"""Of an owner that is made; earlier ones may have other names."""

REMEMBERED_S = 2.0
MOST_REMEMBERED = 10_000
SETTLE_EVERY_S = 60.0
"""How often a process writes down when keys were last used."""


@dataclass(frozen=True)
class Opened:
    """What a share link opens: a job and its artifact (None: it has none), and whether the artifact's file too."""

    job: uuid.UUID
    artifact: uuid.UUID | None
    download: bool


@dataclass(frozen=True)
class Caller:
    """Whose key a request carries, which key it is, its scopes, and when it ends (seconds since 1970; None: never).

    With `opened` it carries the token of a share link instead, `key` is the link's id, and no more than that is open.
    """

    owner: uuid.UUID
    scopes: frozenset[str]
    key: uuid.UUID
    expires_at: float | None = None
    opened: Opened | None = None

    def require(self, scope: str) -> None:
        """Raises `NotAllowed` when the key does not cover `scope`."""
        if not self.covers({scope}):
            raise NotAllowed(
                f"this key does not allow {scope!r}",
                fix=f"use a key with the scope {scope!r}",
                details={"scope": scope},
            )

    def covers(self, scopes: Iterable[str]) -> bool:
        """Whether the key allows all of these."""
        return "admin" in self.scopes or set(scopes) <= self.scopes


def role_of(scopes: Collection[str]) -> str:
    """The greatest role whose work a key with these scopes can do.

    `compile` alone is a compiler that cannot look, `keys` alone a manager that does nothing else.
    """
    decisive = {"admin": "operator", "keys": "manager", "compile": "compiler"}
    return next((role for scope, role in decisive.items() if scope in scopes), "reader")


class Door:
    """Lets callers in; what a key allows is remembered for `REMEMBERED_S`, so a revoked key ends that much later.

    It notes when keys are used, which `settle` writes down, and who was refused.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[str, tuple[float, Caller]] = {}
        self._lock = threading.Lock()
        self._looked: dict[uuid.UUID, float] = {}
        self._used: dict[uuid.UUID, float] = {}
        self.refusals = audit.Refusals(db)

    def remembered(self, key: str) -> Caller | None:
        """The caller, if the key was looked up a moment ago.

        When the moment is over one asker gets None, to look it up again; the others go on meanwhile.
        """
        digest = digest_of(key)
        since, caller = self._known.get(digest, (-math.inf, None))
        now = time.monotonic()
        if caller is None or now - since < REMEMBERED_S:
            return caller
        self._known[digest] = (now, caller)
        return None

    def knows(self, key: str) -> bool:
        """Whether the key was let in before, and nothing else is known of it since."""
        return digest_of(key) in self._known

    def enter(self, key: str) -> Caller:
        """The caller who holds this key. Raises `NotAuthenticated` and `OwnerSuspended`, which the audit log tells."""
        known = _known(self._db, key)
        if (refusal := _refusal(known)) is not None:
            self._known.pop(digest_of(key), None)
            whose = {} if known is None else {"owner": known.owner.id, "key": known.key.id}
            self.refusals.note("login", refusal.code, **whose)
            raise refusal
        assert known is not None, "an unknown key is refused"
        caller = _caller(known)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[digest_of(key)] = (time.monotonic(), caller)
        with self._lock:
            self._used[caller.key] = time.monotonic()
        return caller

    def is_due(self, caller: Caller) -> bool:
        """Whether it is time to ask again if a caller `stands`: of all who hold this key one is told so."""
        now = time.monotonic()
        with self._lock:
            if now - self._looked.get(caller.key, -math.inf) < REMEMBERED_S:
                return False
            if len(self._looked) >= MOST_REMEMBERED:
                self._looked.clear()
            self._looked[caller.key] = now
        return True

    def stands(self, caller: Caller) -> bool:
        """Whether a caller who was let in a while ago would be now. Raises `DatabaseUnavailable`."""
        with self._db.read() as session:
            if keys.is_valid(session, caller.key):
                return True
        with self._lock:
            self._looked.pop(caller.key, None)  # the others with this key are told so too
        return False

    def settle(self) -> None:
        """Write down when keys were last used. Raises `DatabaseUnavailable`; then the next call writes it."""
        with self._lock:
            used = dict(self._used)
        if not used:
            return
        with self._db.write() as session:
            keys.used(session, {key: time.monotonic() - at for key, at in used.items()})
        with self._lock:
            self._used = {key: at for key, at in self._used.items() if used.get(key) != at}


def settle_all_along(door: Door, stop: threading.Event, *, every_s: float) -> None:
    """Settle every `every_s` seconds until `stop` is set, and then once more; a database that is away is waited for."""
    while True:
        stopped = stop.wait(every_s)
        try:
            door.settle()
        except DatabaseUnavailable as error:
            log.warning("the use of keys was not written", error=error.message)
        if stopped:
            return


def new_key() -> str:
    """The text of a key that nobody has: 256 random bits."""
    return f"twk_{secrets.token_urlsafe(32)}"


def make_key(db: Database, owner: str, scopes: Sequence[str], label: str, *, expires_at: float | None = None) -> str:
    """A new key for the owner of this name, who is made when missing.

    Raises `BadRequest` for an unknown scope, or for a name that a new owner cannot have.
    """
    demand_scopes(scopes)
    key = new_key()
    with db.write() as session:
        if owners.by_name(session, owner) is None:
            demand_name(owner)
            audit.note(session, "create", f"/owners/{owner}")
        owner_id = owners.named(session, owner)
        quotas.present(session, owner_id)
        made = keys.make(session, owner_id, digest_of(key), scopes, label, expires_at)
        audit.note(session, "create", f"/keys/{made.id}")
    return key


def demand_scopes(scopes: Sequence[str]) -> None:
    """Raises `BadRequest` unless there are some, and all of them are known."""
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise BadRequest(f"unknown scope {unknown[0]!r:.40}", fix=f"use some of {', '.join(SCOPES)}")
    if not scopes:
        raise BadRequest("a key without a scope allows nothing", fix=f"use some of {', '.join(SCOPES)}")


def demand_name(name: str) -> None:
    """Raises `BadRequest` for a name that a new owner cannot have."""
    if not OWNER_NAME.fullmatch(name):
        raise BadRequest(
            f"{name!r:.120} is no name of an owner",
            fix="use 1 to 100 letters, digits and . _ @ -, beginning with a letter or digit",
        )


def register(db: Database, owner: str, key: str, scopes: Sequence[str], label: str) -> None:
    """Let a given key in; registering it again changes nothing."""
    with db.write() as session:
        keys.add(session, owners.named(session, owner), digest_of(key), scopes, label)


def replace(db: Database, owner: str, key: str | None, scopes: Sequence[str], label: str) -> None:
    """Let a given key in as the owner's only one of this label: earlier ones of the label are revoked.

    None revokes without a successor. A key that was revoked under another value is let in again when it comes back.
    """
    with db.write() as session:
        digest = None if key is None else digest_of(key)
        keys.replace(session, owners.named(session, owner), digest, scopes, label)


def ensure_local_key(db: Database, file: Path) -> None:
    """Make sure that `file` holds a key of the owner `local` and that the database knows it.

    The file appears whole, with mode 0600, or not at all; of several processes that make it the first wins.
    """
    if not file.exists():
        make_once(file, f"twk_{secrets.token_urlsafe(32)}\n".encode())
    register(db, LOCAL_OWNER, file.read_text().strip(), SCOPES, f"file {file.name}")


def digest_of(key: str) -> str:
    """What the database holds of a key: its SHA-256 (hex)."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _known(db: Database, key: str) -> keys.Known | None:
    with db.read() as session:
        return keys.by_digest(session, digest_of(key))


def _refusal(known: keys.Known | None) -> NotAuthenticated | OwnerSuspended | None:
    """Why a key is not let in, if it is not."""
    if known is None or known.key.revoked_at is not None or known.owner.deleted_at is not None:
        return NotAuthenticated("the API key is unknown or revoked", fix=quotas.ASK_WITH_A_KEY)
    if known.key.expires_at is not None and known.key.expires_at <= known.now:
        return NotAuthenticated(
            "the API key has expired", fix=quotas.ASK_WITH_A_KEY, details={"key": str(known.key.id)}
        )
    if known.owner.suspended_at is not None:
        return quotas.suspended(known.owner)
    return None


def _caller(known: keys.Known) -> Caller:
    return Caller(known.owner.id, frozenset(known.key.scopes), known.key.id, known.key.expires_at)
