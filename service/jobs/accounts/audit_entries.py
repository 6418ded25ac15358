"""The audit log as it may be seen: an owner its own entries, an operator all of them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from service.db import audit, owners
from service.db.audit import Wanted
from service.db.engine import Database
from service.db.models import AuditEntry
from service.jobs.accounts.access import Caller
from service.jobs.accounts.keys import owner_of


@dataclass(frozen=True)
class Entry:
    """A line of the log, with the name of its owner, if there is one."""

    row: AuditEntry
    owner: str | None


def page(
    db: Database, caller: Caller, owner: str | None, wanted: Wanted, *, before: uuid.UUID | None, limit: int
) -> tuple[list[Entry], uuid.UUID | None]:
    """Entries newest first, and the cursor of the next page (None: there is none).

    owner  whose; None: the caller's own, for an operator everybody's and those of unknown keys

    Raises `NotAllowed` when a key that is no operator's names an owner, and `NotFound`.
    """
    with db.read() as session:
        everybody = owner is None and caller.covers({"admin"})
        whose = None if everybody else owner_of(session, caller, owner).id
        rows = list(audit.page(session, whose, wanted, before=before, limit=limit + 1))
        names = owners.names(session, list({row.owner_id for row in rows if row.owner_id is not None}))
    found = [Entry(row, None if row.owner_id is None else names.get(row.owner_id)) for row in rows[:limit]]
    return found, rows[limit - 1].id if len(rows) > limit else None
