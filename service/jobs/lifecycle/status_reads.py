"""Answer many questions after the state of jobs with few queries.

Questions that arrive while a query is under way wait and share the next one. So each answer is as fresh as a query of
its own would be, and a process that is asked a thousand times a second asks its database two hundred times.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Mapping, Sequence

from service.db import jobs
from service.db.engine import Database
from service.jobs.lifecycle.find import Found, no_such_job

Question = tuple[uuid.UUID, uuid.UUID]
"""Owner and job."""
Asked = Sequence[asyncio.Future[Found]]
"""One for each who asked the same."""

MOST_AT_ONCE = 200
PACE_S = 0.005
"""From the beginning of a query that answered several to that of the next one: a query costs as much as the rows of
twenty. Who asks alone never waits for it."""


class Board:
    """The questions of one process; to be used inside one event loop."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: dict[Question, list[asyncio.Future[Found]]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def job(self, owner: uuid.UUID, job_id: uuid.UUID) -> Found:
        """One job, as it is now or later. Raises `NotFound` and `DatabaseUnavailable`."""
        asked: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((owner, job_id), []).append(asked)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        return await asked

    async def _read(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._waiting:
            begun = clock()
            batch = {question: self._waiting.pop(question) for question in list(self._waiting)[:MOST_AT_ONCE]}
            try:
                found = await asyncio.to_thread(self._found, batch.keys())
            except Exception as error:  # each of those who asked raises it; the next batch is read all the same
                _answer_all(batch, error)
                continue
            except BaseException as error:
                _answer_all(batch | self._waiting, error)
                self._waiting.clear()
                raise
            for (owner, job_id), asked in batch.items():
                _answer(asked, found.get((owner, job_id)) or no_such_job(job_id))
            if sum(map(len, batch.values())) > 1:
                await asyncio.sleep(begun + PACE_S - clock())

    def _found(self, questions: Collection[Question]) -> Mapping[Question, Found]:
        with self._db.read() as session:
            rows = jobs.status_rows(session, {job_id for _, job_id in questions})
            places = jobs.positions(session, rows)
            return {(row.owner_id, row.id): Found(row, places.get(row.id)) for row in rows}


def _answer_all(batch: Mapping[Question, Asked], error: BaseException) -> None:
    for asked in batch.values():
        _answer(asked, error)


def _answer(asked: Asked, answer: Found | BaseException) -> None:
    for one in asked:
        if one.done():  # who asked has gone away
            continue
        if isinstance(answer, BaseException):
            one.set_exception(answer)
            one.exception()  # whoever asked may go away before being told: then nobody else looks at it
        else:
            one.set_result(answer)
