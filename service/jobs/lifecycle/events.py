"""Follow the event logs of many jobs with one poll of the database for the whole process.

PostgreSQL could notify and SQLite cannot; a query for the newest event numbers of the watched jobs, ten times a
second, costs less than a hundredth of a core and serves hundreds of streams on both.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from service.db import jobs
from service.db.engine import Database
from service.db.models import Event, JobState
from service.errors import DatabaseUnavailable
from service.jobs.lifecycle import find, transitions
from service.logs import logger
from service.threads import lasting_task

AWAY_S = 1.0
"""Pause while the database does not answer."""

log = logger(__name__)


@dataclass(eq=False)
class _Watch:
    """One stream: the last number it was given, and the flag that there is more."""

    seq: int
    more: asyncio.Event = field(default_factory=asyncio.Event)


class Feed:
    """The streams of one process; to be used inside one event loop."""

    def __init__(self, db: Database, poll_s: float) -> None:
        self._db = db
        self._poll_s = poll_s
        self._watched: dict[uuid.UUID, set[_Watch]] = {}
        self._awaited: dict[uuid.UUID, set[asyncio.Future[None]]] = {}
        self._poller: asyncio.Task[None] | None = None

    async def follow(
        self, owner: uuid.UUID, job_id: uuid.UUID, after: int, idle_s: float
    ) -> AsyncIterator[Sequence[Event]]:
        """Batches of the job's events numbered above `after`, in order, until the job has ended.

        An empty batch is given whenever `idle_s` seconds pass without an event. Raises `NotFound` and
        `DatabaseUnavailable`.
        """
        watch = _Watch(after)
        self._watched.setdefault(job_id, set()).add(watch)
        self._look()
        try:
            while True:
                watch.more.clear()
                lines, ended = await asyncio.to_thread(find.log, self._db, owner, job_id, watch.seq)
                if lines:
                    watch.seq = lines[-1].seq
                    yield lines
                if ended:
                    return
                if len(lines) == find.EVENTS_PER_READ:
                    continue
                try:
                    await asyncio.wait_for(watch.more.wait(), idle_s)
                except TimeoutError:
                    yield ()
        finally:
            self._watched[job_id].discard(watch)
            if not self._watched[job_id]:
                del self._watched[job_id]

    async def end(self, job_id: uuid.UUID) -> None:
        """Return when the job has ended, or is not there any more; a database that is away is waited for."""
        ended = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(job_id, set()).add(ended)
        self._look()
        try:
            await ended
        finally:
            self._awaited[job_id].discard(ended)
            if not self._awaited[job_id]:
                del self._awaited[job_id]

    def _look(self) -> None:
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(lasting_task("events", self._poll))

    async def _poll(self) -> None:
        while self._watched or self._awaited:
            asked = {*self._watched, *self._awaited}
            try:
                newest = await asyncio.to_thread(self._newest, asked)
            except DatabaseUnavailable as error:
                log.warning("event poll failed", error=error.message)
                await asyncio.sleep(AWAY_S)
                continue
            for job_id, (seq, _) in newest.items():
                for watch in self._watched.get(job_id, ()):
                    if seq > watch.seq:
                        watch.more.set()
            for job_id, waiting in self._awaited.items():
                if job_id in asked and (job_id not in newest or newest[job_id][1] in transitions.TERMINAL):
                    _answer(waiting)
            await asyncio.sleep(self._poll_s)

    def _newest(self, job_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, tuple[int, JobState]]:
        with self._db.read() as session:
            return jobs.last_events(session, job_ids)


def _answer(waiting: Iterable[asyncio.Future[None]]) -> None:
    for one in waiting:
        if not one.done():
            one.set_result(None)
