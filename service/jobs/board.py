"""Answer many questions after the state of jobs with few queries.

Questions that arrive while a query is under way wait and share the next one. So each answer is as fresh as a query of
its own would be, and a process that is asked a thousand times a second asks its database a hundred times.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Mapping

from service.db import jobs
from service.db.engine import Database
from service.jobs.find import Found, no_such_job

Question = tuple[uuid.UUID, uuid.UUID]
"""Owner and job."""

MOST_AT_ONCE = 200


class Board:
    """The questions of one process; to be used inside one event loop."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: dict[Question, asyncio.Future[Found]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def job(self, owner: uuid.UUID, job_id: uuid.UUID) -> Found:
        """One job, as it is now or later. Raises `NotFound` and `DatabaseUnavailable`."""
        asked = self._waiting.get((owner, job_id))
        if asked is None:
            asked = asyncio.get_running_loop().create_future()
            self._waiting[owner, job_id] = asked
            if self._reader is None or self._reader.done():
                self._reader = asyncio.create_task(self._read())
        return await asyncio.shield(asked)  # one asker who goes away takes nothing from the others

    async def _read(self) -> None:
        while self._waiting:
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

    def _found(self, questions: Collection[Question]) -> Mapping[Question, Found]:
        with self._db.read() as session:
            rows = jobs.by_ids(session, {job_id for _, job_id in questions})
            places = jobs.positions(session, rows)
            return {(row.owner_id, row.id): Found(row, places.get(row.id)) for row in rows}


def _answer_all(batch: Mapping[Question, asyncio.Future[Found]], error: BaseException) -> None:
    for asked in batch.values():
        _answer(asked, error)


def _answer(asked: asyncio.Future[Found], answer: Found | BaseException) -> None:
    if asked.done():
        return
    if isinstance(answer, BaseException):
        asked.set_exception(answer)
        asked.exception()  # whoever asked may have gone away: then nobody else looks at it
    else:
        asked.set_result(answer)
