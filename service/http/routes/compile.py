"""`POST /compile`."""

from __future__ import annotations

from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, BackgroundTasks, Header, Query, Request, Response

from service.db.models import JobState
from service.http.auth import Submitter
from service.http.errors import problem_responses
from service.http.schemas import JobOut
from service.http.state import Here
from service.http.upload import receive
from service.jobs.doorbell import announce
from service.jobs.submit import Submission, submit

OPTIONS_EXAMPLE = {"target": "cpu", "precision": "fp32", "threads": 4, "dims": {"batch": 1}, "tuning_budget_s": 20}

OPTIONS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "example": OPTIONS_EXAMPLE,
    "properties": {
        "target": {"type": "string", "default": "cpu", "description": "`cpu` or `cpu:<profile>`"},
        "precision": {"type": "string", "default": "fp32"},
        "tolerance": {
            "type": ["number", "null"],
            "description": "largest accepted error; null: the precision's default",
        },
        "threads": {"type": ["integer", "null"], "minimum": 1, "description": "null: every core"},
        "inputs": {
            "type": "object",
            "description": 'by input name: a shape, or {"shape": [...], "value": scalar}',
            "additionalProperties": {},
        },
        "dims": {
            "type": "object",
            "description": "by symbolic dimension: its value",
            "additionalProperties": {"type": "integer", "minimum": 0},
        },
        "tuning_budget_s": {"type": "number", "minimum": 0, "default": 15},
        "scheduler": {"type": "string", "default": "sequential"},
        "seed": {"type": "integer", "default": 0},
    },
}

BINARY = {"type": "string", "format": "binary", "description": "the bytes of an ONNX model"}

BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["model"],
                "properties": {"model": BINARY, "options": OPTIONS_SCHEMA},
            },
            "encoding": {"options": {"contentType": "application/json"}},
        },
        "application/octet-stream": {"schema": BINARY},
    },
}

router = APIRouter(tags=["compile"])


@router.post(
    "/compile",
    status_code=202,
    summary="Compile a model",
    response_model=JobOut,
    responses=problem_responses(400, 413, 422, 429, 507),
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
        Query(description="Options as JSON, when the body is the model itself.", examples=['{"threads": 4}']),
    ] = None,
    fresh: Annotated[bool, Query(description="Compile even if the cache holds the answer.")] = False,
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=200, description="Repeating a request with the same key makes no second job."),
    ] = None,
) -> JobOut:
    """Send a model; the answer is a job that names the artifact it will make.

    The model is the part `model` of a multipart body (options as JSON in the part `options`), or the body itself.
    It is not read here: a malformed model is accepted and fails as a job. The same model with the same options is
    answered at once by a job that has SUCCEEDED, unless `fresh`.
    """
    limit = here.settings.max_model_bytes
    upload = await receive(request, here.blobs, options=options, limit=limit)
    submission = Submission(
        owner=caller.owner,
        model=upload.model,
        options=upload.options,
        fresh=fresh,
        idempotency_key=idempotency_key,
    )
    max_queued = here.settings.max_queued_per_owner
    submitted = await to_thread.run_sync(lambda: submit(here.db, submission, max_queued=max_queued))
    job = submitted.job
    if job.state == JobState.QUEUED:
        background.add_task(announce, here.db, here.ring, job.id, job.queue)
    response.headers["Location"] = f"/jobs/{job.id}"
    if submitted.replayed:
        response.headers["Idempotent-Replayed"] = "true"
    return JobOut.of(job)
