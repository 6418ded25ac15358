"""API keys: who calls, and what the key allows.

A key is `twk_` and 256 random bits; the database holds its SHA-256 only. Without configuration the service makes
one for the owner `local` in a file of mode 0600, where the command line finds it.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import secrets
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from service.db import owners
from service.db.engine import Database
from service.errors import BadRequest, NotAllowed, NotAuthenticated

SCOPES = ("read", "compile", "admin")
"""read: look at and download one's own; compile: submit and cancel; admin: all of them."""

LOCAL_OWNER = "local"

REMEMBERED_S = 2.0
MOST_REMEMBERED = 10_000


@dataclass(frozen=True)
class Caller:
    """Whose key a request carries, and the key's scopes."""

    owner: uuid.UUID
    scopes: frozenset[str]

    def require(self, scope: str) -> None:
        """Raises `NotAllowed` when the key does not cover `scope`."""
        if not self.scopes & {scope, "admin"}:
            raise NotAllowed(
                f"this key does not allow {scope!r}",
                fix=f"use a key with the scope {scope!r}",
                details={"scope": scope},
            )


def authenticate(db: Database, key: str) -> Caller:
    """The caller who holds this key. Raises `NotAuthenticated`."""
    with db.read() as session:
        row = owners.by_key(session, _digest(key))
    if row is None:
        raise NotAuthenticated(
            "the API key is unknown or revoked", fix="send Authorization: Bearer <key> with a valid key"
        )
    return Caller(row.owner_id, frozenset(row.scopes))


class Door:
    """Lets callers in; what a key allows is remembered for `REMEMBERED_S`, so a revoked key ends that much later."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[str, tuple[float, Caller]] = {}

    def remembered(self, key: str) -> Caller | None:
        """The caller, if the key was looked up a moment ago.

        When the moment is over one asker gets None, to look it up again; the others go on meanwhile.
        """
        digest = _digest(key)
        since, caller = self._known.get(digest, (-math.inf, None))
        now = time.monotonic()
        if caller is None or now - since < REMEMBERED_S:
            return caller
        self._known[digest] = (now, caller)
        return None

    def enter(self, key: str) -> Caller:
        """The caller who holds this key. Raises `NotAuthenticated`."""
        try:
            caller = authenticate(self._db, key)
        except NotAuthenticated:
            self._known.pop(_digest(key), None)
            raise
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[_digest(key)] = (time.monotonic(), caller)
        return caller


def make_key(db: Database, owner: str, scopes: Sequence[str], label: str) -> str:
    """A new key for the owner of this name, who is made when missing. Raises `BadRequest` for an unknown scope."""
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise BadRequest(f"unknown scope {unknown[0]!r}", fix=f"use some of {', '.join(SCOPES)}")
    key = f"twk_{secrets.token_urlsafe(32)}"
    register(db, owner, key, scopes, label)
    return key


def register(db: Database, owner: str, key: str, scopes: Sequence[str], label: str) -> None:
    """Let a given key in; registering it again changes nothing."""
    with db.write() as session:
        owners.add_key(session, owners.named(session, owner), _digest(key), scopes, label)


def replace(db: Database, owner: str, key: str | None, scopes: Sequence[str], label: str) -> None:
    """Let a given key in as the owner's only one of this label: earlier ones of the label are revoked.

    None revokes without a successor. A key that was revoked under another value is let in again when it comes back.
    """
    with db.write() as session:
        digest = None if key is None else _digest(key)
        owners.replace_key(session, owners.named(session, owner), digest, scopes, label)


def ensure_local_key(db: Database, file: Path) -> None:
    """Make sure that `file` holds a key of the owner `local` and that the database knows it.

    The file appears whole, with mode 0600, or not at all; of several processes that make it the first wins.
    """
    if not file.exists():
        draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as text:
                text.write(f"twk_{secrets.token_urlsafe(32)}\n")
                text.flush()
                os.fsync(text.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(draft, file)
        finally:
            draft.unlink()
    register(db, LOCAL_OWNER, file.read_text().strip(), SCOPES, f"file {file.name}")


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
