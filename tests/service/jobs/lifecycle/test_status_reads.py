from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from service.db.engine import Database
from service.db.models import Job
from service.errors import DatabaseUnavailable, NotFound
from service.jobs.lifecycle.status_reads import Board
from service.jobs.scheduling import lease


@pytest.fixture
def queries(db: Database) -> list[str]:
    """Every SELECT of jobs that is sent."""
    sent: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        if "FROM jobs" in statement and "count(" not in statement:
            sent.append(statement)

    sa.event.listen(db.engine, "before_cursor_execute", note)
    return sent


def test_questions_that_come_together_share_queries(
    db: Database, owner: uuid.UUID, queued: Callable[..., Job], queries: list[str]
) -> None:
    made = [queued() for _ in range(5)]
    board = Board(db)

    async def ask() -> list[Any]:
        return await asyncio.gather(*(board.job(owner, job.id) for job in made for _ in range(20)))

    queries.clear()
    found = asyncio.run(ask())
    assert [answer.job.id for answer in found] == [job.id for job in made for _ in range(20)]
    assert {answer.queue_position for answer in found} == {0, 1, 2, 3, 4}
    assert len(queries) <= 2


def test_an_answer_is_never_older_than_its_question(
    db: Database, owner: uuid.UUID, queued: Callable[..., Job], claimed: Callable[..., lease.Claim]
) -> None:
    job = queued()
    board = Board(db)

    async def ask() -> tuple[Any, Any]:
        before = await board.job(owner, job.id)
        early = asyncio.ensure_future(board.job(owner, job.id))
        await asyncio.sleep(0)
        await asyncio.to_thread(claimed)
        after = await board.job(owner, job.id)
        await early
        return before, after

    before, after = asyncio.run(ask())
    assert (before.job.state, after.job.state) == ("QUEUED", "LEASED")


def test_jobs_of_others_and_of_nobody_are_not_found(db: Database, owner: uuid.UUID, queued: Callable[..., Job]) -> None:
    job = queued()
    board = Board(db)

    async def ask() -> list[Any]:
        questions = [board.job(uuid.uuid4(), job.id), board.job(owner, uuid.uuid4()), board.job(owner, job.id)]
        return await asyncio.gather(*questions, return_exceptions=True)

    stranger, nothing, mine = asyncio.run(ask())
    assert isinstance(stranger, NotFound)
    assert isinstance(nothing, NotFound)
    assert mine.job.id == job.id


def test_a_database_that_is_away_is_told_to_all_and_asked_again(
    db: Database, owner: uuid.UUID, queued: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queued()
    board = Board(db)

    def away() -> Any:
        raise DatabaseUnavailable("away")

    async def ask() -> list[Any]:
        return await asyncio.gather(*(board.job(owner, job.id) for _ in range(3)), return_exceptions=True)

    with monkeypatch.context() as broken:
        broken.setattr(db, "read", away)
        assert all(isinstance(answer, DatabaseUnavailable) for answer in asyncio.run(ask()))
    assert all(answer.job.id == job.id for answer in asyncio.run(ask()))


def test_an_asker_who_goes_away_takes_nothing_from_the_others(
    db: Database, owner: uuid.UUID, queued: Callable[..., Job]
) -> None:
    job = queued()
    board = Board(db)

    async def ask() -> Any:
        first = asyncio.ensure_future(board.job(owner, job.id))
        second = asyncio.ensure_future(board.job(owner, job.id))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(ask()).job.id == job.id


def test_a_fault_is_told_to_those_who_asked_and_holds_up_nobody_else(
    db: Database, owner: uuid.UUID, queued: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = queued(), queued()
    board = Board(db)
    answer = board._found
    read, broken, release = threading.Event(), threading.Event(), threading.Event()

    def breaks_once(questions: Any) -> Any:
        if not broken.is_set():
            broken.set()
            read.set()
            release.wait(120)
            raise ZeroDivisionError("a fault of ours")
        return answer(questions)

    async def ask() -> list[Any]:
        early = asyncio.ensure_future(board.job(owner, first.id))
        await asyncio.to_thread(read.wait, 120)
        late = asyncio.ensure_future(board.job(owner, second.id))  # waits for the query after the one that fails
        await asyncio.sleep(0)
        release.set()
        both = await asyncio.wait_for(asyncio.gather(early, late, return_exceptions=True), 120)
        return list(both)

    monkeypatch.setattr(board, "_found", breaks_once)
    reported, found = asyncio.run(ask())
    assert isinstance(reported, ZeroDivisionError)
    assert found.job.id == second.id
