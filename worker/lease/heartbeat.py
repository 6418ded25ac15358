"""The thread that keeps a claim alive.

It renews the lease, carries events and measurements to the database, and brings the owner's wish back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from compiler.contract import LIVE
from service.db.engine import Database
from service.errors import DatabaseUnavailable
from service.jobs.scheduling import lease
from service.jobs.scheduling.lease import NOTHING, Measured, Said
from service.logs import logger
from service.threads import lasting
from worker.lease.wakeup import Wakeup

BATCH_EVERY_S = 0.5
"""Events and measurements wait this long for company: one transaction for all."""
LIVE_EVERY_S = 0.1
"""Tokens and pieces of sound wait no longer than this: somebody reads or hears them."""
BEAT_EVERY_S = 1.0
"""The longest pause between beats, however long the lease: so soon the owner's wish to cancel or to finish is known."""
MAX_ENTRIES = 10_000
"""Events that one attempt may leave in the job's log."""
_RETRY_S = 1.0

log = logger(__name__)


@dataclass(frozen=True)
class _Batch:
    """What one beat brings to the database. Sent again under its number, and unchanged, it is written once."""

    events: list[Said]
    measured: Measured
    number: int

    @property
    def empty(self) -> bool:
        return not self.events and self.measured == NOTHING


class Heartbeat:
    """Beats every third of the lease or more often, from `start` to `stop`.

    It also beats with each batch of events and measurements.

    When the database is away it tries again for as long as the job runs: no other worker can take the job then, and if
    only this one was cut off, the fence keeps it from writing and the first answer says `lost`.

    finish  is called, in this thread and perhaps many times, when the owner wants the best found so far
    """

    def __init__(
        self, db: Database, claim: lease.Claim, wakeup: Wakeup, finish: Callable[[], None] = lambda: None
    ) -> None:
        self._db = db
        self._claim = claim
        self._wakeup = wakeup
        self._finish = finish
        self._waiting: list[Said] = []
        self._measured: list[Measured] = []
        self._unanswered: _Batch | None = None
        self._batches = 0
        self._entries = 0
        self._changed = threading.Condition()
        self._ending = False
        self._thread = lasting("heartbeat", self._beat, lambda: self._ending)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def tell(self, event: Said) -> None:
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

    def keep(self, measured: Measured) -> None:
        """Have measurements written soon."""
        with self._changed:
            self._measured.append(measured)
            self._changed.notify()

    def flush(self) -> Measured:
        """Write the events that wait, now, in this thread; called after `stop`. Raises `DatabaseUnavailable`.

        Returns the measurements that wait: they are to be written with the outcome.
        """
        again, self._unanswered = self._unanswered, None
        if again is not None:
            self._say(again)
        batch = self._take()
        if batch.events:
            try:
                self._say(_Batch(batch.events, NOTHING, batch.number))
            except DatabaseUnavailable:
                self.keep(batch.measured)
                raise
        return batch.measured

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
                while not self._ending and (left := self._due(beaten) - time.monotonic()) > 0:
                    self._changed.wait(left)
                if self._ending:
                    return
            again, self._unanswered = self._unanswered, None
            try:
                self._send(again or self._take())
                beaten = time.monotonic()
            except DatabaseUnavailable as error:
                log.warning("heartbeat failed", job=str(self._claim.job_id), reason=error.message)
                self._pause()
            except Exception:
                # Whatever the child said must not cost the lease: without it the next beat goes through.
                log.exception("what the job told is left out", job=str(self._claim.job_id))
                self._pause()

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ending, _RETRY_S)

    def _due(self, beaten: float) -> float:
        pause = min(self._claim.lease_s / 3, BEAT_EVERY_S)
        if self._waiting and self._waiting[-1].kind in LIVE:
            return beaten + min(pause, LIVE_EVERY_S)
        return beaten + (min(pause, BATCH_EVERY_S) if self._waiting or self._measured or self._unanswered else pause)

    def _take(self) -> _Batch:
        with self._changed:
            events, self._waiting = self._waiting, []
            pieces, self._measured = self._measured, []
            self._batches += 1
        records = tuple(record for piece in pieces for record in piece.records)
        texts = {key: text for piece in pieces for key, text in piece.workloads.items()}
        return _Batch(events, Measured(records, texts), self._batches)

    def _say(self, batch: _Batch) -> str:
        """Raises `DatabaseUnavailable`; whether it was written is unknown then, and it goes first next time."""
        number = None if batch.empty else batch.number
        try:
            return lease.heartbeat(self._db, self._claim, batch.events, batch.measured, batch=number)
        except DatabaseUnavailable:
            self._unanswered = None if batch.empty else batch
            raise

    def _send(self, batch: _Batch) -> None:
        match self._say(batch):
            case "cancel":
                self._wakeup.ring("cancel")
            case "lost":
                self._wakeup.ring("lost")
            case "finish":
                self._finish()
            case "ok":
                pass
