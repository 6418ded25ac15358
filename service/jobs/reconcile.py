"""Mend what crashes leave behind: expired leases, and doorbells that were lost.

Any number of processes may do this at the same time; guarded UPDATEs decide who mends what.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from service.db import jobs, totals, workers
from service.db.engine import Database
from service.db.models import Job, JobState
from service.errors import DatabaseUnavailable
from service.jobs import life
from service.jobs.doorbell import Ring, try_ring
from service.logs import logger

BATCH = 200
FORGET_WORKER_S = 7 * 24 * 3600.0

log = logger(__name__)


@dataclass(frozen=True)
class Summary:
    """What one round did; counts of jobs, and of doorbells."""

    requeued: int = 0
    failed: int = 0
    cancelled: int = 0
    rung: int = 0
    ring_failures: int = 0


def reconcile(
    db: Database,
    ring: Ring,
    *,
    ring_again_after_s: float = 10.0,
    max_lost_leases: int = 3,
    worker_alive_s: float = 30.0,
) -> Summary:
    """One round; raises `DatabaseUnavailable`.

    Expired leases go back to QUEUED, or to FAILED when `max_lost_leases` have been lost. Queues with jobs whose
    doorbell is missing or older than `ring_again_after_s` are rung: once per job, once per live worker at most.
    """
    with db.read() as session:
        late = jobs.expired(session, BATCH)
    ends = [_expire(db, job, max_lost_leases) for job in late]
    with db.write() as session:
        waiting = jobs.unannounced(session, ring_again_after_s)
        awake = [queue for worker in workers.alive(session, worker_alive_s) for queue in worker.queues]
        workers.forget(session, FORGET_WORKER_S)
    bells = [queue for queue, count in waiting.items() for _ in range(min(count, max(1, awake.count(queue))))]
    answers = [try_ring(ring, queue) for queue in bells]
    return Summary(
        requeued=ends.count(JobState.QUEUED),
        failed=ends.count(JobState.FAILED),
        cancelled=ends.count(JobState.CANCELLED),
        rung=answers.count(True),
        ring_failures=answers.count(False),
    )


def loop(
    db: Database,
    ring: Ring,
    stop: threading.Event,
    *,
    every_s: float,
    ring_again_after_s: float,
    max_lost_leases: int,
    worker_alive_s: float,
) -> None:
    """Reconcile every `every_s` seconds until `stop` is set; a database that is away is waited for."""
    while not stop.wait(every_s):
        try:
            summary = reconcile(
                db,
                ring,
                ring_again_after_s=ring_again_after_s,
                max_lost_leases=max_lost_leases,
                worker_alive_s=worker_alive_s,
            )
        except DatabaseUnavailable as error:
            log.warning("reconcile failed", error=error.message)
            continue
        if summary != Summary():
            log.info("reconciled", **vars(summary))


def _expire(db: Database, job: Job, max_lost_leases: int) -> JobState | None:
    """Take a job from a worker that stopped reporting; where it went, None when somebody else moved it first.

    One transaction for each job: it holds the rows of no other job, for whose workers it would have to wait.
    """
    lost = job.lost_leases + 1
    said: dict[str, Any] = {"reason": f"worker {job.lease_owner} stopped reporting", "lost_leases": lost}
    values: dict[str, Any] = {"lost_leases": lost}
    if job.cancel_requested:
        to = JobState.CANCELLED
    elif lost < max_lost_leases:
        to = JobState.QUEUED
    else:
        to = JobState.FAILED
        values["problem"] = said["problem"] = _worker_lost(lost)
    with db.write() as session:
        moved = life.move(session, job.id, to, fence=job.fence, expired=True, said=said, also=values, outcome="lost")
        if moved:
            totals.count(session, "leases_lost")
    return to if moved else None


def _worker_lost(times: int) -> dict[str, object]:
    return {
        "code": "worker_lost",
        "fault": "machine",
        "message": f"the worker was lost {times} times while it ran this job",
        "fix": "look into the worker's log for what killed it (often memory), then submit again",
        "refusals": [],
        "details": {},
    }
