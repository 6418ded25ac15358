"""The thread that writes to the workers' table that this worker is alive.

It also says what the worker is busy with, and what its compiler can do.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compiler.contract import COMPILER_VERSION
from service.db.engine import Database
from service.errors import DatabaseUnavailable
from service.jobs.operations.lost_lines import LostLines
from service.jobs.scheduling import catalogue, lease
from service.logs import logger
from service.threads import lasting

_RETRY_S = 0.5

log = logger(__name__)


class StatusThread:
    """Reports every `every_s` seconds, from `start` to `stop`, and at once when `busy_with` changes.

    published  gives the catalogues to publish, by name; once, as soon as the database takes them
    """

    def __init__(
        self,
        db: Database,
        name: str,
        queues: Sequence[str],
        hardware: Mapping[str, Any],
        every_s: float,
        published: Callable[[], Mapping[str, Sequence[dict[str, Any]]]] = dict,
    ) -> None:
        self._db, self._name, self._queues, self._hardware, self._every_s = db, name, queues, dict(hardware), every_s
        self._published = published
        self._unpublished: dict[str, Sequence[dict[str, Any]]] | None = None
        self._busy_with: uuid.UUID | None = None
        self._wake = threading.Event()
        self._ending = False
        self._thread = lasting("presence", self._report, lambda: self._ending)

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()

    def busy_with(self, job_id: uuid.UUID | None) -> None:
        """Name the job this worker runs, or None."""
        self._busy_with = job_id
        self._wake.set()

    def device_is_taken(self, taken: bool, holder: int | None = None) -> None:
        """Say whether another process holds the device, for which this worker waits, and which one.

        holder  its process id, if that is known. It is reported when the device is found taken twice in succession: a
                worker without jobs holds it only for as long as it looks for one
        """
        before = self._hardware.get("device_taken", False)
        said = {"device_taken": taken, "device_holder": holder if taken and before else None}
        if any(self._hardware.get(name) != value for name, value in said.items() if value or name in self._hardware):
            self._hardware = {**self._hardware, **said}
            self._wake.set()

    def stop(self, patience_s: float) -> None:
        """Report no more."""
        self._ending = True
        self._wake.set()
        self._thread.join(patience_s)

    def _report(self) -> None:
        retry_s, lost = _RETRY_S, LostLines()
        while not self._ending:
            self._wake.clear()
            pause = self._every_s
            try:
                lease.seen(self._db, self._name, self._queues, self._hardware, COMPILER_VERSION, self._busy_with)
                retry_s = _RETRY_S
                lost.count(self._db)
                self._publish()
            except DatabaseUnavailable as error:
                log.warning("cannot report presence", reason=error.message)
                pause, retry_s = min(pause, retry_s), 2 * retry_s
            except Exception:
                # Whatever is wrong with the catalogues must not make a worker that works look dead.
                log.exception("cannot publish what the compiler can do")
            self._wake.wait(pause)

    def _publish(self) -> None:
        if self._unpublished is None:
            self._unpublished = dict(self._published())
        while self._unpublished and not self._ending:
            name = next(iter(self._unpublished))
            catalogue.publish(self._db, name, COMPILER_VERSION, self._unpublished[name])
            del self._unpublished[name]
