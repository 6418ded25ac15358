"""`POST /compressions`: a model becomes one whose weights have a form that saves time or memory."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import BackgroundTasks, Query, Request, Response

from compiler.contract import CompressOptions
from compiler.errors import OptionsError
from service.errors import DigestMismatch, IdempotencyKeyReused
from service.http.admission.auth import Submitter
from service.http.gate import Gated
from service.http.requests.accepted import IdempotencyKey
from service.http.requests.model_bodies import model_body
from service.http.requests.model_changes import change_model
from service.http.responses.errors import QUOTAS, problem_responses
from service.http.schemas.common import JobOut
from service.http.schemas.labels import BesideQuery, properties
from service.http.schemas.models import DIGEST_EXAMPLE
from service.http.schemas.options import COMPRESS_EXAMPLE, COMPRESS_SCHEMA
from service.http.state import Here
from service.jobs.submission.compressions import Compression
from service.jobs.submission.job_terms import NOTHING
from service.jobs.submission.submit import HIGHEST_PRIORITY, LOWEST_PRIORITY

BODY = model_body(
    COMPRESS_SCHEMA,
    {
        "priority": {"type": "integer", "minimum": LOWEST_PRIORITY, "maximum": HIGHEST_PRIORITY},
        **properties(),
    },
    {"without samples": {"model": DIGEST_EXAMPLE, "options": COMPRESS_EXAMPLE}},
    with_samples=True,
    example=COMPRESS_EXAMPLE,
)

router = Gated(tags=["compressions"])


@router.post(
    "/compressions",
    status_code=202,
    summary="Compress a model",
    responses=problem_responses(*QUOTAS, 404, 413, OptionsError, IdempotencyKeyReused, DigestMismatch, 507),
    openapi_extra={"requestBody": BODY},
)
async def compress_model(
    request: Request,
    response: Response,
    background: BackgroundTasks,
    here: Here,
    caller: Submitter,
    options: Annotated[
        str | None,
        Query(description="Options as JSON, when the body is the model itself.", examples=['{"largest_error": 0.05}']),
    ] = None,
    priority: Annotated[
        int,
        Query(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY, description="Greater goes first; above 0 needs `admin`."),
    ] = 0,
    beside: BesideQuery = NOTHING,
    idempotency_key: IdempotencyKey = None,
) -> JobOut:
    """Send a model, or name one that was uploaded, as for `POST /compile`; the answer is a job.

    Parts `samples` are .npz archives of real inputs, each of one sample or of several along a first axis; a quarter is
    held out to judge the result on. Without any, random inputs are drawn, and the report says so. Just one of the
    options `largest_error`, `latency_ms` and `sparsity` says how far to go. Once the job has SUCCEEDED, what it made
    is a model of the caller like one that was uploaded: `links.compressed` is its file, and the report has its digest,
    each layer's choice with error and time, and the curve of error against time. What that does to the accuracy on
    your task only a test on your own data can tell.
    """
    return await change_model(
        Compression, _options, request, response, background, here, caller, options, priority, beside, idempotency_key
    )


def _options(plain: Any) -> CompressOptions:
    return CompressOptions.from_json({} if plain is None else plain)
