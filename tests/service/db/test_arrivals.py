from __future__ import annotations

import select
import uuid
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from service.db import arrivals
from service.db.arrivals import Arrivals
from service.db.engine import Database
from service.db.models import Job
from service.jobs.lifecycle import labels
from service.jobs.scheduling import lease

WITHIN_S = 30.0


@pytest.fixture
def watched(db: Database) -> Iterator[Callable[..., Arrivals]]:
    """Makes arrivals of queues; closed at the end."""
    made: list[Arrivals] = []

    def watch(*queues: str) -> Arrivals:
        made.append(arrivals.arrivals(db, queues))
        return made[-1]

    yield watch
    for one in made:
        one.close()


def has_come(one: Arrivals) -> bool:
    """Whether something has, without waiting for what comes later; PostgreSQL is given time to say so."""
    if reported := one.descriptors():
        select.select(reported, [], [], WITHIN_S if one.every_s > WITHIN_S else 0)
    return one.came()


def test_a_job_that_comes_is_told_once_to_those_who_serve_its_queue(
    watched: Callable[..., Arrivals], queued: Callable[..., Job], owner: uuid.UUID, db: Database
) -> None:
    queued()
    mine, others = watched("cuda", "cpu"), watched("cuda")
    assert not mine.came(), "it was there before"
    job = queued()
    assert has_come(mine)
    assert not mine.came()
    labels.label_job(db, owner, job.id, {"name": "nightly"})
    assert not mine.came(), "a change of a job that waits is no new one"
    queued()
    assert has_come(mine)
    assert not others.came()


def test_a_job_that_was_claimed_meanwhile_or_waits_for_another_does_not_come(
    watched: Callable[..., Arrivals], queued: Callable[..., Job], claimed: Callable[..., lease.Claim], db: Database
) -> None:
    mine = watched("cpu")
    queued()
    claimed()
    if mine.every_s < WITHIN_S:
        assert not mine.came()
    with db.write() as session:
        session.execute(sa.update(Job).values(state="QUEUED", blocked_by=1))
    if mine.every_s < WITHIN_S:
        assert not mine.came()


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_who_listens_on_a_connection_that_broke_listens_on_another_some_time_later(
    watched: Callable[..., Arrivals], queued: Callable[..., Job], db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "CONNECT_AGAIN_S", 600.0)
    mine = watched("cpu")
    with db.write() as session:
        session.execute(sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"))
    for _ in range(5):  # what the server says before it hangs up comes first
        if mine.descriptors():
            assert not has_come(mine)
    assert not mine.descriptors(), "it is not tried again at once"
    monkeypatch.setattr(mine, "_connect_at", 0.0)
    assert mine.descriptors()
    queued()
    assert has_come(mine)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_database_that_is_away_tells_nothing(
    watched: Callable[..., Arrivals], queued: Callable[..., Job], db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = watched("cpu")
    queued()
    with monkeypatch.context() as broken:
        broken.setattr(mine, "_connection", None)
        broken.setattr(
            db.engine, "raw_connection", lambda: (_ for _ in ()).throw(sa.exc.OperationalError("", {}, ValueError()))
        )
        assert not mine.came()
    assert mine.came()
