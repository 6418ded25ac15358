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
from service.jobs.lifecycle import cancel
from service.jobs.operations import reconcile
from service.jobs.scheduling import lease
from service.jobs.scheduling.doorbell import announce

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
    assert reconcile.reconcile(db, ring) == reconcile.Summary(requeued=1, rung=1, unserved=1)
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
    assert reconcile.reconcile(db, ring, ring_again_after_s=60).rung == 0
    with db.write() as session:
        session.execute(sa.update(Job).values(published_at=Job.published_at - 61))
    assert reconcile.reconcile(db, ring, ring_again_after_s=60).rung == 1
    assert reconcile.reconcile(db, ring, ring_again_after_s=60).rung == 0


def test_a_queue_is_rung_once_for_each_live_worker_not_for_each_job(db: Database, queued: Make, ring: Any) -> None:
    for _ in range(5):
        queued()
    lease.seen(db, "w1", ["cpu"], {}, "0.1.0")
    lease.seen(db, "w2", ["cpu"], {}, "0.1.0")
    assert reconcile.reconcile(db, ring, ring_again_after_s=-1).rung == 2


def test_a_broken_broker_fails_nothing_and_is_tried_again(db: Database, queued: Make, ring: Any) -> None:
    job = queued()
    ring.broken = True
    assert row(db, job.id).published_at is not None
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


def notices(db: Database, job_id: uuid.UUID) -> list[str]:
    with db.read() as session:
        said = session.scalars(sa.select(Event).where(Event.job_id == job_id, Event.kind == "notice")).all()
    return [str(event.data["message"]) for event in said]


def test_a_job_that_no_live_worker_serves_is_told_so_once_until_one_does(
    db: Database, queued: Make, claimed: Take, ring: Any
) -> None:
    lease.seen(db, "w1", ["cpu"], {}, "0.1.0")
    served, waits = queued(), queued(target="cuda:sm_90")
    assert [reconcile.reconcile(db, ring).unserved for _ in range(2)] == [1, 0]
    assert row(db, waits.id).unserved_since is not None
    assert notices(db, waits.id) == ["no live worker serves cuda:sm_90: the job waits until one does"]
    assert (row(db, served.id).unserved_since, notices(db, served.id)) == (None, [])
    lease.seen(db, "w2", ["cuda:sm_90"], {}, "0.1.0")
    assert reconcile.reconcile(db, ring).unserved == 0
    assert row(db, waits.id).unserved_since is None
    assert reconcile.reconcile(db, ring, worker_alive_s=-1).unserved == 2, "both workers count as dead"
    assert len(notices(db, waits.id)) == 2


def test_a_job_whose_device_another_process_holds_is_told_which_once(db: Database, queued: Make, ring: Any) -> None:
    def waits(name: str, holder: int | None, taken: bool = True) -> None:
        lease.seen(db, name, ["cpu"], {"device": "cpu", "device_taken": taken, "device_holder": holder}, "0.1.0")

    job, elsewhere = queued(), queued(target="cuda:sm_90")
    waits("w1", None)
    assert reconcile.reconcile(db, ring).held_up == 0, "for a moment, perhaps"
    waits("w1", 4711)
    lease.seen(db, "w2", ["cpu"], {"device": "cpu"}, "0.1.0")
    assert reconcile.reconcile(db, ring).held_up == 0, "another worker may take it"
    waits("w2", 4712)
    assert [reconcile.reconcile(db, ring).held_up for _ in range(2)] == [1, 0]
    (said,) = notices(db, job.id)
    assert said.startswith("process 4711 holds the device cpu of w1, process 4712 holds the device cpu of w2: ")
    assert not any("holds" in one for one in notices(db, elsewhere.id))
    waits("w2", None, taken=False)
    assert reconcile.reconcile(db, ring).held_up == 0
    waits("w2", 4713)
    assert reconcile.reconcile(db, ring).held_up == 1, "another process"
    assert len(notices(db, job.id)) == 2


def test_many_reconcilers_at_once_tell_a_job_once_which_process_holds_its_device(
    db: Database, queued: Make, ring: Any
) -> None:
    ids = [queued().id for _ in range(5)]
    lease.seen(db, "w1", ["cpu"], {"device": "cpu", "device_taken": True, "device_holder": 4711}, "0.1.0")
    with ThreadPoolExecutor(4) as threads:
        rounds = list(threads.map(lambda _: reconcile.reconcile(db, ring), range(8)))
    assert sum(each.held_up for each in rounds) == 5
    assert [len(notices(db, one)) for one in ids] == [1] * 5


def test_a_job_that_waited_longer_than_it_may_fails_and_one_that_was_begun_does_not(
    db: Database, queued: Make, claimed: Take, ring: Any, expire: Callable[..., None]
) -> None:
    begun, late, patient = queued(), queued(), queued()
    expire(claimed())
    with db.write() as session:
        limited = sa.update(Job).where(Job.id.in_([begun.id, late.id])).values(max_queue_s=60.0)
        session.execute(limited)
        session.execute(sa.update(Job).values(created_at=Job.created_at - 61))
        session.execute(sa.update(Job).where(Job.id == patient.id).values(max_queue_s=62.0))
    assert [reconcile.reconcile(db, ring).overdue for _ in range(2)] == [1, 0]
    states = [row(db, job.id).state for job in (begun, late, patient)]
    assert states == [JobState.QUEUED, JobState.FAILED, JobState.QUEUED]
    problem = row(db, late.id).problem
    assert problem is not None
    assert (problem["code"], problem["fault"], problem["details"]) == (
        "queue_time_limit",
        "machine",
        {"limit_s": 60.0, "queue": "cpu"},
    )


def test_many_reconcilers_and_workers_at_once_end_a_job_that_waited_too_long_once(
    db: Database, queued: Make, ring: Any
) -> None:
    made = [queued() for _ in range(6)]
    with db.write() as session:
        session.execute(sa.update(Job).values(max_queue_s=1.0, created_at=Job.created_at - 2))
    with ThreadPoolExecutor(4) as pool:
        rounds = [pool.submit(reconcile.reconcile, db, ring) for _ in range(2)]
        claims = [pool.submit(lease.claim, db, f"w{number}", ["cpu"], 60.0) for number in range(2)]
        failed = sum(one.result().overdue for one in rounds)
        held = sum(one.result() is not None for one in claims)
    assert failed + held == len(made), "every job either failed or has a worker, none both"
