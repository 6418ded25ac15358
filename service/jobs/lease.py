"""What a worker may do: claim a job, keep it, and hand in its outcome.

Every call is one transaction. Each claim raises the job's fence; a call whose claim carries an older fence, or
whose job is no longer held, writes nothing and says so. Calling an outcome again after it was written (the
answer was lost) is harmless and answers True again. All raise `DatabaseUnavailable` when the database does not
answer: nothing is known then, and the call may be repeated.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.orm import Session

from compiler.contract import Event
from service.blobs.local import StoredBlob
from service.db import artifacts, events, jobs, records, workers
from service.db.engine import Database, clock
from service.db.models import Artifact, Job, JobState
from service.db.plain import storable
from service.jobs import life
from service.jobs.records import records_for, to_row

__all__ = ["Claim", "cancelled", "claim", "fail", "heartbeat", "records_for", "release", "seen", "succeed"]


@dataclass(frozen=True)
class Claim:
    """The right to run a job, until `lease_s` seconds pass without a heartbeat."""

    job_id: uuid.UUID
    fence: int
    owner: uuid.UUID
    model_digest: str
    """SHA-256 of the model, hex."""
    model_key: str
    """Its key in the blob store."""
    options: dict[str, Any]
    """As `CompileOptions.to_json`."""
    attempt: int
    """1 for the first."""
    lease_s: float


def claim(db: Database, worker: str, queue: str, lease_s: float) -> Claim | None:
    """Take the best queued job of `queue` (priority, then age) for `lease_s` seconds; None when there is none."""
    with db.write() as session:
        job_id = jobs.best(session, queue)
        if job_id is None:
            return None
        taken = {
            "fence": Job.fence + 1,
            "attempts": Job.attempts + 1,
            "lease_owner": worker,
            "lease_until": clock() + lease_s,
            "started_at": clock(),
        }
        if not life.move(session, job_id, JobState.LEASED, said={"worker": worker}, also=taken):
            return None
        return _claim(session, job_id, lease_s)


def heartbeat(db: Database, claim: Claim, events: Sequence[Event]) -> Literal["ok", "cancel", "lost"]:
    """Renew the lease and append `events` to the job's log, in order.

    `ok` go on; `cancel` the owner wants it stopped: stop and call `cancelled`; `lost` the lease is another's or
    the job has ended: stop, write nothing more. The first call with events moves LEASED to RUNNING. Phase and
    fraction of the job follow the events; the fraction never falls.
    """
    with db.write() as session:
        held = jobs.extend(session, claim.job_id, claim.fence, claim.lease_s)
        if held is None:
            return "lost"
        state, cancel = held
        if events:
            if state is JobState.LEASED:
                life.move(session, claim.job_id, JobState.RUNNING, fence=claim.fence)
            _append(session, claim.job_id, events)
        return "cancel" if cancel else "ok"


def succeed(
    db: Database,
    claim: Claim,
    *,
    artifact: StoredBlob,
    report: Mapping[str, Any],
    receipt: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
) -> bool:
    """Artifact row, tuning records and SUCCEEDED in one transaction; False (nothing written) when fenced out.

    `artifact` is already in the blob store; `report` is `CompileReport.to_json`. Raises `InternalError` for a
    record that breaks the form in `service.jobs.records`.
    """
    with db.write() as session:
        made = {"report": dict(report), "fraction": 1.0}
        if not life.move(session, claim.job_id, JobState.SUCCEEDED, fence=claim.fence, also=made):
            return _ended_as(session, claim, JobState.SUCCEEDED)
        row = jobs.locked(session, claim.job_id)
        artifacts.add(
            session,
            Artifact(
                id=row.artifact_id,
                owner_id=row.owner_id,
                job_id=row.id,
                sha256=artifact.sha256,
                bytes=artifact.bytes,
                blob_key=artifact.key,
                receipt=dict(receipt),
            ),
        )
        _keep(session, claim, records)
        return True


def fail(db: Database, claim: Claim, problem: Mapping[str, Any], *, records: Sequence[Mapping[str, Any]] = ()) -> bool:
    """End the job as FAILED; `problem` is `TilewrightError.to_json`. Measurements made until then may be kept."""
    with db.write() as session:
        why = {"problem": dict(problem)}
        if not life.move(session, claim.job_id, JobState.FAILED, fence=claim.fence, said=why, also=why):
            return _ended_as(session, claim, JobState.FAILED)
        _keep(session, claim, records)
        return True


def cancelled(db: Database, claim: Claim, *, records: Sequence[Mapping[str, Any]] = ()) -> bool:
    """End the job as CANCELLED, after `heartbeat` answered `cancel` and the work has stopped."""
    with db.write() as session:
        if not life.move(session, claim.job_id, JobState.CANCELLED, fence=claim.fence):
            return _ended_as(session, claim, JobState.CANCELLED)
        _keep(session, claim, records)
        return True


def release(db: Database, claim: Claim, *, records: Sequence[Mapping[str, Any]] = ()) -> bool:
    """Give the job back, QUEUED, because the worker is going down; it does not count as a lost lease.

    A job that was to be cancelled is CANCELLED instead.
    """
    with db.write() as session:
        to = JobState.CANCELLED if jobs.locked(session, claim.job_id).cancel_requested else JobState.QUEUED
        if not life.move(session, claim.job_id, to, fence=claim.fence, said={"reason": "the worker is shutting down"}):
            return _ended_as(session, claim, to)
        _keep(session, claim, records)
        return True


def seen(
    db: Database, worker: str, queue: str, hardware: Mapping[str, Any], busy_with: uuid.UUID | None = None
) -> None:
    """Report that the worker process `worker` is alive, what it runs on and which job it has."""
    with db.write() as session:
        workers.report(session, worker, queue, dict(hardware), busy_with)


def _claim(session: Session, job_id: uuid.UUID, lease_s: float) -> Claim:
    job = jobs.locked(session, job_id)
    model = artifacts.model(session, job.owner_id, job.model_digest)
    assert model is not None, "a foreign key holds the model"
    return Claim(
        job_id=job.id,
        fence=job.fence,
        owner=job.owner_id,
        model_digest=job.model_digest,
        model_key=model.blob_key,
        options=job.options,
        attempt=job.attempts,
        lease_s=lease_s,
    )


def _append(session: Session, job_id: uuid.UUID, said: Sequence[Event]) -> None:
    entries = []
    for event in said:
        plain = event.to_json()
        entries.append((plain.pop("kind"), plain))
    events.append(session, job_id, entries)
    jobs.progress(session, job_id, storable(said[-1].phase), max(event.fraction for event in said))


def _keep(session: Session, claim: Claim, measured: Sequence[Mapping[str, Any]]) -> None:
    rows = [to_row(r, owner=claim.owner, job=claim.job_id, model_digest=claim.model_digest) for r in measured]
    records.add(session, rows)


def _ended_as(session: Session, claim: Claim, state: JobState) -> bool:
    """Whether this very claim has already brought the job there."""
    row = jobs.locked(session, claim.job_id)
    return row.state == state and row.fence == claim.fence
