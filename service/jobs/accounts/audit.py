"""The audit log: who changed what, and who was refused.

A change and its entry are one transaction: a command says `note` where it makes the change. Refusals change nothing, so
they have a transaction of their own, and no more of them are written in a minute than a process allows: whoever tries
keys at random fills neither the log nor the disk.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from service.db import audit
from service.db.engine import Database
from service.db.models import AuditEntry
from service.db.plain import storable
from service.errors import DatabaseUnavailable
from service.logs import logger

DONE = "done"
CONSOLE = "console"
"""In place of an address, for chores of `python -m service`."""

WINDOW_S = 60.0
PER_ADDRESS = 10
PER_PROCESS = 100
"""Refusals of one address, and of all together, that one process writes in `WINDOW_S`; the others are counted."""

log = logger(__name__)


@dataclass(frozen=True)
class Asking:
    """A request: its id, where it came from, what it asks for, and whose key it carries once that is known."""

    request_id: str
    address: str
    method: str = ""
    path: str = ""
    owner: uuid.UUID | None = None
    key: uuid.UUID | None = None
    traceparent: str | None = None
    """Its place in a trace, if it has one (W3C Trace Context)."""


asking: ContextVar[Asking | None] = ContextVar("asking", default=None)
"""The request that is being answered; None outside of one: workers and sweeps leave no entries."""


def asked_by(owner: uuid.UUID, key: uuid.UUID | None) -> None:
    """From now on the request is known to be this owner's."""
    if (now := asking.get()) is not None:
        asking.set(replace(now, owner=owner, key=key))


def traceparent() -> str | None:
    """The place in a trace of whoever asks."""
    return None if (now := asking.get()) is None else now.traceparent


def note(session: Session, verb: str, thing: str) -> None:
    """The request has changed something, a path of the API, in this transaction."""
    if (now := asking.get()) is not None:
        _write(session, now, verb, thing, DONE, 0)


class Refusals:
    """Writes refusals of this process, but for those that are too many."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._told: Counter[str] = Counter()
        self._untold = 0

    def note(self, verb: str, code: str, *, owner: uuid.UUID | None = None, key: uuid.UUID | None = None) -> None:
        """The request was refused with this code; `owner` and `key`, if its key is known at all.

        A database that is away is no reason to answer otherwise: the entry is lost then.
        """
        now = asking.get()
        if now is None or (untold := self._turn(now.address)) is None:
            return
        whose = now if owner is None else replace(now, owner=owner, key=key)
        try:
            with self._db.write() as session:
                _write(session, whose, verb, now.path, code, untold)
        except DatabaseUnavailable as error:
            log.warning("a refusal was not written to the audit log", error=error.message)

    def _turn(self, address: str) -> int | None:
        """How many were left out since the last entry; None when this one is left out too."""
        with self._lock:
            if time.monotonic() - self._since >= WINDOW_S:
                self._since = time.monotonic()
                self._told.clear()
            if self._told[address] >= PER_ADDRESS or self._told.total() >= PER_PROCESS:
                self._untold += 1
                return None
            self._told[address] += 1
            untold, self._untold = self._untold, 0
            return untold


def _write(session: Session, now: Asking, verb: str, thing: str, outcome: str, untold: int) -> None:
    entry = AuditEntry(
        owner_id=now.owner,
        key_id=now.key,
        request_id=now.request_id,
        address=storable(now.address)[:100],
        verb=verb,
        object=storable(thing)[:400],
        outcome=outcome,
        untold=untold,
    )
    audit.add(session, entry)
