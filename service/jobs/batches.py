"""Look at batches, and cancel what of them has not ended."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.db import batches
from service.db.batches import Batch
from service.db.engine import Database
from service.db.models import Job
from service.errors import NotFound
from service.jobs import audit
from service.jobs.cancel import stop


@dataclass(frozen=True)
class Found:
    """A batch and its jobs, in the order of the request."""

    batch: Batch
    jobs: Sequence[Job]


def page(
    db: Database, owner: uuid.UUID, *, before: uuid.UUID | None, limit: int
) -> tuple[list[Batch], uuid.UUID | None]:
    """The owner's batches, newest first, and the cursor of the next page (None: there is none)."""
    with db.read() as session:
        found = list(batches.page(session, owner, before=before, limit=limit + 1))
    return found[:limit], found[limit - 1].id if len(found) > limit else None


def look(db: Database, owner: uuid.UUID, batch_id: uuid.UUID) -> Found:
    """One batch. Raises `NotFound`."""
    with db.read() as session:
        return _required(session, owner, batch_id)


def cancel(db: Database, owner: uuid.UUID, batch_id: uuid.UUID) -> Found:
    """The batch after the request: what waited is CANCELLED, and what runs is stopped by its workers within seconds.

    What has ended stays as it is; asking again changes nothing. Raises `NotFound`.
    """
    with db.write() as session:
        told = stop(session, batches.jobs_of(session, owner, batch_id, lock=True), "with its batch")
        for job in told:
            audit.note(session, "cancel", f"/jobs/{job.id}")
        session.expire_all()
        return _required(session, owner, batch_id)


def _required(session: Session, owner: uuid.UUID, batch_id: uuid.UUID) -> Found:
    batch = batches.of_owner(session, owner, batch_id)
    if batch is None:
        raise NotFound(f"there is no batch {batch_id}", fix="list them with GET /batches")
    return Found(batch, batches.jobs_of(session, owner, batch_id))
