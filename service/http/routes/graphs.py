"""`/models/{digest}/graph` and `/jobs/{id}/graph`: a model as it was uploaded, whether it can be compiled or not."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Response

from compiler.errors import MalformedModel
from service.db.plain import dumps
from service.errors import Busy, WrongKind
from service.http.admission.auth import Reader
from service.http.gate import Gated
from service.http.responses.errors import problem_responses
from service.http.schemas.ids import JobId
from service.http.schemas.models import DIGEST, DIGEST_EXAMPLE
from service.http.state import Here
from service.jobs.inspection import outline

STEP = {"name": "uploaded", "inputs": [], "outputs": [], "nodes": [], "applied": []}
EXAMPLE = {"format_version": 1, "values": {}, "steps": [STEP], "kernels": []}
READ: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Values by id, and the nodes of the step `uploaded`.",
        "content": {"application/json": {"schema": {"type": "object"}, "example": EXAMPLE}},
    },
}
HEADERS = {"Cache-Control": "private, max-age=3600", "X-Content-Type-Options": "nosniff"}
"""A model never changes, but what is told of it may, with the compiler's version."""

Digest = Annotated[str, Path(pattern=DIGEST, description="The model's digest, in hex.", examples=[DIGEST_EXAMPLE])]

router = Gated()


@router.get(
    "/models/{digest}/graph",
    tags=["models"],
    summary="Graph of a model as it was uploaded",
    response_class=Response,
    responses={**problem_responses(404, MalformedModel, 500, Busy, 507), **READ},
)
async def get_model_graph(here: Here, caller: Reader, digest: Digest) -> Response:
    """What the file says, whether it can be compiled or not: in the form of `/artifacts/{id}/graph`, with one step.

    Nodes have the names by which refusals name them. The file is read by a sealed process, its tensors are not: a value
    has a type where the file declares one.
    """
    return _answer(
        await here.pools.preflight.run(outline.of_model, here.db, here.blobs, here.inspector, caller.owner, digest)
    )


@router.get(
    "/jobs/{job_id}/graph",
    tags=["jobs"],
    summary="Graph of a job's model as it was uploaded",
    response_class=Response,
    responses={**problem_responses(404, WrongKind, MalformedModel, 500, Busy, 507), **READ},
)
async def get_job_graph(here: Here, caller: Reader, job_id: JobId) -> Response:
    """As `/models/{digest}/graph`, of a job in any state: of one that failed too, whose problem names a node."""
    return _answer(
        await here.pools.preflight.run(outline.of_job, here.db, here.blobs, here.inspector, caller.owner, job_id)
    )


def _answer(graph: dict[str, Any]) -> Response:
    return Response(dumps(graph), headers=HEADERS, media_type="application/json")
