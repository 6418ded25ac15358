"""`/benchmarks`: time artifacts against each other on a worker's device."""

from __future__ import annotations

from typing import Annotated

from fastapi import BackgroundTasks, Query, Response

from compiler.errors import OptionsError
from service.errors import IdempotencyKeyReused
from service.http.admission.auth import Reader, Submitter
from service.http.gate import Gated
from service.http.requests.accepted import IdempotencyKey, accepted
from service.http.requests.benchmark_requests import BODY, Timed
from service.http.responses.cursors import Cursor, Following, Limit, decode, encode
from service.http.responses.errors import QUOTAS, problem_responses
from service.http.schemas.ids import BenchmarkId
from service.http.schemas.runs import BenchmarkOut, BenchmarkPage, RunOut
from service.http.state import Here
from service.jobs.lifecycle import outcomes
from service.jobs.storage import named_workloads
from service.jobs.submission import priority, runs

router = Gated(tags=["benchmarks"])


@router.post(
    "/benchmarks",
    status_code=202,
    summary="Benchmark artifacts",
    responses=problem_responses(*QUOTAS, 404, 410, 413, OptionsError, IdempotencyKeyReused, 507),
    openapi_extra={"requestBody": BODY},
)
def make_benchmark(
    here: Here,
    caller: Submitter,
    asked: Timed,
    response: Response,
    background: BackgroundTasks,
    idempotency_key: IdempotencyKey = None,
) -> BenchmarkOut:
    """Time one to eight artifacts side by side on one device that can run them all, their runs interleaved.

    Artifacts that a compilation has promised are accepted before they are made: the benchmark waits for them
    (`blocked_by`), and fails with `artifact_never_made` when one never will be. The job can be followed and cancelled
    like every other: `/jobs/{id}`.

    They are timed on numbers that are drawn, or on a sample: then the body is multipart, with the JSON as its part
    `benchmark` and an .npz of inputs as its part `samples`. It is not read here: one that does not fit an artifact is
    accepted and fails as a job, which names each input. `report.inputs` says what was used.
    """
    wanted, samples = asked
    options = wanted.options
    if wanted.workload is not None:
        options = named_workloads.timed_at(here.db, caller.owner, wanted.artifacts, wanted.workload, options)
    submitted = runs.benchmark(
        here.db,
        caller.owner,
        wanted.artifacts,
        options,
        idempotency_key=idempotency_key,
        priority=priority.allowed(caller, wanted.priority),
        beside=wanted.beside,
        on=samples,
        limits=here.limits,
    )
    job = submitted.job
    accepted(here, response, background, submitted, f"/benchmarks/{job.id}")
    return BenchmarkOut.of_benchmark(outcomes.benchmark(here.db, caller.owner, job.id), samples=True)


@router.get("/benchmarks", summary="List benchmarks", responses=problem_responses(400))
def list_benchmarks(
    here: Here, caller: Reader, following: Following, limit: Limit = 50, cursor: Cursor = None
) -> BenchmarkPage:
    """The caller's benchmarks without their reports, newest first."""
    found, last = outcomes.benchmarks(here.db, caller.owner, before=decode(cursor), limit=limit)
    return BenchmarkPage(benchmarks=[RunOut.of(one) for one in found], next_cursor=following(encode(last)))


@router.get("/benchmarks/{benchmark_id}", summary="One benchmark", responses=problem_responses(404))
def get_benchmark(
    here: Here,
    caller: Reader,
    benchmark_id: BenchmarkId,
    samples: Annotated[bool, Query(description="Whether the report holds every raw sample.")] = True,
) -> BenchmarkOut:
    """State and progress; once it has SUCCEEDED the report, and for two artifacts the verdict."""
    return BenchmarkOut.of_benchmark(outcomes.benchmark(here.db, caller.owner, benchmark_id), samples=samples)
