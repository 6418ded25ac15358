"""The kernels of a compilation's tuning, divided among workers of one device class.

The attempt that compiles offers them; it and idle workers take some at a time. Every call is one transaction, and all
raise `DatabaseUnavailable` when the database does not answer.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.db import arrivals, tuning_shares, workers, workloads
from service.db.engine import Database
from service.db.models import Job, new_id
from service.db.tuning_shares import Place
from service.jobs import lease
from service.jobs.lease import Claim, Measured
from service.jobs.records import to_json

FEWEST = 4
"""Kernels taken at a time, where so many are left: they are built together."""
PART = 4
"""Of those that are left, the part of which is taken: the last ones end at about the same time everywhere."""
ALIVE_S = 15.0
"""A worker that reported so recently may help."""
TASK = ("uses", "seconds", "trials")


@dataclass(frozen=True)
class Taken:
    """Kernels that one worker may measure until its lease runs out.

    claim    the job they are of, for its owner and options; its inputs are not told
    terms    what is true of all of them; `tasks` with the text of each
    """

    ids: tuple[uuid.UUID, ...]
    claim: Claim
    place: Place
    terms: Mapping[str, Any]
    tasks: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Offer:
    """One time that a claimed job offers kernels for a device, with code by `compiler`; `worker` has the claim."""

    claim: Claim
    worker: str
    number: int
    place: Place
    compiler: str


@dataclass(frozen=True)
class Progress:
    """How far an offer is: the kernels that were just taken, and what others did.

    pending  kernels that others measure, for this job or another
    by       how many kernels each other worker has finished
    """

    ids: tuple[uuid.UUID, ...] = ()
    keys: tuple[str, ...] = ()
    records: Sequence[Mapping[str, Any]] = ()
    pending: int = 0
    seconds: float = 0.0
    by: Mapping[str, int] = field(default_factory=dict)


def offer(db: Database, made: Offer, terms: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> bool:
    """Let others take these kernels, which come with the key and the text of each, the dearest first.

    False, and nothing is written, where no other live worker has this device and no job, or the claim is lost. What the
    job offered before is withdrawn.
    """
    claim, (target, hardware) = made.claim, made.place
    with db.write() as session:
        job = session.get(Job, claim.job_id)
        others = [one for one in workers.alive(session, ALIVE_S) if one.name != made.worker and one.busy_with is None]
        if job is None or job.fence != claim.fence or not any(_helps(one.hardware, hardware) for one in others):
            return False
        tuning_shares.withdraw(session, claim.job_id)
        workloads.keep_all(session, claim.owner, {task["key"]: task["text"] for task in tasks})
        same = {
            "job_id": claim.job_id,
            "owner_id": claim.owner,
            "fence": claim.fence,
            "offer": made.number,
            "target": target,
            "hardware": hardware,
            "compiler": made.compiler,
            "terms": dict(terms),
        }
        none_yet = {"own": False, "seconds": 0.0, "measured": 0}
        rows = [
            {"id": new_id(), "place": at, "workload": task["key"], "task": {name: task[name] for name in TASK}}
            for at, task in enumerate(tasks)
        ]
        tuning_shares.add(session, [{**same, **none_yet, **row} for row in rows])
        arrivals.tell(session, job.queue)
        return True


def _helps(worker: Mapping[str, Any], hardware: str) -> bool:
    return worker.get("fingerprint") == hardware and worker.get("fan_out") is True


def take_own(
    db: Database, made: Offer, before: Sequence[uuid.UUID], seconds: float, measured: int, seen: set[uuid.UUID]
) -> Progress:
    """The next kernels for the job's own worker, which is done with those `before` and took so much for them.

    `seen` are records that were told already; those told now are added.
    """
    claim = made.claim
    with db.write() as session:
        tuning_shares.done(session, before, made.worker, seconds, measured)
        free = tuning_shares.free(session, [made.place], made.compiler, job_id=claim.job_id, offer=made.number)
        mine = free[: _many(len(free))]
        ids = tuple(row.id for row in mine)
        wanted = sum(float(row.task["seconds"]) for row in mine)
        tuning_shares.hold(session, ids, made.worker, claim.lease_s + 2 * wanted, own=True)
        rows = tuning_shares.of_offer(session, claim.job_id, claim.fence, made.number)
        finished = [row for row in rows if row.done_at is not None and not row.own]
        told = [row.workload for row in rows if row in finished or row.id in ids]
        since = min((row.created_at for row in rows), default=0.0)
        found = tuning_shares.measured_since(session, claim.owner, made.place, told, since)
        fresh = [record for record in found if record.id not in seen]
        seen.update(record.id for record in fresh)
        names = [str(row.worker) for row in finished]
        return Progress(
            ids,
            tuple(row.workload for row in rows if row.id in ids),
            [to_json(record) for record in fresh],
            sum(row.done_at is None and row.id not in ids for row in rows),
            sum(row.seconds for row in finished),
            {name: names.count(name) for name in names},
        )


def over(db: Database, made: Offer) -> None:
    """What is not done of the job's kernels need not be measured any more; nothing happens when the claim is lost."""
    with db.write() as session:
        job = session.get(Job, made.claim.job_id)
        if job is not None and job.fence == made.claim.fence:
            tuning_shares.withdraw(session, made.claim.job_id)


def take(db: Database, worker: str, places: Sequence[Place], compiler: str, lease_s: float) -> Taken | None:
    """Kernels of another worker's job, for one that is idle and has one of these devices; None where none are left."""
    with db.read() as session:
        if not tuning_shares.is_free(session, places, compiler):
            return None
    with db.write() as session:
        free = tuning_shares.free(session, places, compiler)
        rows = free[: _many(len(free))]
        if not rows:
            return None
        job = session.get_one(Job, rows[0].job_id)
        texts = {row.workload: workloads.of_owner(session, row.owner_id, row.workload) for row in rows}
        tasks = [{"key": row.workload, "text": text.text, **row.task} for row in rows if (text := texts[row.workload])]
        claim = Claim(
            job_id=job.id,
            kind=job.kind,
            fence=job.fence,
            owner=job.owner_id,
            model_digest=job.model_digest,
            inputs=(),
            options=dict(job.options),
            attempt=job.attempts,
            lease_s=lease_s,
            finish=False,
        )
        ids = tuple(row.id for row in rows)
        place = rows[0].target, rows[0].hardware
        tuning_shares.hold(session, ids, worker, lease_s, own=False)
        return Taken(ids, claim, place, dict(rows[0].terms), tasks)


def keep(db: Database, taken: Taken, worker: str, measured: Measured) -> bool:
    """Renew the lease and keep what was measured; False, and nothing is written, when they are another's now."""
    with db.write() as session:
        if not tuning_shares.renew(session, taken.ids, worker, taken.claim.lease_s):
            return False
        lease.keep(session, taken.claim, measured)
        return True


def done(db: Database, taken: Taken, worker: str, measured: Measured, seconds: float, tiles: int) -> bool:
    """The last of what was measured; the kernels are done. False when they are another's now."""
    with db.write() as session:
        if not tuning_shares.renew(session, taken.ids, worker, taken.claim.lease_s):
            return False
        lease.keep(session, taken.claim, measured)
        tuning_shares.done(session, taken.ids, worker, seconds, tiles)
        return True


def give_back(db: Database, taken: Taken, worker: str) -> None:
    """They may be taken by others at once."""
    with db.write() as session:
        tuning_shares.give_back(session, taken.ids, worker)


def _many(free: int) -> int:
    return min(free, max(FEWEST, -(-free // PART)))
