"""`POST /jobs/{job_id}/minimise`: of a failed compilation the smallest part of its model that still fails."""

from __future__ import annotations

from typing import Annotated

from fastapi import BackgroundTasks, Response
from pydantic import ConfigDict, Field

from service.errors import IdempotencyKeyReused, JobNotFinished, WrongKind
from service.http.admission.auth import Submitter
from service.http.gate import Gated
from service.http.requests.accepted import IdempotencyKey, accepted
from service.http.responses.errors import QUOTAS, problem_responses
from service.http.schemas.common import JobOut, RequestBody
from service.http.schemas.ids import JobId
from service.http.schemas.runs import Priority
from service.http.state import Here
from service.jobs.submission import minimisations, priority

DEFAULT_SECONDS = 300.0


class MinimiseIn(RequestBody):
    """How long to search."""

    model_config = ConfigDict(json_schema_extra={"example": {"seconds": 120}})

    seconds: Annotated[float, Field(ge=1, le=minimisations.MAX_SECONDS)] = Field(
        DEFAULT_SECONDS, description="When to stop; the smallest part found by then is kept."
    )
    priority: Priority = Field(0, description="Greater goes first; above 0 needs the scope `admin`.")


router = Gated(tags=["jobs"])


@router.post(
    "/jobs/{job_id}/minimise",
    status_code=202,
    summary="Find what fails of a model",
    responses=problem_responses(*QUOTAS, 404, WrongKind, JobNotFinished, IdempotencyKeyReused),
)
def minimise_job(
    here: Here,
    caller: Submitter,
    job_id: JobId,
    wanted: MinimiseIn,
    response: Response,
    background: BackgroundTasks,
    idempotency_key: IdempotencyKey = None,
) -> JobOut:
    """A job that finds the smallest part of a failed compilation's model that fails as the whole does.

    A refusal, a wrong result or a crash: parts are compiled in processes of their own, unmeasured, with the same
    options and samples. Once the job has SUCCEEDED, `links.minimised` is the part, an ONNX file without weights that
    the failure does not need; the report has its error, what it shares with that of the whole model, the nodes that
    remained, and what was tried. A model that compiles meanwhile makes the job fail with `nothing_fails`.
    """
    submitted = minimisations.minimise(
        here.db,
        caller.owner,
        job_id,
        wanted.seconds,
        priority=priority.allowed(caller, wanted.priority),
        idempotency_key=idempotency_key,
        limits=here.limits,
    )
    accepted(here, response, background, submitted, f"/jobs/{submitted.job.id}")
    return JobOut.of(submitted.job)
