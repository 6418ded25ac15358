"""What goes over the wire, as OpenAPI shows it. Times are UTC, RFC 3339."""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from compiler.contract import job_kinds
from service.db.jobs import StatusRow
from service.db.models import Event, Job, JobState, Worker
from service.jobs.lifecycle.find import Found
from service.jobs.operations.health import Check
from service.jobs.operations.removal import Purge

JOB_EXAMPLE: dict[str, Any] = {
    "id": "019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11",
    "kind": "compile",
    "state": "RUNNING",
    "phase": "tile",
    "fraction": 0.42,
    "artifact_id": "019aa1f0-7c2e-7a4b-9d0e-5b2a4c7e9f02",
    "model": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "options": {"target": "cpu", "precision": "fp32", "threads": 4},
    "samples": [],
    "cached": False,
    "attempt": 1,
    "cancel_requested": False,
    "finish_requested": False,
    "cloned_from": None,
    "batch": None,
    "traceparent": None,
    "name": "nightly",
    "note": None,
    "tags": ["ci", "main"],
    "max_queue_s": 600.0,
    "max_run_s": None,
    "compiler": None,
    "unserved_since": None,
    "queue": "cpu",
    "priority": 0,
    "blocked_by": 0,
    "queue_position": None,
    "created_at": "2026-11-21T04:00:00.000Z",
    "started_at": "2026-11-21T04:00:00.180Z",
    "finished_at": None,
    "queue_seconds": 0.18,
    "run_seconds": None,
    "latency_s": None,
    "largest_error": None,
    "compared": [],
    "problem": None,
    "links": {"self": "/jobs/019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11"},
}

REPORT_EXAMPLE: dict[str, Any] = {
    "phase_seconds": {"load": 0.11, "tile": 15.2, "agree": 2.4},
    "model_digest": JOB_EXAMPLE["model"],
    "target": "cpu:x86-64-v4",
    "records_measured": 412,
    "rank_correlation": 0.71,
    "latency_s": 0.0041,
}
WORKER_EXAMPLE: dict[str, Any] = {
    "name": "worker-1/811",
    "queues": ["cpu", "cpu:x86-64-v4", "run:cpu:x86-64-v4"],
    "hardware": {"target": "cpu:x86-64-v4", "cores": 4},
    "compiler": "0.1.0",
    "busy": True,
    "started_at": "2026-11-21T03:00:00.000Z",
    "last_seen": "2026-11-21T04:00:01.000Z",
}


class RequestBody(BaseModel):
    """What a body of a request is made of: nothing unknown, and every field of just its type ("5" is no number)."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "/docs/errors/invalid_options",
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

    type: str = Field(description="Where a page about such problems is, relative to the service.")
    title: str
    status: int
    detail: str
    instance: str
    code: str = Field(description="Stable; to be compared by programs.")
    fault: str = Field(description="`caller`, `ours` or `machine`.")
    fix: str = Field(description="How to fix it.")
    refusals: list[dict[str, Any]] = Field(description="All reasons at once: reason, fix, node, operator.")
    details: dict[str, Any]


class JobKind(str):
    """What a worker is to do."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Checked against the kinds that are registered then."""
        return core_schema.no_info_plain_validator_function(cls._known, ref=cls.__name__)

    @classmethod
    def __get_pydantic_json_schema__(cls, checked: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Lists the kinds."""
        names = list(job_kinds.names())
        return {"type": "string", "enum": names, "title": cls.__name__, "description": cls.__doc__}

    @classmethod
    def _known(cls, value: Any) -> JobKind:
        names = [repr(name) for name in job_kinds.names()]
        if value not in job_kinds.names():
            listed = f"{', '.join(names[:-1])} or {names[-1]}"
            raise PydanticCustomError("enum", "Input should be {expected}", {"expected": listed})
        return cls(value)


class SampleOut(BaseModel):
    """An .npz archive of inputs."""

    name: str
    sha256: str
    bytes: int


class ComparedOut(BaseModel):
    """An artifact beside the model as it came on another runtime, raced on the machine that compiled."""

    peer: str = Field(description="As the option `compare` names it.")
    said: str = Field(description="The result in one sentence, or why there was no race; then figures are null.")
    version: str = Field(description="Of the peer; empty where it is not installed.")
    threads: int = Field(description="Of both.")
    ours_s: float | None = Field(description="Seconds of one run of the artifact, median.")
    theirs_s: float | None
    ratio: float | None = Field(description="How many times as fast the artifact is; below 1 it is slower.")
    low: float | None = Field(description="The ratio is between `low` and `high` with 95 %.")
    high: float | None
    rounds: int
    difference: float | None = Field(description="Largest difference of outputs, relative to the largest value.")


class JobOut(BaseModel):
    """A job."""

    model_config = ConfigDict(json_schema_extra={"example": JOB_EXAMPLE})

    id: uuid.UUID
    kind: JobKind
    state: JobState
    phase: str | None = Field(description="The step that runs or ran last.")
    fraction: float = Field(description="Progress of the present attempt, 0 to 1.")
    artifact_id: uuid.UUID | None = Field(
        description="Id of the artifact, also before the job succeeds; null for kinds of job that compile nothing."
    )
    model: str | None = Field(description="The model's digest; null for kinds of job that read none.")
    options: dict[str, Any] = Field(description="The whole options, defaults filled in.")
    samples: list[SampleOut] = Field(
        [],
        description="Inputs that it is judged on, and timed on the first of them; of quantizations and "
        "compressions: calibrated on.",
    )
    cached: bool = Field(description="Answered with an artifact that was there already.")
    attempt: int
    cancel_requested: bool
    finish_requested: bool = Field(description="Measuring ends early, the best found so far is kept.")
    cloned_from: uuid.UUID | None
    batch: uuid.UUID | None = Field(None, description="Id that it shares with the other jobs of its request.")
    traceparent: str | None = Field(None, description="Where in a trace its request was made (W3C Trace Context).")
    name: str | None = Field(None, description="Name given by its owner.")
    note: str | None = None
    tags: list[str] = Field([], description="Words to find it by.")
    max_queue_s: float | None = Field(None, description="Seconds in which a worker must have begun it.")
    max_run_s: float | None = Field(None, description="Seconds that an attempt may take at most.")
    compiler: str | None = Field(None, description="Version of the compiler that may take it.")
    unserved_since: datetime | None = Field(
        None, description="Since when it waits while no live worker serves its queue; null otherwise."
    )
    queue: str = Field(description="The device class it waits for.")
    priority: int = Field(description="Greater goes first.")
    blocked_by: int = Field(description="How many artifacts it needs that are not made yet.")
    queue_position: int | None = Field(
        None, description="How many jobs go first; null unless asked for one queued job."
    )
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    queue_seconds: float | None = Field(description="From creation to the start of the present or last attempt.")
    run_seconds: float | None = Field(description="From that start to the end.")
    latency_s: float | None = Field(
        None, description="Of an artifact: seconds of one inference where it was compiled, or estimated; else null."
    )
    largest_error: float | None = Field(
        None, description="Of its outputs, relative to the largest value of each; null where nothing was proved."
    )
    compared: list[ComparedOut] = Field([], description="What came of the option `compare`, once it has succeeded.")
    problem: dict[str, Any] | None = Field(description="Why it failed: code, fault, message, fix, refusals, details.")
    links: dict[str, str]

    @classmethod
    def of(cls, job: Job | StatusRow, queue_position: int | None = None) -> Self:
        """From a row."""
        return cls(
            id=job.id,
            kind=JobKind(job.kind),
            state=job.state,
            phase=job.phase,
            fraction=job.fraction,
            artifact_id=job.artifact_id,
            model=job.model_digest,
            options=job.options,
            samples=[
                SampleOut(**{name: one[name] for name in ("name", "sha256", "bytes")}) for one in job.samples or ()
            ],
            cached=job.cached,
            attempt=job.attempts,
            cancel_requested=job.cancel_requested,
            finish_requested=job.finish_requested,
            cloned_from=job.cloned_from,
            batch=job.batch_id,
            traceparent=job.traceparent,
            name=job.name,
            note=job.note,
            tags=job.tags or [],
            max_queue_s=job.max_queue_s,
            max_run_s=job.max_run_s,
            compiler=job.compiler,
            unserved_since=_unserved(job),
            queue=job.queue,
            priority=job.priority,
            blocked_by=job.blocked_by,
            queue_position=queue_position,
            created_at=utc(job.created_at),
            started_at=utc(job.started_at) if job.started_at is not None else None,
            finished_at=utc(job.finished_at) if job.finished_at is not None else None,
            queue_seconds=span(job.created_at, job.started_at),
            run_seconds=span(job.started_at, job.finished_at),
            latency_s=_number(_told(job, "latency_s")),
            largest_error=_largest_error(_told(job, "errors")),
            compared=_compared(job),
            problem=job.problem,
            links=_links(job),
        )

    @classmethod
    def found(cls, found: Found) -> Self:
        """From a row and its place in the queue."""
        return cls.of(found.job, found.queue_position)


def _told(job: Job | StatusRow, name: str) -> Any:
    """A field of a compilation's report, as the process wrote it that read the model."""
    return getattr(job, name) if not isinstance(job, Job) else (job.report or {}).get(name) if job.artifact_id else None


def _compared(job: Job | StatusRow) -> list[ComparedOut]:
    """From the report; none of jobs that compile nothing, or were done before there were races.

    The process that read the model wrote the report: what is of another form is left out, so that the job is told.
    """
    told = _told(job, "compared")
    found = []
    for one in told if isinstance(told, list) else ():
        with contextlib.suppress(ValidationError):
            found.append(ComparedOut.model_validate(one))
    return found


def _number(told: Any) -> float | None:
    is_number = isinstance(told, int | float) and not isinstance(told, bool) and math.isfinite(told)
    return float(told) if is_number else None


def _largest_error(told: Any) -> float | None:
    """Over all outputs; None where one of them has no figure."""
    each = [_number(one.get("max_relative")) for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    known = [one for one in each if one is not None]
    return max(known) if known and len(known) == len(each) else None


def _unserved(job: Job | StatusRow) -> datetime | None:
    if job.state != JobState.QUEUED or job.unserved_since is None:
        return None
    return utc(job.unserved_since)


def _links(job: Job | StatusRow) -> dict[str, str]:
    """Where what belongs to a job is found, or will be."""
    here = f"/jobs/{job.id}"
    links = {"self": here, "events": f"{here}/events", "log": f"{here}/log"}
    if job.batch_id is not None:
        links["batch"] = f"/batches/{job.batch_id}"
    kind = job_kinds.of(job.kind)
    made = (job.report or {}).get(f"{kind.made}_model") if kind.made else None
    for name, where in kind.links.items():
        if made or "{made}" not in where:
            links[name] = where.format(job=job.id, artifact=job.artifact_id, made=made)
    return links


class JobPage(BaseModel):
    """Jobs, newest first."""

    model_config = ConfigDict(json_schema_extra={"example": {"jobs": [JOB_EXAMPLE], "next_cursor": None}})

    jobs: list[JobOut]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


class PurgeOut(BaseModel):
    """What became of a job that was to be deleted with all that it made."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "job": JOB_EXAMPLE["id"],
                "stopping": False,
                "artifacts": 1,
                "tuning_records": 412,
                "workloads": 37,
                "artifact_kept_by": [],
            }
        }
    )

    job: uuid.UUID
    stopping: bool = Field(description="It must end first; then nothing was deleted yet: repeat the request.")
    artifacts: int = Field(description="Deleted.")
    tuning_records: int = Field(description="Deleted.")
    workloads: int = Field(description="Texts deleted: nothing else was measured on them.")
    artifact_kept_by: list[uuid.UUID] = Field(description="Jobs that were answered with its artifact, which stays.")

    @classmethod
    def of(cls, purge: Purge) -> Self:
        """From the outcome."""
        return cls(
            job=purge.job,
            stopping=purge.stopping,
            artifacts=purge.artifacts,
            **vars(purge.measured),
            artifact_kept_by=list(purge.kept_by),
        )


class ReportOut(BaseModel):
    """What an ended job says of itself: a report when it succeeded, a problem when it failed."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "job": JOB_EXAMPLE["id"],
                "state": "SUCCEEDED",
                "report": REPORT_EXAMPLE,
                "problem": None,
                "queue_seconds": 0.18,
                "run_seconds": 24.1,
            }
        }
    )

    job: uuid.UUID
    state: JobState
    report: dict[str, Any] | None = Field(
        description="`CompileReport`: phase seconds, kernels, memory, latency, errors; of a quantization `layers`, "
        "`outputs` (signal to noise) and `quantized_model`, the digest of what it made; of a compression `layers`, "
        "`curve`, `outputs` (error) and `compressed_model`; of a minimisation `nodes`, `problem`, `tried` and "
        "`minimised_model`."
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

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "artifact": JOB_EXAMPLE["artifact_id"],
                "job": JOB_EXAMPLE["id"],
                "sha256": "5feceb66ffc86f38d952786c6d696c79" * 2,
                "bytes": 31457280,
                "created_at": "2026-11-21T04:00:24.000Z",
                "receipt": {
                    "attempt": 1,
                    "worker": "worker-1/811",
                    "hardware": "cpu:x86-64-v4/62047a4b3376a6f5",
                    "report": REPORT_EXAMPLE,
                },
            }
        }
    )

    artifact: uuid.UUID
    job: uuid.UUID
    sha256: str
    bytes: int
    created_at: datetime
    receipt: dict[str, Any]


class ArtifactFile(BaseModel):
    """A file inside an artifact."""

    name: str
    bytes: int


class ArtifactFilesOut(BaseModel):
    """What an artifact holds; `manifest.json` says what each is for."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "artifact": "019aa1f0-7c2f-7d1b-8f5a-3c9e2b7d4a10",
                "files": [{"name": "manifest.json", "bytes": 2841}, {"name": "source/kernel_0.c", "bytes": 9120}],
            }
        }
    )

    artifact: uuid.UUID
    files: list[ArtifactFile]


class WorkerOut(BaseModel):
    """A worker that is alive."""

    name: str
    queues: list[str]
    hardware: dict[str, Any]
    compiler: str = Field(description="Version of the compiler it runs.")
    busy: bool
    started_at: datetime
    last_seen: datetime

    @classmethod
    def of(cls, worker: Worker) -> Self:
        """From a row; which job it runs is its owner's business alone."""
        return cls(
            name=worker.name,
            queues=worker.queues,
            hardware=worker.hardware,
            compiler=worker.compiler,
            busy=worker.busy_with is not None,
            started_at=utc(worker.started_at),
            last_seen=utc(worker.last_seen),
        )


class WorkerList(BaseModel):
    """The workers that are alive."""

    model_config = ConfigDict(json_schema_extra={"example": {"workers": [WORKER_EXAMPLE]}})

    workers: list[WorkerOut]


class Alive(BaseModel):
    """The process answers."""

    model_config = ConfigDict(json_schema_extra={"example": {"status": "alive"}})

    status: Literal["alive"] = "alive"


class VersionOut(BaseModel):
    """What answers."""

    model_config = ConfigDict(json_schema_extra={"example": {"version": "0.1.0", "api": "v1"}})

    version: str = Field(description="Of the service and its compiler.")
    api: str = Field(description="Of the operations and their answers.")


class CheckOut(BaseModel):
    """One part of the service, tried just now."""

    name: str
    ok: bool
    detail: str


class Readiness(BaseModel):
    """Whether a model sent now would be compiled."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"ready": True, "checks": [{"name": "database", "ok": True, "detail": "answers"}]}
        }
    )

    ready: bool
    checks: list[CheckOut]

    @classmethod
    def of(cls, checks: Sequence[Check]) -> Self:
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
