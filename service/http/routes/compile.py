"""`POST /compile`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from anyio import to_thread
from fastapi import BackgroundTasks, Query, Request, Response

from compiler.contract import CompileOptions
from compiler.errors import OptionsError
from service.errors import DigestMismatch, IdempotencyKeyReused
from service.http.admission.auth import Submitter
from service.http.gate import Gated
from service.http.multipart.parts import DATA, DIGEST, MODEL, OPTIONS, SAMPLES
from service.http.requests import waiting
from service.http.requests.accepted import IdempotencyKey, accepted
from service.http.requests.model_bodies import SEVERAL_SCHEMA, model_body
from service.http.requests.model_requests import Wanted, asked_for
from service.http.requests.request_options import options_of
from service.http.requests.waiting import Prefer
from service.http.responses.errors import QUOTAS, problem_responses
from service.http.schemas.common import JobOut
from service.http.schemas.labels import BesideQuery, properties
from service.http.schemas.models import DIGEST_EXAMPLE, JobList
from service.http.schemas.options import OPTIONS_EXAMPLE
from service.http.schemas.runs import WORKLOAD_NAME
from service.http.state import Here, State
from service.jobs.storage import named_workloads
from service.jobs.submission import priority as priorities
from service.jobs.submission.batch import batch
from service.jobs.submission.job_terms import NOTHING
from service.jobs.submission.submit import HIGHEST_PRIORITY, LOWEST_PRIORITY, Submission, Submitted, submit, submit_all

BODY = model_body(
    SEVERAL_SCHEMA,
    {
        "fresh": {"type": "boolean", "default": False},
        "priority": {"type": "integer", "minimum": LOWEST_PRIORITY, "maximum": HIGHEST_PRIORITY},
        **properties(),
    },
    {
        "one": {"model": DIGEST_EXAMPLE, "options": OPTIONS_EXAMPLE},
        "several targets": {"model": DIGEST_EXAMPLE, "options": [{"target": "cpu"}, {"target": "cpu:x86-64-v3"}]},
    },
    with_samples=True,
)

router = Gated(tags=["compile"])


@router.post(
    "/compile",
    status_code=202,
    summary="Compile a model",
    response_model=JobOut | JobList,
    responses={
        **problem_responses(*QUOTAS, 404, 413, OptionsError, IdempotencyKeyReused, DigestMismatch, 507),
        200: {
            "model": JobOut | JobList,
            "description": "`Prefer: wait=N` was sent, and what was asked for has ended.",
            "headers": waiting.APPLIED_HEADER,
        },
    },
    openapi_extra={"requestBody": BODY},
)
async def compile_model(
    request: Request,
    response: Response,
    background: BackgroundTasks,
    here: Here,
    caller: Submitter,
    options: Annotated[
        str | None,
        Query(
            description="Options as JSON, one object or a list, when the body is the model itself.",
            examples=['{"threads": 4}'],
        ),
    ] = None,
    fresh: Annotated[bool, Query(description="Compile even if the cache holds the answer.")] = False,
    priority: Annotated[
        int,
        Query(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY, description="Greater goes first; above 0 needs `admin`."),
    ] = 0,
    workload: Annotated[
        str | None,
        Query(
            pattern=WORKLOAD_NAME, description="A workload of the model: each size is the `opt` of its range, or fixed."
        ),
    ] = None,
    beside: BesideQuery = NOTHING,
    idempotency_key: IdempotencyKey = None,
    prefer: Prefer = None,
) -> JobOut | JobList:
    """Send a model, or name one that was uploaded; the answer is a job that names the artifact it will make.

    The body is JSON with the digest of an uploaded model, or multipart (part `model`, external data as parts `data`,
    options as JSON in the part `options`; instead of `model` the `digest` of an uploaded one), or the model itself, or
    a zip. Parts `samples` are .npz archives of inputs: the artifact is judged on each, and timed on the first. A list
    of options makes a batch with a job for each, answered as `{"jobs": [...], "batch": id}`. Neither model nor samples
    are read here: malformed ones are accepted and fail as a job. The same model with the same options and samples is
    answered at once by a job that has SUCCEEDED, unless `fresh`. A `workload` by its name says sizes of dimensions
    (`PUT /models/{digest}/workloads/{workload}`). With `Prefer: wait=N` the answer comes when all jobs
    have ended (200), or after N seconds (202).
    """
    priorities.allowed(caller, priority)
    sent = await asked_for(request, here, caller, options, options_of, (MODEL, DATA, OPTIONS, DIGEST, SAMPLES))
    asked, wanted = sent.wishes, sent.options
    submission = Submission(
        owner=caller.owner,
        model=asked.model,
        options=CompileOptions(),
        fresh=fresh or asked.fresh,
        idempotency_key=idempotency_key,
        priority=priorities.allowed(caller, priority if asked.priority is None else asked.priority),
        samples=sent.samples,
        beside=asked.beside.over(beside),
    )
    submitted = await to_thread.run_sync(_submit, here, submission, wanted, workload)
    for one in submitted:
        accepted(here, response, background, one, f"/jobs/{one.job.id}")
    made = [JobOut.of(one.job) for one in submitted]
    if seconds := waiting.wanted_s(prefer):
        await background()  # whoever waits is waiting for those who are rung
        background.tasks.clear()
        made = await waiting.look_at_all(request, here, seconds, [one.job.id for one in submitted], response)
    if not isinstance(wanted, list):
        return made[0]
    batch_id = submitted[0].job.batch_id
    assert batch_id is not None, "batch() gave it one"
    response.headers["Location"] = f"/batches/{batch_id}"
    return JobList(jobs=made, batch=batch_id)


def _submit(here: State, submission: Submission, wanted: Wanted, workload: str | None) -> list[Submitted]:
    if workload is not None:

        def sized(options: CompileOptions) -> CompileOptions:
            return named_workloads.compiled_for(here.db, submission.owner, submission.model, workload, options)

        wanted = [sized(one) for one in wanted] if isinstance(wanted, list) else sized(wanted)
    if isinstance(wanted, list):
        return submit_all(here.db, batch(submission, wanted), limits=here.limits)
    return [submit(here.db, replace(submission, options=wanted), limits=here.limits)]
