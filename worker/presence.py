"""The thread that says in the workers' table that this worker is alive, and what it is busy with."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from typing import Any

from service.db.engine import Database
from service.errors import DatabaseUnavailable
from service.jobs import lease
from service.logs import logger

_RETRY_S = 0.5

log = logger(__name__)


class Presence:
    """Reports every `every_s` seconds, from `start` to `stop`, and at once when `busy_with` changes."""

    def __init__(self, db: Database, name: str, queue: str, hardware: Mapping[str, Any], every_s: float) -> None:
        self._db, self._name, self._queue, self._hardware, self._every_s = db, name, queue, dict(hardware), every_s
        self._busy_with: uuid.UUID | None = None
        self._wake = threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._report, name="presence", daemon=True)

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()

    def busy_with(self, job_id: uuid.UUID | None) -> None:
        """Name the job this worker runs, or None."""
        self._busy_with = job_id
        self._wake.set()

    def stop(self, patience_s: float) -> None:
        """Report no more."""
        self._ending = True
        self._wake.set()
        self._thread.join(patience_s)

    def _report(self) -> None:
        while not self._ending:
            self._wake.clear()
            pause = self._every_s
            try:
                lease.seen(self._db, self._name, self._queue, self._hardware, self._busy_with)
            except DatabaseUnavailable as error:
                log.warning("cannot report presence", worker=self._name, reason=error.message)
                pause = min(pause, _RETRY_S)
            self._wake.wait(pause)
