"""What benchmarks and inferences came to, as their owner may see it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from compiler.contract import job_kinds
from service.blobs.store import StoredBlob
from service.db import jobs, needs, results
from service.db.engine import Database
from service.db.models import Inference, Job, JobState
from service.errors import ArtifactNeverMade, JobNotFinished, NotFound, Removed
from service.jobs.lifecycle import transitions


@dataclass(frozen=True)
class Outcome:
    """A benchmark or an inference: its job, the artifacts it runs, and once it has SUCCEEDED its report."""

    job: Job
    queue_position: int | None
    artifacts: Sequence[uuid.UUID]
    report: Mapping[str, Any] | None = None
    inference: Inference | None = None
    """Of an inference: its inputs and outputs."""


def benchmark(db: Database, owner: uuid.UUID, job_id: uuid.UUID) -> Outcome:
    """One benchmark. Raises `NotFound`, also for a job of another kind."""
    with db.read() as session:
        job = _required(session, owner, job_id, job_kinds.BENCHMARK.name)
        made = results.benchmark(session, job_id)
        return Outcome(
            job, jobs.positions(session, [job]).get(job.id), needs.of(session, job_id), made.report if made else None
        )


def inference(db: Database, owner: uuid.UUID, job_id: uuid.UUID) -> Outcome:
    """One inference. Raises `NotFound`, also for a job of another kind."""
    with db.read() as session:
        job = _required(session, owner, job_id, job_kinds.INFERENCE.name)
        row = results.inference(session, job_id)
        assert row is not None, "it is made with the job"
        return Outcome(job, jobs.positions(session, [job]).get(job.id), needs.of(session, job_id), row.report, row)


def outputs(db: Database, owner: uuid.UUID, job_id: uuid.UUID) -> StoredBlob:
    """The outputs of an inference, an .npz.

    Raises `NotFound`, `JobNotFinished` while it waits or runs, `ArtifactNeverMade` when it failed or was cancelled,
    `Removed` once they were kept long enough.
    """
    found = inference(db, owner, job_id)
    job, row = found.job, found.inference
    if job.state not in transitions.TERMINAL:
        raise JobNotFinished(
            f"inference {job_id} is {job.state}",
            fix=f"wait for its end: GET /jobs/{job_id}/events",
            details={"job": str(job_id), "state": str(job.state)},
        )
    if row is not None and row.output_key is None and job.state == JobState.SUCCEEDED:
        raise Removed(
            f"the outputs of inference {job_id} were kept for a time only, which has passed",
            fix="submit the inputs again, or raise TILEWRIGHT_KEEP_INFERENCES_HOURS",
            details={"job": str(job_id)},
        )
    if row is None or row.output_key is None or row.output_sha256 is None or row.output_bytes is None:
        problem = job.problem or {}
        raise ArtifactNeverMade(
            f"inference {job_id} ended as {job.state}: {problem.get('message') or 'it was cancelled'}",
            fix=problem.get("fix") or "submit the inputs again",
            details={"job": str(job_id), "state": str(job.state), "problem": job.problem},
        )
    return StoredBlob(row.output_key, row.output_sha256, row.output_bytes)


def benchmarks(
    db: Database, owner: uuid.UUID, *, before: uuid.UUID | None, limit: int
) -> tuple[list[Outcome], uuid.UUID | None]:
    """Benchmarks of the owner without their reports, newest first, and the cursor of the next page (None: none)."""
    with db.read() as session:
        wanted = jobs.Wanted(kinds=(job_kinds.BENCHMARK.name,))
        rows = list(jobs.page(session, owner, wanted, before=before, limit=limit + 1))
        found = needs.of_all(session, [row.id for row in rows[:limit]])
    page = [Outcome(row, None, found.get(row.id, ())) for row in rows[:limit]]
    return page, rows[limit - 1].id if len(rows) > limit else None


def _required(session: Session, owner: uuid.UUID, job_id: uuid.UUID, kind: str) -> Job:
    job = jobs.of_owner(session, owner, job_id)
    if job is None or job.kind != kind:
        raise NotFound(f"there is no {kind} {job_id}", fix=f"list them with GET /jobs?kind={kind}")
    return job
