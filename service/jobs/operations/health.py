"""Whether everything is up that a compilation needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.blobs.store import Blobs
from service.db import totals, workers
from service.db.engine import Database
from service.db.migrate import require_usable
from service.db.models import Worker
from service.errors import NotReady, ServiceError
from service.jobs.scheduling.doorbell import Ring


@dataclass(frozen=True)
class Check:
    """One part of the service; `detail` says what is wrong and what to do, or what is there."""

    name: str
    ok: bool
    detail: str


def checks(db: Database, ring: Ring, blobs: Blobs, worker_alive_s: float) -> list[Check]:
    """Database, broker, blobs and workers, each tried now: a row and a blob are written. Never raises."""

    def workers_check() -> str:
        names = [worker.name for worker in alive(db, worker_alive_s)]
        if not names:
            raise NotReady("no worker is alive", fix="start one with python -m worker")
        return ", ".join(names)

    def database_check() -> str:
        require_usable(db)
        with db.write() as session:
            totals.count(session, "readiness_checks")
        return db.engine.dialect.name

    return [
        _check("database", database_check),
        _check("broker", ring.check),
        _check("blobs", blobs.check),
        _check("workers", workers_check),
    ]


def alive(db: Database, within_s: float) -> Sequence[Worker]:
    """Workers that reported within the last `within_s` seconds."""
    with db.read() as session:
        return workers.alive(session, within_s)


def _check(name: str, attempt: Callable[[], str | None]) -> Check:
    try:
        return Check(name, True, attempt() or "answers")
    except ServiceError as error:
        return Check(name, False, f"{error.message}; {error.fix}" if error.fix else error.message)
