"""`/models/{digest}/workloads`: sizes of a model's open dimensions, under names that jobs use."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Response

from service.errors import NotAllowed, QuotaExceeded
from service.http.admission.auth import Reader, Submitter
from service.http.gate import Gated
from service.http.responses.errors import problem_responses
from service.http.routes.models import Digest
from service.http.schemas.runs import WORKLOAD_NAME
from service.http.schemas.workloads import NAME_EXAMPLE, WorkloadIn, WorkloadList, WorkloadOut
from service.http.state import Here
from service.jobs.storage import named_workloads

WorkloadName = Annotated[
    str, Path(pattern=WORKLOAD_NAME, description="Name given by its owner.", examples=[NAME_EXAMPLE])
]

router = Gated(tags=["models"])


@router.put(
    "/models/{digest}/workloads/{workload}",
    summary="Name a workload of a model",
    responses=problem_responses(400, NotAllowed, 404, QuotaExceeded),
)
def put_workload(
    here: Here, caller: Submitter, digest: Digest, workload: WorkloadName, wanted: WorkloadIn
) -> WorkloadOut:
    """Make it, or give it other sizes.

    The model is not read: a dimension that it does not have fails the job that uses the workload.
    """
    return WorkloadOut.of(named_workloads.put(here.db, caller.owner, digest, workload, wanted.dims))


@router.get("/models/{digest}/workloads", summary="List the workloads of a model", responses=problem_responses(404))
def list_workloads(here: Here, caller: Reader, digest: Digest) -> WorkloadList:
    """By name, at most 100."""
    rows = named_workloads.listed(here.db, caller.owner, digest)
    return WorkloadList(workloads=[WorkloadOut.of(row) for row in rows])


@router.get(
    "/models/{digest}/workloads/{workload}", summary="One workload of a model", responses=problem_responses(404)
)
def get_workload(here: Here, caller: Reader, digest: Digest, workload: WorkloadName) -> WorkloadOut:
    """Its sizes."""
    return WorkloadOut.of(named_workloads.find(here.db, caller.owner, digest, workload))


@router.delete(
    "/models/{digest}/workloads/{workload}",
    status_code=204,
    summary="Delete a workload of a model",
    response_description="It is gone.",
    responses=problem_responses(NotAllowed, 404),
)
def delete_workload(here: Here, caller: Submitter, digest: Digest, workload: WorkloadName) -> Response:
    """Jobs that used it keep its sizes in their options."""
    named_workloads.delete(here.db, caller.owner, digest, workload)
    return Response(status_code=204)
