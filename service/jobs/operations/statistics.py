"""What the operator counts: jobs in their states, the age of queues, workers, and the sums of all processes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.db import jobs, kept, totals, workers
from service.db.engine import Database
from service.db.models import BlobFault


@dataclass(frozen=True)
class Number:
    """One sample. `name` carries its unit; a `total` only grows, over all processes and restarts."""

    name: str
    labels: Mapping[str, str]
    value: float
    total: bool


def numbers(db: Database, worker_alive_s: float) -> Sequence[Number]:
    """All of them, as the database has them now. Raises `DatabaseUnavailable`."""
    with db.read() as session:
        sums = totals.everything(session)
        open_jobs = jobs.open_counts(session)
        ages = jobs.queue_ages(session)
        faulty = kept.faulty(session)
        unchecked_s = kept.unchecked_s(session)
        awake = workers.alive(session, worker_alive_s)
    busy = sum(worker.busy_with is not None for worker in awake)
    return [
        *(Number(row.name, json.loads(row.labels), row.value, total=True) for row in sums),
        *(
            Number("jobs", {"kind": kind, "state": state, "queue": queue}, n, False)
            for kind, state, queue, n in open_jobs
        ),
        *(Number("queue_age_seconds", {"queue": queue}, age, False) for queue, age in ages),
        *(Number("blobs_faulty", {"fault": str(fault)}, faulty.get(fault, 0), total=False) for fault in BlobFault),
        Number("blob_unchecked_seconds", {}, unchecked_s, total=False),
        Number("workers", {"state": "busy"}, busy, total=False),
        Number("workers", {"state": "idle"}, len(awake) - busy, total=False),
    ]
