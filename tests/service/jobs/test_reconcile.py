from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from compiler.contract import Event as Said
from service.db import jobs
from service.db.engine import Database
from service.db.models import Event, Job, JobState
from service.errors import DatabaseUnavailable
from service.jobs import cancel, lease, reconcile
from service.jobs.doorbell import announce

Make = Callable[..., Job]
Take = Callable[..., lease.Claim]


def row(db: Database, job_id: uuid.UUID) -> Job:
    with db.write() as session:
        return jobs.locked(session, job_id)


def test_a_lease_that_holds_is_left_alone(db: Database, queued: Make, claimed: Take, ring: Any) -> None:
    queued()
    claim = claimed()
    assert reconcile.reconcile(db, ring) == reconcile.Summary()
    assert lease.heartbeat(db, claim, []) == "ok"


def test_an_expired_lease_goes_back_to_the_queue_and_is_rung_for(
    db: Database, queued: Make, claimed: Take, expire: Callable[..., None], ring: Any
) -> None:
    job = queued()
    assert announce(db, ring, job.id, job.queue)
    claim = claimed()
    lease.heartbeat(db, claim, [Said("progress", "tile", 0.4)])
    expire(claim)
    assert reconcile.reconcile(db, ring) == reconcile.Summary(requeued=1, rung=1)
    now = row(db, job.id)
    assert (now.state, now.lost_leases, now.fraction) == (JobState.QUEUED, 1, 0.0)
    assert ring.rung == ["cpu", "cpu"]
    assert lease.heartbeat(db, claim, []) == "lost"


def test_a_job_fails_after_three_lost_leases_and_says_why(
    db: Database, queued: Make, claimed: Take, expire: Callable[..., None], ring: Any
) -> None:
    job = queued()
    for _ in range(3):
        assert row(db, job.id).state == JobState.QUEUED
        expire(claimed())
        summary = reconcile.reconcile(db, ring, max_lost_leases=3)
    assert summary.failed == 1
    now = row(db, job.id)
    assert now.state == JobState.FAILED
    assert now.problem is not None
    assert (now.problem["code"], now.problem["fault"]) == ("worker_lost", "machine")
    with db.read() as session:
        last = session.scalars(sa.select(Event).where(Event.job_id == job.id).order_by(Event.seq.desc())).first()
    assert last is not None
    assert (last.data["state"], last.data["problem"]["code"]) == ("FAILED", "worker_lost")


def test_an_expired_job_that_was_to_be_cancelled_is_cancelled(
    db: Database, queued: Make, claimed: Take, expire: Callable[..., None], ring: Any
) -> None:
    job = queued()
    claim = claimed()
    cancel.cancel(db, job.owner_id, job.id)
    expire(claim)
    assert reconcile.reconcile(db, ring).cancelled == 1
    assert row(db, job.id).state == JobState.CANCELLED


def test_many_reconcilers_at_once_count_each_lost_lease_once(
    db: Database, queued: Make, claimed: Take, expire: Callable[..., None], ring: Any
) -> None:
    made = [queued() for _ in range(8)]
    for _ in made:
        expire(claimed())
    start = threading.Barrier(4)

    def mend(_: int) -> reconcile.Summary:
        start.wait()
        return reconcile.reconcile(db, ring)

    with ThreadPoolExecutor(4) as pool:
        summaries = list(pool.map(mend, range(4)))
    assert sum(summary.requeued for summary in summaries) == 8
    assert {row(db, job.id).lost_leases for job in made} == {1}


def test_a_lost_doorbell_is_rung_again_only_after_a_while(db: Database, queued: Make, ring: Any) -> None:
    queued()
    assert reconcile.reconcile(db, ring, ring_again_after_s=60).rung == 1
    assert reconcile.reconcile(db, ring, ring_again_after_s=60).rung == 0
    with db.write() as session:
        session.execute(sa.update(Job).values(published_at=Job.published_at - 61))
    assert reconcile.reconcile(db, ring, ring_again_after_s=60).rung == 1


def test_a_queue_is_rung_once_for_each_live_worker_not_for_each_job(db: Database, queued: Make, ring: Any) -> None:
    for _ in range(5):
        queued()
    lease.seen(db, "w1", ["cpu"], {}, "0.1.0")
    lease.seen(db, "w2", ["cpu"], {}, "0.1.0")
    assert reconcile.reconcile(db, ring).rung == 2


def test_a_broken_broker_fails_nothing_and_is_tried_again(db: Database, queued: Make, ring: Any) -> None:
    job = queued()
    ring.broken = True
    assert not announce(db, ring, job.id, job.queue)
    assert row(db, job.id).published_at is None
    assert reconcile.reconcile(db, ring).ring_failures == 1
    ring.broken = False
    assert reconcile.reconcile(db, ring, ring_again_after_s=-1).rung == 1


def test_the_loop_outlives_a_database_that_is_away(monkeypatch: pytest.MonkeyPatch, db: Database, ring: Any) -> None:
    stop = threading.Event()
    rounds: list[int] = []

    def one_round(*_: object, **__: object) -> reconcile.Summary:
        rounds.append(1)
        if len(rounds) == 1:
            raise DatabaseUnavailable("away")
        stop.set()
        return reconcile.Summary(requeued=1)

    monkeypatch.setattr(reconcile, "reconcile", one_round)
    reconcile.loop(db, ring, stop, every_s=0.001, ring_again_after_s=1, max_lost_leases=3, worker_alive_s=1)
    assert len(rounds) == 2
