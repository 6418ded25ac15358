"""The thread that keeps a claim alive: renews the lease, carries events to the database, brings the owner's wish back."""

from __future__ import annotations

import threading
import time

from compiler.contract import Event
from service.db.engine import Database
from service.errors import DatabaseUnavailable
from service.jobs import lease
from service.logs import logger
from worker.bell import Bell

BATCH_EVERY_S = 0.5
"""Events wait this long for company: one transaction for all."""
MAX_ENTRIES = 10_000
"""Events that one attempt may leave in the job's log."""
_RETRY_S = 1.0

log = logger(__name__)


class Heartbeat:
    """Beats every third of the lease, and with each batch of events, from `start` to `stop`.

    When the database is away it tries again for as long as the job runs: no other worker can take the job then, and if
    only this one was cut off, the fence keeps it from writing and the first answer says `lost`.
    """

    def __init__(self, db: Database, claim: lease.Claim, bell: Bell) -> None:
        self._db = db
        self._claim = claim
        self._bell = bell
        self._waiting: list[Event] = []
        self._entries = 0
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def tell(self, event: Event) -> None:
        """Have the event written soon. Progress between two batches collapses into its latest."""
        with self._changed:
            if self._entries >= MAX_ENTRIES:
                return
            if event.kind == "progress" and self._waiting and self._waiting[-1].kind == "progress":
                self._waiting[-1] = event
            else:
                self._waiting.append(event)
                self._entries += 1
            self._changed.notify()

    def flush(self) -> None:
        """Write what waits, now, in this thread; called after `stop`. Raises `DatabaseUnavailable`."""
        self._send(self._take())

    def stop(self, patience_s: float) -> None:
        """Beat no more; waits at most this long for a beat under way."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(patience_s)

    def _beat(self) -> None:
        beaten = time.monotonic() - self._claim.lease_s
        while True:
            with self._changed:
                due = beaten + self._claim.lease_s / 3
                while not self._ending and (left := self._due(due, beaten) - time.monotonic()) > 0:
                    self._changed.wait(left)
                if self._ending:
                    return
            batch = self._take()
            try:
                self._send(batch)
                beaten = time.monotonic()
            except DatabaseUnavailable as error:
                log.warning("heartbeat failed", job=str(self._claim.job_id), reason=error.message)
                with self._changed:
                    self._waiting[:0] = batch
                    if not self._ending:
                        self._changed.wait_for(lambda: self._ending, _RETRY_S)

    def _due(self, third: float, beaten: float) -> float:
        return min(third, beaten + BATCH_EVERY_S) if self._waiting else third

    def _take(self) -> list[Event]:
        with self._changed:
            batch, self._waiting = self._waiting, []
        return batch

    def _send(self, batch: list[Event]) -> None:
        match lease.heartbeat(self._db, self._claim, batch):
            case "cancel":
                self._bell.ring("cancel")
            case "lost":
                self._bell.ring("lost")
            case "ok":
                pass
