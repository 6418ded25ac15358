from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable

import pytest

from compiler.contract import Event
from service.db.engine import Database
from service.db.models import Job, JobState
from service.errors import NotFound
from service.jobs.lifecycle import find
from service.jobs.lifecycle.events import Feed
from service.jobs.scheduling import lease


def test_two_hundred_streams_share_one_poll(
    db: Database, queued: Callable[..., Job], claimed: Callable[..., lease.Claim], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [queued() for _ in range(4)]
    claims = [claimed() for _ in made]
    polls = 0
    running = 0
    newest = Feed._newest

    def counted(feed: Feed, job_ids: tuple[uuid.UUID, ...]) -> dict[uuid.UUID, tuple[int, JobState]]:
        nonlocal polls, running
        polls, running = polls + 1, running + 1
        assert running == 1, "never two at once"
        try:
            return newest(feed, job_ids)
        finally:
            running -= 1

    monkeypatch.setattr(Feed, "_newest", counted)

    def work() -> None:
        for step in range(4):
            for claim in claims:
                lease.heartbeat(db, claim, [Event("progress", "tile", step / 4)])
        for claim in claims:
            lease.cancelled(db, claim)

    async def listen(feed: Feed, job: Job) -> list[int]:
        return [line.seq async for batch in feed.follow(job.owner_id, job.id, 0, 60) for line in batch]

    async def everything() -> list[list[int]]:
        feed = Feed(db, 0.01)
        streams = [asyncio.create_task(listen(feed, made[number % 4])) for number in range(200)]
        await asyncio.sleep(0.2)
        await asyncio.to_thread(work)
        return await asyncio.gather(*streams)

    heard = asyncio.run(everything())
    assert heard == [list(range(1, 9))] * 200
    assert polls > 0


def test_a_long_log_comes_in_batches(
    db: Database, queued: Callable[..., Job], claimed: Callable[..., lease.Claim]
) -> None:
    queued()
    claim = claimed()
    lease.heartbeat(db, claim, [Event("progress", "tile", 0.5)] * (2 * find.EVENTS_PER_READ))
    lease.cancelled(db, claim)

    async def sizes() -> list[int]:
        return [len(batch) async for batch in Feed(db, 0.01).follow(claim.owner, claim.job_id, 0, 60)]

    assert asyncio.run(sizes()) == [find.EVENTS_PER_READ, find.EVENTS_PER_READ, 4]


def test_an_abandoned_stream_is_forgotten_and_polling_ends(db: Database, queued: Callable[..., Job]) -> None:
    job = queued()

    async def leave() -> None:
        feed = Feed(db, 0.01)
        async with contextlib.aclosing(feed.follow(job.owner_id, job.id, 0, 60)) as stream:  # type: ignore[type-var]
            assert [line.seq for line in await anext(stream)] == [1]
        assert feed._poller is not None
        await asyncio.wait_for(feed._poller, 10)

    asyncio.run(leave())


def test_nobody_follows_what_is_not_theirs(db: Database, queued: Callable[..., Job]) -> None:
    job = queued()

    async def pry() -> None:
        async for _ in Feed(db, 0.01).follow(uuid.uuid4(), job.id, 0, 60):
            pass

    with pytest.raises(NotFound):
        asyncio.run(pry())
