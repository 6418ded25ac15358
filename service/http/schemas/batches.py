"""Batches and comparisons as they go over the wire."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from service.db.batches import Batch
from service.db.models import JobState
from service.http.schemas.common import JOB_EXAMPLE, JobOut, utc
from service.http.schemas.models import BATCH_ID, DIGEST_EXAMPLE
from service.jobs.lifecycle import transitions
from service.jobs.lifecycle.compare import Comparison, Entry
from service.jobs.submission.batches import Found

BATCH_EXAMPLE: dict[str, Any] = {
    "id": BATCH_ID,
    "model": DIGEST_EXAMPLE,
    "created_at": "2026-11-21T04:00:00.000Z",
    "states": {"SUCCEEDED": 1, "RUNNING": 1},
    "ended": False,
    "links": {
        "self": f"/batches/{BATCH_ID}",
        "comparison": f"/batches/{BATCH_ID}/comparison",
        "jobs": f"/jobs?batch={BATCH_ID}",
    },
}
COMPARED_EXAMPLE: dict[str, Any] = {
    "job": JOB_EXAMPLE["id"],
    "name": None,
    "state": "SUCCEEDED",
    "artifact_id": JOB_EXAMPLE["artifact_id"],
    "compiler": "0.1.0",
    "options": {"threads": 4},
    "figures": {"latency_s": 0.0041, "artifact_bytes": 31457280, "largest_error": 3.1e-7},
    "run_seconds": 24.1,
    "problem": None,
    "benchmarks": [
        {
            "benchmark": "019aa1f2-11c0-7d3e-9a51-3c1b7c2f4e90",
            "ended_at": "2026-11-21T04:01:09.420Z",
            "median_s": 0.0040,
        }
    ],
}


class BatchOut(BaseModel):
    """What one request asked for."""

    model_config = ConfigDict(json_schema_extra={"example": BATCH_EXAMPLE})

    id: uuid.UUID
    model: str = Field(description="The digest of the model of all its jobs.")
    created_at: datetime
    states: dict[JobState, int] = Field(description="How many of its jobs are in each state.")
    ended: bool = Field(description="Whether all have.")
    links: dict[str, str]

    @classmethod
    def of(cls, batch: Batch) -> Self:
        """From its jobs' rows."""
        return cls(**_fields(batch))


class BatchJobsOut(BatchOut):
    """A batch with its jobs."""

    model_config = ConfigDict(json_schema_extra={"example": {**BATCH_EXAMPLE, "jobs": [JOB_EXAMPLE]}})

    jobs: list[JobOut] = Field(description="In the order of the request.")

    @classmethod
    def found(cls, found: Found) -> Self:
        """From their rows."""
        return cls(**_fields(found.batch), jobs=[JobOut.of(job) for job in found.jobs])


class BatchPage(BaseModel):
    """Batches, newest first."""

    model_config = ConfigDict(json_schema_extra={"example": {"batches": [BATCH_EXAMPLE], "next_cursor": None}})

    batches: list[BatchOut]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


class TimedOut(BaseModel):
    """What a benchmark that was kept found for an artifact."""

    benchmark: uuid.UUID
    ended_at: datetime
    median_s: float


class ComparedOut(BaseModel):
    """One compilation beside others."""

    model_config = ConfigDict(json_schema_extra={"example": COMPARED_EXAMPLE})

    job: uuid.UUID
    name: str | None
    state: JobState
    artifact_id: uuid.UUID | None
    compiler: str | None = Field(description="Version of the compiler, once it has SUCCEEDED.")
    options: dict[str, Any] = Field(description="Those in which the compilations differ.")
    figures: dict[str, float] = Field(
        description="Of its report, once it has SUCCEEDED: `latency_s`, `artifact_bytes`, `weight_bytes`, "
        "`arena_bytes`, `kernels`, `largest_error` (relative), `tolerance`, `records_measured`, `records_reused`."
    )
    run_seconds: float | None
    problem: dict[str, Any] | None
    benchmarks: list[TimedOut] = Field(description="Benchmarks that ran its artifact, newest first.")

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """From the rows."""
        shown = JobOut.of(entry.job)
        return cls(
            job=shown.id,
            name=shown.name,
            state=shown.state,
            artifact_id=shown.artifact_id,
            compiler=(entry.job.report or {}).get("compiler_version"),
            options=dict(entry.differs),
            figures=dict(entry.figures),
            run_seconds=shown.run_seconds,
            problem=shown.problem,
            benchmarks=[
                TimedOut(benchmark=one.benchmark, ended_at=utc(one.ended_at), median_s=one.median_s)
                for one in entry.timed
            ],
        )


class ComparisonOut(BaseModel):
    """Compilations beside each other."""

    model_config = ConfigDict(json_schema_extra={"example": {"jobs": [COMPARED_EXAMPLE], "fastest": JOB_EXAMPLE["id"]}})

    jobs: list[ComparedOut] = Field(description="In the order asked for.")
    fastest: uuid.UUID | None = Field(
        description="By the latency that each measured of itself; null for fewer than two. A benchmark knows better."
    )

    @classmethod
    def of(cls, comparison: Comparison) -> Self:
        """From the rows."""
        return cls(jobs=[ComparedOut.of(entry) for entry in comparison.entries], fastest=comparison.fastest)


def _fields(batch: Batch) -> dict[str, Any]:
    here = f"/batches/{batch.id}"
    return {
        "id": batch.id,
        "model": batch.model,
        "created_at": utc(batch.created_at),
        "states": batch.states,
        "ended": set(batch.states) <= set(transitions.TERMINAL),
        "links": {"self": here, "comparison": f"{here}/comparison", "jobs": f"/jobs?batch={batch.id}"},
    }
