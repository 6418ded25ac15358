"""Remove what is kept for a time only, and the bytes that nothing refers to.

Any number of processes may do this at the same time: each deletion names what it deletes and finds it there or not.

Why no blob is lost that a row names. Bytes are written (or written again, which refreshes the time of their last write)
before the row that names them is committed, and the row follows within the grace; or the transaction that makes the row
takes the name over from another row. A round first reads the store's list, then asks the database, in one view of it,
which of the old keys are named. So a key that is named only later was written within the grace before that: after the
round's limit, and the store looks at the time of the last write right before it deletes.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass

from service.blobs.store import Blobs
from service.config import Settings
from service.db import audit, kept, owners, retention
from service.db.engine import Database
from service.db.retention import Gone
from service.errors import DatabaseUnavailable, StorageUnavailable
from service.jobs.operations.owners import purge_doomed
from service.jobs.storage import integrity
from service.logs import logger

KEYS_AT_ONCE = 50_000
"""Keys in memory; for each so many the database is asked once."""
ABANDONED_S = 24 * 3600.0
"""Temporary files of the blob store that are older belong to processes that were killed."""

PRESSED_EVERY_S = 5.0

log = logger(__name__)


@dataclass(frozen=True)
class Rules:
    """How long what is kept, in seconds; `jobs_s`, `models_s` and `audit_s` 0: for ever.

    `scrub_bytes` are checked in a round.
    """

    jobs_s: float
    uploads_s: float
    inferences_s: float
    grace_s: float
    models_s: float = 0.0
    scrub_bytes: int = 0
    audit_s: float = 0.0

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        """As the operator states them."""
        return cls(
            jobs_s=settings.keep_jobs_days * 24 * 3600,
            uploads_s=settings.keep_uploads_hours * 3600,
            inferences_s=settings.keep_inferences_hours * 3600,
            grace_s=settings.gc_grace_s,
            models_s=settings.keep_models_days * 24 * 3600,
            scrub_bytes=settings.scrub_bytes,
            audit_s=settings.keep_audit_days * 24 * 3600,
        )


@dataclass(frozen=True)
class Swept:
    """What one round removed; `inferences` lost their arrays, `temporary` are files of writes that never ended.

    `owners` are those whose deletion is complete, `audit` entries of the audit log.
    """

    jobs: int = 0
    artifacts: int = 0
    uploads: int = 0
    inferences: int = 0
    blobs: int = 0
    temporary: int = 0
    models: int = 0
    owners: int = 0
    audit: int = 0


def sweep(db: Database, blobs: Blobs, rules: Rules, stop: threading.Event | None = None) -> Swept:
    """One round, which ends early once `stop` is set. Raises `DatabaseUnavailable` and `StorageUnavailable`."""
    purged = purge_doomed(db)
    gone = _old_jobs(db, rules.jobs_s) if rules.jobs_s > 0 else Gone()
    models = _old_models(db, rules.models_s) if rules.models_s > 0 else 0
    entries = _old_entries(db, rules.audit_s) if rules.audit_s > 0 else 0
    with db.delete() as session:
        uploads = retention.forget_uploads(session, rules.uploads_s)
        inferences = retention.forget_arrays(session, rules.inferences_s)
    garbage = collect(db, blobs, rules.grace_s, stop)
    garbage += _discard(db, blobs)
    if rules.scrub_bytes:
        found = integrity.scrub(db, blobs, rules.scrub_bytes, stop)
        if found.damaged or found.lost:
            log.error("bytes are not as they were kept", damaged=len(found.damaged), lost=len(found.lost))
    temporary = blobs.sweep(ABANDONED_S)
    db.forget()
    return Swept(
        jobs=gone.jobs,
        artifacts=gone.artifacts,
        uploads=uploads,
        inferences=inferences,
        blobs=garbage,
        temporary=temporary,
        models=models,
        owners=purged,
        audit=entries,
    )


def collect(db: Database, blobs: Blobs, grace_s: float, stop: threading.Event | None = None) -> int:
    """Delete the blobs that no row names and that were last written longer ago than the grace; how many."""
    stop = stop or threading.Event()
    limit = time.time() - grace_s
    listed = blobs.keys()
    old = (key for key, written in listed if written < limit and not stop.is_set())
    removed = 0
    while garbage := set(itertools.islice(old, KEYS_AT_ONCE)):
        with db.read() as session:
            for key in retention.referenced(session):
                garbage.discard(key)
        for key in garbage:
            if stop.is_set():
                return removed
            blobs.delete(key, unless_written_since=limit)
            removed += 1
        with db.delete() as session:
            kept.forget(session, garbage, grace_s)
    return removed


def _discard(db: Database, blobs: Blobs) -> int:
    """Remove what was set aside of keys that no row names any more; how many."""
    aside = list(blobs.set_aside())
    if not aside:
        return 0
    with db.read() as session:
        named = retention.named(session, [key for _, key in aside])
    unnamed = [name for name, key in aside if key not in named]
    for name in unnamed:
        blobs.discard(name)
    return len(unnamed)


def loop(db: Database, blobs: Blobs, stop: threading.Event, *, every_s: float, rules: Rules) -> None:
    """A round every `every_s` seconds until `stop` is set; a database or store that is away is waited for.

    While the reserve is freed there is one every `PRESSED_EVERY_S`, and it is filled again once there is room.
    """
    db.reserve.fill()
    due = time.monotonic() + every_s
    while not stop.wait(min(every_s, PRESSED_EVERY_S)):
        if time.monotonic() < due and not db.reserve.is_freed:
            continue
        due = time.monotonic() + every_s
        try:
            swept = sweep(db, blobs, rules, stop)
        except (DatabaseUnavailable, StorageUnavailable) as error:
            log.warning("sweep failed", error=error.message)
            continue
        if swept != Swept():
            log.info("swept", **vars(swept))
        db.reserve.fill()


def _old_jobs(db: Database, older_than_s: float) -> Gone:
    with db.read() as session:
        whose = retention.owners_of_old_jobs(session, older_than_s)
    gone = Gone()
    for owner in whose:
        batch = None
        while batch is None or batch.jobs >= retention.BATCH:
            with db.delete() as session:
                owners.lock(session, owner)  # nobody is promised one of these artifacts meanwhile
                batch = retention.delete_jobs(session, retention.old_jobs(session, owner, older_than_s))
            gone += batch
    return gone


def _old_models(db: Database, older_than_s: float) -> int:
    with db.read() as session:
        unused = retention.unused_models(session, older_than_s)
    gone = 0
    for owner, digest in unused:
        with db.delete() as session:
            owners.lock(session, owner)  # nobody submits a job for it meanwhile
            if (owner, digest) in retention.unused_models(session, older_than_s, digest):
                retention.delete_model(session, owner, digest)
                gone += 1
    return gone


def _old_entries(db: Database, older_than_s: float) -> int:
    removed, batch = 0, audit.BATCH
    while batch >= audit.BATCH:
        with db.delete() as session:
            batch = audit.forget(session, older_than_s)
        removed += batch
    return removed
