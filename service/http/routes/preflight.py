"""`POST /preflight`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request

from compiler.errors import OptionsError
from service.errors import BadRequest, Busy, DigestMismatch
from service.http.admission.auth import Submitter
from service.http.gate import Gated
from service.http.requests.model_bodies import model_body
from service.http.requests.model_requests import asked_for
from service.http.requests.request_options import options_of
from service.http.responses.errors import problem_responses
from service.http.schemas.labels import VERSION, Version, properties
from service.http.schemas.models import DIGEST_EXAMPLE
from service.http.schemas.options import OPTIONS_EXAMPLE, OPTIONS_SCHEMA
from service.http.schemas.preflight import PreflightOut
from service.http.state import Here
from service.jobs.inspection.preflight import Foretold, preflight

BODY = model_body(
    OPTIONS_SCHEMA,
    {"compiler": properties()["compiler"]},
    {"one": {"model": DIGEST_EXAMPLE, "options": OPTIONS_EXAMPLE}},
)

router = Gated(tags=["compile"])


@router.post(
    "/preflight",
    summary="Look at a model before compiling it",
    response_model=PreflightOut,
    responses=problem_responses(404, 413, OptionsError, DigestMismatch, Busy, 507),
    openapi_extra={"requestBody": BODY},
)
async def preflight_model(
    request: Request,
    here: Here,
    caller: Submitter,
    options: Annotated[
        str | None,
        Query(description="Options as JSON, when the body is the model itself.", examples=['{"threads": 4}']),
    ] = None,
    compiler: Annotated[Version | None, Query(description=VERSION)] = None,
) -> PreflightOut:
    """Name an uploaded model, or send one as to `POST /compile`; the answer says what would become of it.

    Which operators are supported, and why others are not; what dimensions the options leave open; memory, work and
    time; whether an artifact is there already; and the request again, corrected where it can be. The model is read by a
    sealed process and kept, so that `request` can be sent to `POST /compile` as it is. No job is made, and a model that
    cannot be compiled is no error: `ok` is false.
    """
    asked = await asked_for(request, here, caller, options, options_of)
    chosen = asked.options
    if isinstance(chosen, list):
        raise BadRequest("several options are looked at one at a time", fix="give one object, not a list")

    pin = asked.wishes.compiler or compiler

    def foretell() -> Foretold:
        alive_s = here.settings.worker_alive_s
        return preflight(
            here.db, here.blobs, here.inspector, caller.owner, asked.wishes.model, chosen, alive_s=alive_s, compiler=pin
        )

    return PreflightOut.of(await here.pools.preflight.run(foretell))
