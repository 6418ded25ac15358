"""Mend what crashes leave behind: expired leases, and doorbells that were lost.

Any number of processes may do this at the same time; guarded UPDATEs decide who mends what.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from service.db import events, jobs, totals, workers
from service.db.engine import Database
from service.db.models import Job, JobState, Worker
from service.errors import DatabaseUnavailable
from service.jobs.lifecycle import transitions
from service.jobs.operations.lost_lines import LostLines
from service.jobs.scheduling.doorbell import Ring, try_ring
from service.logs import logger

BATCH = 200
FORGET_WORKER_S = 7 * 24 * 3600.0

log = logger(__name__)


@dataclass(frozen=True)
class Summary:
    """What one round did; counts of jobs, and of doorbells.

    overdue   jobs that waited longer than they may
    unserved  jobs that wait where no live worker serves, and have been told so
    held_up   jobs that wait where other processes hold the workers' devices, and have been told so
    """

    requeued: int = 0
    failed: int = 0
    cancelled: int = 0
    rung: int = 0
    ring_failures: int = 0
    overdue: int = 0
    unserved: int = 0
    held_up: int = 0


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
    doorbell is missing or older than `ring_again_after_s` are rung: once per job, once per live worker at most. Jobs
    that have waited for longer than they may fail; those that wait where no live worker serves, or where processes of
    another installation hold the workers' devices, are told so.
    """
    with db.read() as session:
        late = jobs.expired(session, BATCH)
        waited = jobs.overdue(session, BATCH)
    ends = [_expire(db, job, max_lost_leases) for job in late]
    with db.write() as session:
        waiting = jobs.unannounced(session, ring_again_after_s)
        alive = workers.alive(session, worker_alive_s)
        awake = [queue for worker in alive for queue in worker.queues]
        served, waiters = _served(alive), [worker for worker in alive if worker.hardware.get("device_taken")]
        workers.forget(session, FORGET_WORKER_S)
    with db.write() as session:
        unserved = _note_unserved(session, served)
        held_up = _note_held_up(session, waiters, _served(worker for worker in alive if worker not in waiters))
    overdue = [_give_up(db, job_id) for job_id in waited]
    bells = [queue for queue, count in waiting.items() for _ in range(min(count, max(1, awake.count(queue))))]
    answers = [try_ring(ring, queue) for queue in bells]
    return Summary(
        requeued=ends.count(JobState.QUEUED),
        failed=ends.count(JobState.FAILED),
        cancelled=ends.count(JobState.CANCELLED),
        rung=answers.count(True),
        ring_failures=answers.count(False),
        overdue=overdue.count(True),
        unserved=unserved,
        held_up=held_up,
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
    lost = LostLines()
    while not stop.wait(every_s):
        try:
            lost.count(db)
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
        moved = transitions.move(
            session, job.id, to, fence=job.fence, expired=True, said=said, also=values, outcome="lost"
        )
        if moved:
            totals.count(session, "leases_lost")
    return to if moved else None


def _note_unserved(session: Session, served: jobs.Served) -> int:
    """Tell jobs that wait where no live worker serves, once; how many."""
    jobs.served_again(session, served)
    noted = jobs.unserved(session, served, BATCH)
    for job_id, queue, compiler in noted:
        message = f"no live worker{_of(compiler)} serves {queue}: the job waits until one does"
        events.append(session, job_id, [("notice", {"message": message})])
    return len(noted)


def _note_held_up(session: Session, waiters: Sequence[Worker], free: jobs.Served) -> int:
    """Tell jobs that wait for a device that another process holds, once for each process; how many.

    waiters  workers that wait for their devices; `free` what the others serve
    """
    named = [worker for worker in waiters if worker.hardware.get("device_holder")]
    if not named:
        return 0
    found = jobs.held_up(session, _served(named), free, BATCH)
    told = events.messages(session, [job_id for job_id, _ in found], "notice")
    count = 0
    for job_id, queue in found:
        message = _held_up([worker for worker in named if queue in worker.queues])
        if message not in told.get(job_id, ()):
            events.append(session, job_id, [("notice", {"message": message})])
            count += 1
    return count


def _held_up(waiters: Sequence[Worker]) -> str:
    """What they wait for."""
    held = [(worker.hardware["device_holder"], worker.hardware.get("device"), worker.name) for worker in waiters]
    each = ", ".join(f"process {pid} holds the device {device} of {name}" for pid, device, name in held)
    return f"{each}: the job waits until it is free (it is another installation's, perhaps)"


def _served(workers: Iterable[Worker]) -> jobs.Served:
    served: dict[str, set[str]] = {}
    for worker in workers:
        served.setdefault(worker.compiler, set()).update(worker.queues)
    return served


def _give_up(db: Database, job_id: uuid.UUID) -> bool:
    """Fail a job that no worker has begun in the time that it may wait; False when one has, or it is gone."""
    with db.write() as session:
        job = session.get(Job, job_id, with_for_update=True)
        if job is None or job.state != JobState.QUEUED or job.attempts or job.max_queue_s is None:
            return False
        why = {
            "problem": _waited_too_long(
                job.max_queue_s, job.queue, job.compiler, unserved=job.unserved_since is not None
            )
        }
        return transitions.move(session, job_id, JobState.FAILED, said=why, also=why)


def _waited_too_long(limit_s: float, queue: str, compiler: str | None, *, unserved: bool) -> dict[str, object]:
    because = f", which no live worker{_of(compiler)} serves" if unserved else ""
    return {
        "code": "queue_time_limit",
        "fault": "machine",
        "message": f"no worker began the job within its {limit_s:g} s in the queue {queue}{because}",
        "fix": "submit it again with more time (max_queue_s), or for a target that live workers serve: GET /targets",
        "refusals": [],
        "details": {"limit_s": limit_s, "queue": queue},
    }


def _of(compiler: str | None) -> str:
    return "" if compiler is None else f" with compiler {compiler}"


def _worker_lost(times: int) -> dict[str, object]:
    return {
        "code": "worker_lost",
        "fault": "machine",
        "message": f"the worker was lost {times} times while it ran this job",
        "fix": "look into the worker's log for what killed it (often memory), then submit again",
        "refusals": [],
        "details": {},
    }
