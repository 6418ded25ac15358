"""What goes over the wire, as OpenAPI shows it. Times are UTC, RFC 3339."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from service.db.models import Event, Job, JobState, TuningRecord, Worker
from service.jobs.find import Found
from service.jobs.health import Check
from service.jobs.records import to_json

JOB_EXAMPLE: dict[str, Any] = {
    "id": "019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11",
    "state": "RUNNING",
    "phase": "tile",
    "fraction": 0.42,
    "artifact_id": "019aa1f0-7c2e-7a4b-9d0e-5b2a4c7e9f02",
    "model": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "options": {"target": "cpu", "precision": "fp32", "threads": 4},
    "cached": False,
    "attempt": 1,
    "cancel_requested": False,
    "queue": "cpu",
    "priority": 0,
    "queue_position": None,
    "created_at": "2026-11-21T04:00:00.000Z",
    "started_at": "2026-11-21T04:00:00.180Z",
    "finished_at": None,
    "queue_seconds": 0.18,
    "run_seconds": None,
    "problem": None,
    "links": {"self": "/jobs/019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11"},
}

RECORD_EXAMPLE: dict[str, Any] = {
    "id": "019aa1f0-9d11-7c52-8e0a-0f6d2b7a4c10",
    "job": "019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11",
    "model": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "created_at": "2026-11-21T04:00:03.000Z",
    "kind": "kernel",
    "workload": "1f0c9a52be7d4e83a6b1c0d2",
    "operator": "Conv+Relu",
    "description": "Conv+Relu: f32[1, 64, 56, 56], f32[64, 64, 1, 1], f32[64] -> f32[1, 64, 56, 56]",
    "target": "cpu:x86-64-v4",
    "hardware": "cpu:x86-64-v4/62047a4b3376a6f5",
    "variant": {
        "algorithm": "contraction",
        "levels": {"block": {"m": 392, "n": 64}, "register": {"m": 14, "n": 32}, "vector": {"n": 16}},
        "scopes": {"t0": "register"},
    },
    "threads": 1,
    "seconds": 0.000213,
    "p10": 0.00021,
    "p90": 0.000225,
    "samples": 31,
    "compiler": "0.1.0",
}


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "urn:tilewright:problem:invalid_options",
                "title": "invalid options",
                "status": 422,
                "detail": "threads is 0",
                "instance": "/compile",
                "code": "invalid_options",
                "fault": "caller",
                "fix": "use 1 to 256, or leave it out",
                "refusals": [],
                "details": {},
            }
        }
    )

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str = Field(description="Stable; to be compared by programs.")
    fault: str = Field(description="`caller`, `ours` or `machine`.")
    fix: str = Field(description="What to do about it.")
    refusals: list[dict[str, Any]] = Field(description="All reasons at once: reason, fix, node, operator.")
    details: dict[str, Any]


class JobOut(BaseModel):
    """A job."""

    model_config = ConfigDict(json_schema_extra={"example": JOB_EXAMPLE})

    id: uuid.UUID
    state: JobState
    phase: str | None = Field(description="The compiler's step that runs or ran last.")
    fraction: float = Field(description="Of the present attempt, 0 to 1.")
    artifact_id: uuid.UUID = Field(description="The id that the artifact has, or will have when the job succeeds.")
    model: str = Field(description="SHA-256 of the model.")
    options: dict[str, Any] = Field(description="The whole options, defaults filled in.")
    cached: bool = Field(description="Answered with an artifact that was there already.")
    attempt: int
    cancel_requested: bool
    queue: str
    priority: int
    queue_position: int | None = Field(
        None, description="How many jobs go first; null unless asked for one queued job."
    )
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    queue_seconds: float | None = Field(description="From creation to the start of the present or last attempt.")
    run_seconds: float | None = Field(description="From that start to the end.")
    problem: dict[str, Any] | None = Field(description="Why it failed: code, fault, message, fix, refusals, details.")
    links: dict[str, str]

    @classmethod
    def of(cls, job: Job, queue_position: int | None = None) -> Self:
        """From a row."""
        here = f"/jobs/{job.id}"
        artifact = f"/artifacts/{job.artifact_id}"
        return cls(
            id=job.id,
            state=job.state,
            phase=job.phase,
            fraction=job.fraction,
            artifact_id=job.artifact_id,
            model=job.model_digest,
            options=job.options,
            cached=job.cached,
            attempt=job.attempts,
            cancel_requested=job.cancel_requested,
            queue=job.queue,
            priority=job.priority,
            queue_position=queue_position,
            created_at=utc(job.created_at),
            started_at=utc(job.started_at) if job.started_at is not None else None,
            finished_at=utc(job.finished_at) if job.finished_at is not None else None,
            queue_seconds=span(job.created_at, job.started_at),
            run_seconds=span(job.started_at, job.finished_at),
            problem=job.problem,
            links={
                "self": here,
                "events": f"{here}/events",
                "report": f"{here}/report",
                "artifact": artifact,
                "receipt": f"{artifact}/receipt",
            },
        )

    @classmethod
    def found(cls, found: Found) -> Self:
        """From a row and its place in the queue."""
        return cls.of(found.job, found.queue_position)


class JobPage(BaseModel):
    """Jobs, newest first."""

    jobs: list[JobOut]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


class ReportOut(BaseModel):
    """What an ended job says of itself: a report when it succeeded, a problem when it failed."""

    job: uuid.UUID
    state: JobState
    report: dict[str, Any] | None = Field(
        description="`CompileReport`: phase seconds, kernels, memory, latency, errors."
    )
    problem: dict[str, Any] | None
    queue_seconds: float | None
    run_seconds: float | None

    @classmethod
    def of(cls, job: Job) -> Self:
        """From a row."""
        return cls(
            job=job.id,
            state=job.state,
            report=job.report,
            problem=job.problem,
            queue_seconds=span(job.created_at, job.started_at),
            run_seconds=span(job.started_at, job.finished_at),
        )


class ReceiptOut(BaseModel):
    """What varies from one compilation to the next, beside the artifact's bytes."""

    artifact: uuid.UUID
    job: uuid.UUID
    sha256: str
    bytes: int
    created_at: datetime
    receipt: dict[str, Any]


class RecordOut(BaseModel):
    """One measurement on a real device; `seconds` is the median."""

    model_config = ConfigDict(json_schema_extra={"example": RECORD_EXAMPLE})

    id: uuid.UUID
    job: uuid.UUID
    model: str
    created_at: datetime
    kind: str
    workload: str
    operator: str
    description: str
    target: str
    hardware: str
    variant: dict[str, Any]
    threads: int
    seconds: float
    p10: float
    p90: float
    samples: int
    compiler: str

    @classmethod
    def of(cls, record: TuningRecord) -> Self:
        """From a row."""
        return cls(
            id=record.id,
            job=record.job_id,
            model=record.model_digest,
            created_at=utc(record.created_at),
            **to_json(record),
        )


class RecordPage(BaseModel):
    """Tuning records, newest first."""

    records: list[RecordOut]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


class WorkerOut(BaseModel):
    """A worker that is alive."""

    name: str
    queue: str
    hardware: dict[str, Any]
    busy: bool
    last_seen: datetime

    @classmethod
    def of(cls, worker: Worker) -> Self:
        """From a row; which job it runs is its owner's business alone."""
        return cls(
            name=worker.name,
            queue=worker.queue,
            hardware=worker.hardware,
            busy=worker.busy_with is not None,
            last_seen=utc(worker.last_seen),
        )


class WorkerList(BaseModel):
    """The workers that are alive."""

    workers: list[WorkerOut]


class CheckOut(BaseModel):
    """One part of the service, tried just now."""

    name: str
    ok: bool
    detail: str


class Readiness(BaseModel):
    """Whether a model sent now would be compiled."""

    ready: bool
    checks: list[CheckOut]

    @classmethod
    def of(cls, checks: list[Check]) -> Self:
        """From the checks."""
        return cls(ready=all(check.ok for check in checks), checks=[CheckOut(**vars(check)) for check in checks])


def event_json(event: Event) -> dict[str, Any]:
    """The `data` of one server-sent event."""
    return {**event.data, "seq": event.seq, "kind": event.kind, "at": utc(event.created_at).isoformat()}


def utc(seconds: float) -> datetime:
    """Seconds since 1970 as a time."""
    return datetime.fromtimestamp(seconds, UTC)


def span(start: float | None, end: float | None) -> float | None:
    """Seconds between two times, None while one is missing."""
    return None if start is None or end is None else round(end - start, 6)
