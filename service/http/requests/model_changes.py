"""The route that makes jobs of a kind which changes a model: the request read, a job made, the answer."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Annotated, Any

from anyio import to_thread
from fastapi import BackgroundTasks, Query, Request, Response

from compiler.contract import kinds
from compiler.contract.job_kinds import JobKind
from compiler.errors import OptionsError
from service.errors import BadRequest, DigestMismatch, IdempotencyKeyReused
from service.http.admission.auth import Submitter
from service.http.admission.limits import Body, Lane, Terms
from service.http.gate import Gated, on_terms
from service.http.multipart.parts import DATA, DIGEST, MODEL, OPTIONS, SAMPLES
from service.http.requests.accepted import IdempotencyKey, accepted
from service.http.requests.model_bodies import model_body
from service.http.requests.model_requests import asked_for
from service.http.responses.errors import QUOTAS, problem_responses
from service.http.schemas.common import JobOut
from service.http.schemas.labels import BesideQuery, properties
from service.http.schemas.models import DIGEST_EXAMPLE
from service.http.schemas.options import reference
from service.http.state import Here
from service.jobs.submission import priority as priorities
from service.jobs.submission.job_terms import NOTHING
from service.jobs.submission.model_changes import ModelChange, change
from service.jobs.submission.submit import HIGHEST_PRIORITY, LOWEST_PRIORITY


def changing(
    kind: JobKind,
    path: str,
    *,
    name: str,
    summary: str,
    description: str,
    example: Mapping[str, Any],
    with_samples: bool = True,
) -> Gated:
    """A router with `POST path`, which takes a model as `POST /compile` does, the kind's options and samples.

    name          of the operation
    example       of options in the query, where the body is the model
    with_samples  whether the kind takes samples

    The job goes to the device class that the options name as `target`, else to CPUs.
    """
    router = Gated(tags=[path.removeprefix("/")])
    given, parts = kind.options, (MODEL, DATA, OPTIONS, DIGEST, *([SAMPLES] if with_samples else []))
    assert given is not None, "a model is changed as options say"

    def options_of(plain: Any) -> Any:
        return given.from_json({} if plain is None else plain)

    @router.post(
        path,
        status_code=202,
        name=name,
        summary=summary,
        description=inspect.cleandoc(description),
        responses=problem_responses(*QUOTAS, 404, 413, OptionsError, IdempotencyKeyReused, DigestMismatch, 507),
        openapi_extra={"requestBody": _body(kind, with_samples=with_samples)},
    )
    @on_terms(Terms(Body.FILES, Lane.UPLOAD))
    async def change_model(
        request: Request,
        response: Response,
        background: BackgroundTasks,
        here: Here,
        caller: Submitter,
        options: str | None = Query(
            None, description="Options as JSON, when the body is the model itself.", examples=[json.dumps(example)]
        ),
        priority: Annotated[
            int,
            Query(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY, description="Greater goes first; above 0 needs `admin`."),
        ] = 0,
        beside: BesideQuery = NOTHING,
        idempotency_key: IdempotencyKey = None,
    ) -> JobOut:
        priorities.allowed(caller, priority)
        sent = await asked_for(request, here, caller, options, options_of, parts)
        asked = sent.wishes
        if asked.fresh:
            message = f"a {kind.name} has no field 'fresh'"
            raise BadRequest(message, fix="leave it out: nothing is answered from a cache")
        wanted = ModelChange(
            kind=kind.name,
            owner=caller.owner,
            model=asked.model,
            options=sent.options,
            samples=sent.samples,
            idempotency_key=idempotency_key,
            priority=priorities.allowed(caller, priority if asked.priority is None else asked.priority),
            beside=asked.beside.over(beside),
            queue=getattr(sent.options, "target", kinds.CPU.name),
        )
        submitted = await to_thread.run_sync(lambda: change(here.db, wanted, limits=here.limits))
        accepted(here, response, background, submitted, f"/jobs/{submitted.job.id}")
        return JobOut.of(submitted.job)

    return router


def _body(kind: JobKind, *, with_samples: bool) -> dict[str, Any]:
    assert kind.options is not None
    return model_body(
        reference(kind.options),
        {
            "priority": {"type": "integer", "minimum": LOWEST_PRIORITY, "maximum": HIGHEST_PRIORITY},
            **properties(),
        },
        {"without samples": {"model": DIGEST_EXAMPLE, "options": kind.example}},
        with_samples=with_samples,
        example=kind.example,
    )
