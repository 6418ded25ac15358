"""The kernels of a compilation's tuning, divided among workers of one device class.

The attempt that compiles offers them; it and idle workers take some at a time. Every call is one transaction, and all
raise `DatabaseUnavailable` when the database does not answer.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from sqlalchemy.orm import Session

from compiler.contract import generator
from service.db import arrivals, tuning_shares, workers, workloads
from service.db.engine import Database
from service.db.models import Job, new_id
from service.db.tuning_shares import Place, TuningShare
from service.jobs.scheduling import lease
from service.jobs.scheduling.lease import Claim, Measured
from service.jobs.tuning.records import to_json

FEWEST = 8
"""Tiles taken at a time, but for no more than half of an offer: they are built together."""
PART = 3
"""Of those that are left, the part of which is taken: the last ones end at about the same time everywhere."""
REST = 4
"""Fewer tiles are not left to another, who would wait for the compiler's start."""
AGAIN_PATIENCE_S = 2.0
"""Tiles to be measured again are left for so long to who has built them."""
ALIVE_S = 15.0
"""A worker that reported so recently may help."""
TASK = ("tiles", "seconds", "again")


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
    by       how many tiles each other worker has measured
    """

    ids: tuple[uuid.UUID, ...] = ()
    keys: tuple[str, ...] = ()
    records: Sequence[Mapping[str, Any]] = ()
    pending: int = 0
    seconds: float = 0.0
    by: Mapping[str, int] = field(default_factory=dict)


def code() -> str:
    """Who generates the code that is measured, and what tasks are like: others do not understand them."""
    return f"{generator()} tiles"


def offer(
    db: Database, made: Offer, terms: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], most_s: float
) -> int:
    """Let others take these kernels, which come with the key and the text of each, the dearest first.

    Returns how many other live workers have this device and no job. Nothing is written, and it is 0, where there are
    none, the claim is lost, or others measured for the job's attempt for `most_s` seconds. What the job offered before
    is withdrawn.
    """
    claim, (target, hardware) = made.claim, made.place
    with db.write() as session:
        job = session.get(Job, claim.job_id)
        others = [one for one in workers.alive(session, ALIVE_S) if one.name != made.worker and one.busy_with is None]
        helping = sum(_helps(one.hardware, hardware) for one in others)
        if job is None or job.fence != claim.fence or not helping:
            return 0
        if not tasks or tuning_shares.seconds_of_others(session, claim.job_id, claim.fence) > most_s:
            return 0 if tasks else helping
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
        return helping


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
        mine = _part(session, free, made.worker)
        ids = tuple(row.id for row in mine)
        wanted = max((float(row.task["seconds"]) for row in mine), default=0.0)
        tuning_shares.hold(session, ids, made.worker, claim.lease_s + 2 * wanted, own=True)
        rows = tuning_shares.of_offer(session, claim.job_id, claim.fence, made.number)
        finished = [row for row in rows if row.done_at is not None and not row.own]
        workloads = [row.workload for row in rows if row in finished or row.id in ids]
        since = min((row.created_at for row in rows), default=0.0)
        found = tuning_shares.measured_since(session, claim.owner, made.place, workloads, since)
        fresh = [record for record in found if record.id not in seen]
        seen.update(record.id for record in fresh)
        by: Counter[str] = Counter()
        for row in finished:
            by[str(row.worker)] += row.measured
        return Progress(
            ids,
            tuple(row.workload for row in rows if row.id in ids),
            [to_json(record) for record in fresh],
            sum(row.done_at is None and row.id not in ids for row in rows),
            sum(row.seconds for row in finished),
            dict(by),
        )


def over(db: Database, made: Offer) -> None:
    """What is not done of the job's kernels need not be measured any more; nothing happens when the claim is lost."""
    with db.write() as session:
        job = session.get(Job, made.claim.job_id)
        if job is not None and job.fence == made.claim.fence:
            tuning_shares.withdraw(session, made.claim.job_id)


def take(
    db: Database,
    worker: str,
    places: Sequence[Place],
    compiler: str,
    lease_s: float,
    job_id: uuid.UUID | None = None,
) -> Taken | None:
    """Kernels of another worker's job, for one that is idle and has one of these devices; None where none are left.

    job_id  of which job; None: of the one that offered first
    """
    with db.read() as session:
        if not tuning_shares.is_free(session, places, compiler, job_id):
            return None
    with db.write() as session:
        free = tuning_shares.free(session, places, compiler, job_id=job_id)
        rows = _part(session, free, worker)
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


def goes_on(db: Database, claim: Claim) -> bool:
    """Whether the attempt of this claim still has its job."""
    with db.read() as session:
        return tuning_shares.is_held(session, claim.job_id, claim.fence)


def _part(session: Session, free: Sequence[TuningShare], worker: str) -> Sequence[TuningShare]:
    """What a worker takes of kernels that are free, all of one offer.

    First come those of which it has measured tiles, then those of which nobody has: times of one device compare best.
    """
    if not free:
        return []
    by, age_s = tuning_shares.measured_by(session, free[0].job_id, free[0].fence), tuning_shares.age_s(session, free[0])
    others = {row.id for row in free if by.get(row.workload, worker) != worker}
    left = [row for row in free if not (row.task["again"] and row.id in others and age_s < AGAIN_PATIENCE_S)]
    left.sort(key=lambda row: (row.id in others, row.workload not in by, row.place))
    whole = tuning_shares.of_offer(session, free[0].job_id, free[0].fence, free[0].offer)
    return left[: fair_part([len(row.task["tiles"]) for row in left], sum(len(row.task["tiles"]) for row in whole))]


def fair_part(tiles: Sequence[int], whole: int) -> int:
    """How many of the first kernels to take, which have so many tiles each, of an offer that had `whole`."""
    half = -(-whole // 2)
    wanted = min(max(FEWEST, -(-sum(tiles) // PART)), half)
    counts = [*accumulate(tiles)]
    taken = min(range(len(tiles)), key=lambda at: (abs(counts[at] - wanted), -at), default=-1)
    if taken >= 0 and counts[-1] - counts[taken] < REST and counts[-1] <= half + REST // 2:
        taken = len(tiles) - 1
    return taken + 1
