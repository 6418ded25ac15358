"""What routes that change a model share: the request read, a job made, the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyio import to_thread
from fastapi import BackgroundTasks, Request, Response

from service.errors import BadRequest
from service.http.multipart.parts import DATA, DIGEST, MODEL, OPTIONS, SAMPLES
from service.http.requests.accepted import accepted
from service.http.requests.model_requests import asked_for
from service.http.schemas.common import JobOut
from service.http.state import State
from service.jobs.accounts.access import Caller
from service.jobs.submission import priority as priorities
from service.jobs.submission.job_terms import Beside
from service.jobs.submission.model_changes import ModelChange, change


async def change_model(
    kind: type[ModelChange],
    options_of: Callable[[Any], Any],
    request: Request,
    response: Response,
    background: BackgroundTasks,
    here: State,
    caller: Caller,
    options: str | None,
    priority: int,
    beside: Beside,
    idempotency_key: str | None,
) -> JobOut:
    """Makes a job of this kind of a model that is sent or named, and answers with it.

    options_of  the kind's options of a body's, which may be missing

    Raises what the route declares.
    """
    priorities.allowed(caller, priority)
    sent = await asked_for(request, here, caller, options, options_of, (MODEL, DATA, OPTIONS, DIGEST, SAMPLES))
    asked = sent.wishes
    if asked.fresh:
        raise BadRequest(f"a {kind.kind} has no field 'fresh'", fix="leave it out: nothing is answered from a cache")
    wanted = kind(
        owner=caller.owner,
        model=asked.model,
        options=sent.options,
        samples=sent.samples,
        idempotency_key=idempotency_key,
        priority=priorities.allowed(caller, priority if asked.priority is None else asked.priority),
        beside=asked.beside.over(beside),
    )
    submitted = await to_thread.run_sync(lambda: change(here.db, wanted, limits=here.limits))
    accepted(here, response, background, submitted, f"/jobs/{submitted.job.id}")
    return JobOut.of(submitted.job)
