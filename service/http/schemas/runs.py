"""Benchmarks, inferences, clones and logs as they go over the wire."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict

from compiler.contract import BenchmarkOptions, CompileOptions
from service.db.models import Attempt, Job, JobState
from service.http.schemas.common import JOB_EXAMPLE, JobOut, span, utc
from service.http.schemas.labels import BesideIn
from service.jobs.lifecycle.outcomes import Outcome
from service.jobs.lifecycle.problems import without_stacks
from service.jobs.submission.submit import HIGHEST_PRIORITY, LOWEST_PRIORITY

MOST_ARTIFACTS = 8
WORKLOAD_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

BENCHMARK_ID = "019aa1f2-11c0-7d3e-9a51-3c1b7c2f4e90"
INFERENCE_ID = "019aa1f3-02b4-7f10-8a6e-6f4f1f3f2b77"
FIRST, SECOND = JOB_EXAMPLE["artifact_id"], "019aa1f1-5a00-7b21-8c7d-20a4c1d9e3b5"

BENCHMARK_EXAMPLE: dict[str, Any] = {"artifacts": [FIRST, SECOND], "options": {"seconds": 3.0}}
OPTIONS_EXAMPLE = {"threads": 4, "seconds": 3.0, "profile": True, "seed": 0, "binding": 1}

REPORT_EXAMPLE: dict[str, Any] = {
    "options": OPTIONS_EXAMPLE,
    "inputs": {"from": "sample", "name": "scan.npz", "sha256": "5feceb66ffc86f38d952786c6d696c79" * 2},
    "rounds": 31,
    "machine": {
        "target": "cpu:x86-64-v4",
        "hardware": "cpu:x86-64-v4/62047a4b3376a6f5",
        "cores": 4,
        "before": {"load_average": [0.1, 0.2, 0.2], "governor": ["performance"]},
        "after": {"load_average": [2.9, 0.8, 0.4], "governor": ["performance"]},
        "during": {"seconds": 6.1, "others_busy": 0.01, "heat_events": 0},
    },
    "artifacts": [
        {
            "artifact": FIRST,
            "target": "cpu:x86-64-v4",
            "lanes": 4,
            "load": {"first_s": 0.031, "warm_s": 0.012},
            "first_run_s": 0.0061,
            "memory": {"load_bytes": 33554432, "run_bytes": 41943040},
            "samples_s": [0.00412, 0.00409, 0.00411],
            "runs": 731,
            "median_s": 0.0041,
            "p10_s": 0.00405,
            "p90_s": 0.00427,
            "p99_s": 0.00466,
            "compute_s": 0.0041,
            "copy_in_s": 0.000021,
            "copy_out_s": 0.000001,
            "kernels": [
                {"call": 0, "family": "Conv+Relu", "nodes": ["conv_1", "relu_1"], "seconds": 0.00021, "share": 0.05}
            ],
            "stream": None,
        }
    ],
    "comparisons": [
        {
            "a": FIRST,
            "b": SECOND,
            "ratio": 1.23,
            "low": 1.21,
            "high": 1.25,
            "confidence": 0.95,
            "faster": "a",
            "verdict": "a is faster by 1.23x ± 0.02",
        }
    ],
    "notices": [],
}

RUN_EXAMPLE: dict[str, Any] = {
    "id": BENCHMARK_ID,
    "state": "SUCCEEDED",
    "phase": "profile",
    "fraction": 1.0,
    "artifacts": [FIRST, SECOND],
    "options": OPTIONS_EXAMPLE,
    "queue": "run:cpu:x86-64-v4",
    "priority": 0,
    "blocked_by": 0,
    "queue_position": None,
    "cancel_requested": False,
    "created_at": "2026-11-21T04:01:00.000Z",
    "started_at": "2026-11-21T04:01:00.150Z",
    "finished_at": "2026-11-21T04:01:09.420Z",
    "queue_seconds": 0.15,
    "run_seconds": 9.27,
    "problem": None,
    "links": {"self": f"/benchmarks/{BENCHMARK_ID}", "job": f"/jobs/{BENCHMARK_ID}"},
}

INFERENCE_REPORT_EXAMPLE: dict[str, Any] = {
    "seconds": 0.0043,
    "load_s": 0.03,
    "lanes": 4,
    "outputs": {"y": {"dtype": "float32", "shape": [1, 1000], "sha256": "5feceb66ffc86f38d952786c6d696c79" * 2}},
}

ATTEMPT_EXAMPLE: dict[str, Any] = {
    "attempt": 1,
    "worker": "worker-1/811",
    "started_at": "2026-11-21T04:00:00.180Z",
    "ended_at": "2026-11-21T04:00:01.020Z",
    "seconds": 0.84,
    "outcome": "FAILED",
    "log": "",
}

Priority = Annotated[int, Field(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)]


def _as_it_is(given: Any) -> Any:
    return given


Overrides = Annotated[dict[str, Any], BeforeValidator(_as_it_is, json_schema_input_type=CompileOptions)]
"""Some options of a compilation: checked when they have taken the place of others."""


def _distinct(artifacts: list[uuid.UUID]) -> list[uuid.UUID]:
    if len(set(artifacts)) < len(artifacts):
        raise ValueError("an artifact is named twice; name each once")
    return artifacts


class BenchmarkIn(BesideIn):
    """What to time, and how."""

    model_config = ConfigDict(json_schema_extra={"example": BENCHMARK_EXAMPLE})

    artifacts: Annotated[list[Annotated[uuid.UUID, Strict(False)]], AfterValidator(_distinct)] = Field(
        min_length=1,
        max_length=MOST_ARTIFACTS,
        description="Each once, in the order in which the report names them; made, or still in the making.",
    )
    options: BenchmarkOptions = Field(default_factory=BenchmarkOptions)
    workload: str | None = Field(
        None,
        pattern=WORKLOAD_NAME,
        description="A workload of the artifacts' models: sizes to time, instead of `dims` in `options`.",
    )
    priority: Priority = Field(0, description="Greater goes first; above 0 needs the scope `admin`.")


class CloneIn(BesideIn):
    """What is to be different this time."""

    model_config = ConfigDict(json_schema_extra={"example": {"options": {"tuning_budget_s": 120}}})

    options: Overrides = Field(
        default_factory=dict, description="Options to replace, each as a whole; the others stay as they were."
    )
    fresh: bool = Field(False, description="Compile even if the cache holds the answer.")
    priority: Priority = Field(0, description="Greater goes first; above 0 needs the scope `admin`.")


class RunOut(BaseModel):
    """A job that runs artifacts."""

    model_config = ConfigDict(json_schema_extra={"example": RUN_EXAMPLE})

    id: uuid.UUID = Field(description="Id of the benchmark or inference, which is that of its job.")
    state: JobState
    phase: str | None
    fraction: float = Field(description="Progress of the present attempt, 0 to 1.")
    artifacts: list[uuid.UUID] = Field(description="Artifacts that it runs, in the order given.")
    options: dict[str, Any]
    queue: str = Field(description="The device class it waits for.")
    priority: int
    blocked_by: int = Field(description="How many of the artifacts are not made yet.")
    queue_position: int | None = Field(description="How many jobs go first; null unless queued, and in lists.")
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    queue_seconds: float | None
    run_seconds: float | None
    problem: dict[str, Any] | None = Field(description="Why it failed: code, fault, message, fix, refusals, details.")
    links: dict[str, str]

    @classmethod
    def of(cls, found: Outcome) -> Self:
        """From what was found."""
        return cls(**_plain(found))


class BenchmarkPage(BaseModel):
    """Benchmarks without their reports, newest first."""

    model_config = ConfigDict(json_schema_extra={"example": {"benchmarks": [RUN_EXAMPLE], "next_cursor": None}})

    benchmarks: list[RunOut]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


class BenchmarkOut(RunOut):
    """A benchmark, and once it has SUCCEEDED what it found."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {**RUN_EXAMPLE, "verdict": "a is faster by 1.23x ± 0.02", "report": REPORT_EXAMPLE}
        }
    )

    verdict: str | None = Field(
        description="Of two artifacts: `a is faster by 1.23x ± 0.02` (a is the first) or `cannot tell`; "
        "null until it is known, and for one artifact or more than two: see `report.comparisons`."
    )
    report: dict[str, Any] | None = Field(description="Times in seconds; null until the benchmark has SUCCEEDED.")

    @classmethod
    def of_benchmark(cls, found: Outcome, *, samples: bool) -> Self:
        """From what was found; without `samples` the raw times are not included."""
        report = None if found.report is None else dict(found.report)
        compared = (report or {}).get("comparisons") or []
        verdict = compared[0].get("verdict") if len(compared) == 1 and len(found.artifacts) == 2 else None
        if report is not None and not samples:
            report["artifacts"] = [_without_samples(entry) for entry in report.get("artifacts", ())]
        return cls(**_plain(found), verdict=verdict, report=report)


class InferenceOut(RunOut):
    """An inference, and once it has SUCCEEDED its times and what its outputs are like."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                **RUN_EXAMPLE,
                "id": INFERENCE_ID,
                "phase": "run",
                "artifacts": [FIRST],
                "options": {"threads": None},
                "links": {
                    "self": f"/inferences/{INFERENCE_ID}",
                    "job": f"/jobs/{INFERENCE_ID}",
                    "outputs": f"/inferences/{INFERENCE_ID}/outputs",
                },
                "input_bytes": 602382,
                "output_bytes": 4266,
                "output_sha256": "2c26b46b68ffc68ff99b453c1d304134" * 2,
                "report": INFERENCE_REPORT_EXAMPLE,
            }
        }
    )

    input_bytes: int
    output_bytes: int | None
    output_sha256: str | None = Field(description="SHA-256 of the .npz file with the outputs.")
    report: dict[str, Any] | None = Field(
        description="`seconds` of the run alone, `load_s`, `lanes`, and of each output dtype, shape and SHA-256; of "
        "generating also `prompt_tokens`, `first_s` (until the first token) and `stopped`: `end` (a token of "
        "`stop`), `length` (of `max_tokens`) or `capacity` (of the caches); of pieces `first_s` (until the first one) "
        "and `pieces`, how many there were."
    )

    @classmethod
    def of(cls, found: Outcome) -> Self:
        """From what was found."""
        row = found.inference
        assert row is not None, "an inference has one"
        return cls(
            **_plain(found),
            input_bytes=row.input_bytes,
            output_bytes=row.output_bytes,
            output_sha256=row.output_sha256,
            report=None if found.report is None else dict(found.report),
        )


class AttemptOut(BaseModel):
    """One worker's try at a job."""

    model_config = ConfigDict(json_schema_extra={"example": ATTEMPT_EXAMPLE})

    attempt: int
    worker: str
    started_at: datetime
    ended_at: datetime | None
    seconds: float | None
    outcome: str | None = Field(description="The state the job was left in, or `lost` when the worker vanished.")
    log: str = Field(description="The end of the output of the process that did the work.")

    @classmethod
    def of(cls, row: Attempt) -> Self:
        """From a row."""
        return cls(
            attempt=row.attempt,
            worker=row.worker,
            started_at=utc(row.started_at),
            ended_at=None if row.ended_at is None else utc(row.ended_at),
            seconds=span(row.started_at, row.ended_at),
            outcome=row.outcome,
            log=without_stacks(row.log),
        )


class LogOut(BaseModel):
    """All that is known of how a job went."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "job": JOB_EXAMPLE["id"],
                "state": "FAILED",
                "attempts": [ATTEMPT_EXAMPLE],
                "events": [{"seq": 1, "kind": "state", "at": "2026-11-21T04:00:00+00:00", "state": "QUEUED"}],
            }
        }
    )

    job: uuid.UUID
    state: JobState
    attempts: list[AttemptOut]
    events: list[dict[str, Any]] = Field(description="As in `/jobs/{id}/events`.")


def _plain(found: Outcome) -> dict[str, Any]:
    """The fields of `RunOut`."""
    job = JobOut.of(found.job, found.queue_position)
    fields = {name: getattr(job, name) for name in RunOut.model_fields if name not in ("artifacts", "links")}
    return {**fields, "artifacts": list(found.artifacts), "links": links(found.job)}


def links(job: Job) -> dict[str, str]:
    """Where the parts of a benchmark or an inference are found."""
    known = dict(JobOut.of(job).links)
    itself = known.pop("benchmark", None) or known.pop("inference")
    return {**known, "self": itself, "job": f"/jobs/{job.id}"}


def _without_samples(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "samples_s"}
