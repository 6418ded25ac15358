"""`POST /quantizations`: a model in floating point becomes one in 8-bit integers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import BackgroundTasks, Query, Request, Response

from compiler.contract import QuantizeOptions
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
from service.http.schemas.options import QUANTIZE_EXAMPLE, QUANTIZE_SCHEMA
from service.http.state import Here
from service.jobs.submission.job_terms import NOTHING
from service.jobs.submission.quantizations import Quantization
from service.jobs.submission.submit import HIGHEST_PRIORITY, LOWEST_PRIORITY

BODY = model_body(
    QUANTIZE_SCHEMA,
    {
        "priority": {"type": "integer", "minimum": LOWEST_PRIORITY, "maximum": HIGHEST_PRIORITY},
        **properties(),
    },
    {"without samples": {"model": DIGEST_EXAMPLE, "options": QUANTIZE_EXAMPLE}},
    with_samples=True,
    example=QUANTIZE_EXAMPLE,
)

router = Gated(tags=["quantizations"])


@router.post(
    "/quantizations",
    status_code=202,
    summary="Quantise a model",
    responses=problem_responses(*QUOTAS, 404, 413, OptionsError, IdempotencyKeyReused, DigestMismatch, 507),
    openapi_extra={"requestBody": BODY},
)
async def quantize_model(
    request: Request,
    response: Response,
    background: BackgroundTasks,
    here: Here,
    caller: Submitter,
    options: Annotated[
        str | None,
        Query(description="Options as JSON, when the body is the model itself.", examples=['{"snr_db": 30}']),
    ] = None,
    priority: Annotated[
        int,
        Query(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY, description="Greater goes first; above 0 needs `admin`."),
    ] = 0,
    beside: BesideQuery = NOTHING,
    idempotency_key: IdempotencyKey = None,
) -> JobOut:
    """Send a model, or name one that was uploaded, as for `POST /compile`; the answer is a job.

    Parts `samples` are .npz archives of real inputs, each of one sample or of several along a first axis; without any,
    random inputs are drawn, and the report says so. Once the job has SUCCEEDED, what it made is a model of the caller
    like one that was uploaded: `links.quantized` is its file, an ONNX model with QuantizeLinear and DequantizeLinear,
    and the report has its digest, a row for each layer, and the signal to noise of each output.
    """
    return await change_model(
        Quantization, _options, request, response, background, here, caller, options, priority, beside, idempotency_key
    )


def _options(plain: Any) -> QuantizeOptions:
    return QuantizeOptions() if plain is None else QuantizeOptions.from_json(plain)
