"""Look at jobs, their events and their artifacts, as their owner may."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.db import artifacts, events, jobs, records, tuning_shares
from service.db.engine import Database
from service.db.models import Artifact, Event, Job, PartialArtifact, TuningRecord
from service.errors import ArtifactNeverMade, JobNotFinished, NotFound
from service.jobs.lifecycle import transitions

EVENTS_PER_READ = 500
TUNING = "tuning"
"""The kind of event in which a compilation tells of its search for tiles."""
PLANS_READ = 100
"""More than a compilation runs."""


@dataclass(frozen=True)
class Found:
    """A job, and how many go before it while it is queued."""

    job: Job | jobs.StatusRow
    queue_position: int | None


def required(session: Session, owner: uuid.UUID, job_id: uuid.UUID, *, lock: bool = False) -> Job:
    """The owner's job; with `lock` it stays as it is until the transaction ends. Raises `NotFound`."""
    job = jobs.of_owner(session, owner, job_id, lock=lock)
    if job is None:
        raise no_such_job(job_id)
    return job


def no_such_job(job_id: uuid.UUID) -> NotFound:
    """What is said of a job that does not exist, or belongs to another owner."""
    return NotFound(f"there is no job {job_id}", fix="list jobs with GET /jobs")


def job(db: Database, owner: uuid.UUID, job_id: uuid.UUID) -> Found:
    """One job. Raises `NotFound`."""
    with db.read() as session:
        row = required(session, owner, job_id)
        return Found(row, jobs.positions(session, [row]).get(row.id))


def page(
    db: Database,
    owner: uuid.UUID,
    wanted: jobs.Wanted,
    *,
    before: uuid.UUID | None,
    limit: int,
) -> tuple[list[Job], uuid.UUID | None]:
    """Jobs of the owner that are wanted, newest first, and the cursor of the next page (None: there is none)."""
    with db.read() as session:
        rows = list(jobs.page(session, owner, wanted, before=before, limit=limit + 1))
    return rows[:limit], rows[limit - 1].id if len(rows) > limit else None


def finished(db: Database, owner: uuid.UUID, job_id: uuid.UUID) -> Job:
    """A job that has ended. Raises `NotFound` and `JobNotFinished`."""
    with db.read() as session:
        row = required(session, owner, job_id)
    _demand_end(row)
    return row


def log(db: Database, owner: uuid.UUID, job_id: uuid.UUID, after: int) -> tuple[Sequence[Event], bool]:
    """The next lines of a job's log after number `after`, and whether none will follow them. Raises `NotFound`."""
    with db.read() as session:
        row = required(session, owner, job_id)
        lines = events.after(session, job_id, after, EVENTS_PER_READ)
        newest = lines[-1].seq if lines else after
        return lines, row.state in transitions.TERMINAL and newest >= row.event_seq


@dataclass(frozen=True)
class Tuned:
    """What is kept of a job's search for tiles and of its plans.

    progress  the progress events of its searches, in order
    plans     records of the whole model under a plan that this job measured, in order
    helpers   of each other worker that measured kernels for it: name, kernels, tiles and seconds
    """

    job: Job
    progress: Sequence[Event]
    plans: Sequence[TuningRecord]
    helpers: Sequence[tuple[str, int, int, float]]


def tuning(db: Database, owner: uuid.UUID, job_id: uuid.UUID) -> Tuned:
    """What there is of a job's search for tiles. Raises `NotFound`."""
    plans = records.Wanted({"kind": "plan", "job_id": job_id})
    with db.read() as session:
        return Tuned(
            required(session, owner, job_id),
            events.of_kind(session, job_id, TUNING),
            records.page(session, owner, plans, before=None, limit=PLANS_READ)[::-1],
            tuning_shares.by_helpers(session, job_id),
        )


def artifact(db: Database, owner: uuid.UUID, artifact_id: uuid.UUID) -> Artifact:
    """A finished artifact.

    Raises `NotFound`, `JobNotFinished` while its job goes on, `ArtifactNeverMade` when the job failed or was
    cancelled.
    """
    with db.read() as session:
        found = artifacts.of_owner(session, owner, artifact_id)
        if found is not None:
            return found
        row = jobs.by_artifact(session, owner, artifact_id)
    if row is None:
        raise NotFound(f"there is no artifact {artifact_id}", fix="a job names its artifact: GET /jobs/{id}")
    _demand_end(row)
    problem = row.problem or {}
    why = problem.get("message") or "it was cancelled"
    raise ArtifactNeverMade(
        f"job {row.id} ended as {row.state}: {why}",
        fix=problem.get("fix") or "submit the model again",
        details={"job": str(row.id), "state": str(row.state), "problem": row.problem},
    )


def artifact_so_far(db: Database, owner: uuid.UUID, artifact_id: uuid.UUID) -> Artifact | PartialArtifact:
    """A finished artifact, or while there is none what its compilation made before measuring. Raises as `artifact`."""
    try:
        return artifact(db, owner, artifact_id)
    except (JobNotFinished, ArtifactNeverMade):
        with db.read() as session:
            row = jobs.by_artifact(session, owner, artifact_id)
            found = row and artifacts.partial(session, row.id)
        if not found:
            raise
        return found


def _demand_end(row: Job) -> None:
    if row.state not in transitions.TERMINAL:
        raise JobNotFinished(
            f"job {row.id} is {row.state}",
            fix="wait for its end: GET /jobs/{id}/events",
            details={"job": str(row.id), "state": str(row.state)},
        )
