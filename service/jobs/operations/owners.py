"""Owners as the operator sees them: make, suspend, grant, delete."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.db import jobs, owners, retention
from service.db.engine import Database
from service.db.models import Owner
from service.db.retention import Gone
from service.errors import BadRequest, NotAllowed, NotFound, OwnerExists
from service.jobs.accounts import audit, quotas
from service.jobs.accounts.access import Caller, demand_name
from service.jobs.accounts.quotas import Limits, Use
from service.jobs.lifecycle.cancel import stop


@dataclass(frozen=True)
class Seen:
    """An owner, what it may have, and what it has (None: not asked for)."""

    row: Owner
    limits: Limits
    use: Use | None = None


@dataclass(frozen=True)
class Removal:
    """What became of a deletion: `stopping` jobs must end first; 0: all rows of the owner are gone."""

    name: str
    stopping: int
    deleted: Gone


def page(db: Database, limits: Limits, *, after: str | None, limit: int) -> tuple[list[Seen], str | None]:
    """Owners by name, and the name after which the next page begins (None: there is none)."""
    with db.read() as session:
        rows = list(owners.page(session, after=after, limit=limit + 1))
    return [Seen(row, limits.granted(row)) for row in rows[:limit]], rows[limit - 1].name if len(rows) > limit else None


def find(db: Database, limits: Limits, name: str) -> Seen:
    """One owner with what it has. Raises `NotFound`."""
    with db.read() as session:
        return _seen(session, _required(session, name), limits)


def make(db: Database, limits: Limits, name: str, grants: Mapping[str, float | None]) -> Seen:
    """A new owner, without a key. Raises `BadRequest` and `OwnerExists`."""
    demand_name(name)
    with db.write() as session:
        if (made := owners.make(session, name)) is None:
            raise OwnerExists(
                f"there is an owner {name!r}, or one that is being deleted",
                fix=f"make a key for this one with POST /keys, or see GET /owners/{name}",
            )
        owners.change(session, made.id, _columns(grants))
        audit.note(session, "create", f"/owners/{name}")
        session.refresh(made)
        return _seen(session, made, limits)


def change(
    db: Database, caller: Caller, limits: Limits, name: str, suspended: bool | None, grants: Mapping[str, float | None]
) -> Seen:
    """Bar an owner or let it in again (None: leave that), and grant it what `grants` names; None there: the default.

    grants  by the names of `Limits`

    Raises `NotFound`, and `NotAllowed` for the suspension of the caller's own owner.
    """
    with db.write() as session:
        row = _required(session, name, lock=True)
        if suspended:
            _demand_other(caller, row, "suspend")
        if suspended is not None:
            owners.suspend(session, row.id, suspended)
            audit.note(session, "suspend" if suspended else "resume", f"/owners/{name}")
        if grants:
            owners.change(session, row.id, _columns(grants))
            audit.note(session, "limit", f"/owners/{name}")
        session.refresh(row)
        return _seen(session, row, limits)


def remove(db: Database, caller: Caller, name: str, confirm: str) -> Removal:
    """Delete an owner with everything that is its own; what cannot go yet is left to the sweeper.

    From now on its keys are unknown. Queued jobs end at once, held ones are asked to; once they have, the sweeper, or a
    repetition of this, deletes. Raises `NotFound`, `BadRequest` unless `confirm` repeats the name, and `NotAllowed` for
    the caller's own owner.
    """
    if confirm != name:
        raise BadRequest(
            "the deletion of an owner is not confirmed", fix=f"repeat the name: DELETE /owners/{name}?confirm={name}"
        )
    with db.delete() as session:
        row = _required(session, name, lock=True)
        _demand_other(caller, row, "delete")
        if row.deleted_at is None:
            owners.doom(session, row.id)
            audit.note(session, "delete", f"/owners/{name}")
        owner_id = row.id
    return Removal(name, *purge(db, owner_id))


def purge(db: Database, owner_id: uuid.UUID) -> tuple[int, Gone]:
    """Go on with the deletion of an owner: how many jobs must end first, and what was deleted.

    In several transactions, none of which keeps others waiting for long; one that breaks off is gone on with.
    """
    stopping = _stop(db, owner_id)
    gone = Gone()
    if stopping:
        return stopping, gone
    more = True
    while more:
        with db.delete() as session:
            owners.lock(session, owner_id)
            more = retention.delete_records(session, owner_id) > 0
    batch = None
    while batch is None or batch.jobs:
        with db.delete() as session:
            owners.lock(session, owner_id)
            batch = retention.delete_jobs(session, retention.some_jobs(session, owner_id))
        gone += batch
    with db.delete() as session:
        owners.lock(session, owner_id)
        retention.delete_owner(session, owner_id)
    return 0, gone


def purge_doomed(db: Database) -> int:
    """Go on with every deletion that was asked for; how many owners are gone."""
    with db.read() as session:
        doomed = owners.doomed(session)
    return sum(purge(db, owner_id)[0] == 0 for owner_id in doomed)


def _stop(db: Database, owner_id: uuid.UUID) -> int:
    """End the owner's queued jobs, and ask the held ones to; how many of these there are."""
    with db.delete() as session:
        owners.lock(session, owner_id)
        open_jobs = jobs.open_of(session, owner_id)
        held = sum(job.state in jobs.HELD for job in open_jobs)
        stop(session, open_jobs, "to remove its owner")
        return held


def _required(session: Session, name: str, *, lock: bool = False) -> Owner:
    found = owners.by_name(session, name)
    if found is not None and lock:
        found = owners.lock(session, found.id)
    if found is None:
        raise NotFound(f"there is no owner {name!r:.120}", fix="list them with GET /owners")
    return found


def _demand_other(caller: Caller, row: Owner, what: str) -> None:
    if row.id == caller.owner:
        raise NotAllowed(
            f"a key cannot {what} its own owner",
            fix="use an operator's key of another owner",
            details={"owner": row.name},
        )


def _seen(session: Session, row: Owner, limits: Limits) -> Seen:
    return Seen(row, limits.granted(row), quotas.use_of(session, row.id))


def _columns(grants: Mapping[str, float | None]) -> dict[str, float | None]:
    return {f"max_{name}": value for name, value in grants.items()}
