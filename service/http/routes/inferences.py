"""`/inferences`: run an artifact once on a worker's device, on uploaded inputs."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from anyio import to_thread
from fastapi import BackgroundTasks, Header, Query, Request, Response
from pydantic import Field

from compiler.contract import MAX_THREADS, MOST_TOKENS
from service.errors import ArtifactNeverMade, BadRequest, IdempotencyKeyReused, JobNotFinished, Removed
from service.http.admission.auth import Reader, Submitter
from service.http.gate import Gated
from service.http.requests.accepted import IdempotencyKey, accepted
from service.http.requests.body_sizes import space
from service.http.requests.inputs import NPZ, RAW_TYPES, receive
from service.http.requests.upload import MULTIPART
from service.http.responses.download import blob_response
from service.http.responses.errors import QUOTAS, problem_responses
from service.http.schemas.ids import InferenceId
from service.http.schemas.labels import BesideQuery
from service.http.schemas.runs import InferenceOut
from service.http.state import Here
from service.jobs.lifecycle import outcomes
from service.jobs.submission import priority as priorities
from service.jobs.submission import runs
from service.jobs.submission.job_terms import NOTHING
from service.jobs.submission.submit import HIGHEST_PRIORITY, LOWEST_PRIORITY, Submitted

MOST_STOPS = 64
BINARY = {"type": "string", "format": "binary", "description": "an .npz file: one array for each input, by its name"}

BODY: dict[str, Any] = {
    "required": True,
    "content": {
        **{media: {"schema": BINARY} for media in RAW_TYPES},
        MULTIPART: {
            "schema": {
                "type": "object",
                "required": ["inputs"],
                "additionalProperties": False,
                "properties": {"inputs": BINARY},
            },
            "example": {"inputs": "<the bytes of inputs.npz>"},
        },
    },
}

FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The outputs.",
        "content": {NPZ: {"schema": {"type": "string", "format": "binary"}}},
        "headers": {"ETag": {"description": "SHA-256 of the file, quoted.", "schema": {"type": "string"}}},
    },
    206: {
        "description": "The part that `Range` asked for.",
        "content": {NPZ: {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "The caller's copy (`If-None-Match`) is this file."},
}

router = Gated(tags=["inferences"])


@router.post(
    "/inferences",
    status_code=202,
    summary="Run an artifact",
    response_model=InferenceOut,
    responses=problem_responses(*QUOTAS, 404, 410, 413, IdempotencyKeyReused, 507),
    openapi_extra={"requestBody": BODY},
)
async def make_inference(
    request: Request,
    response: Response,
    background: BackgroundTasks,
    here: Here,
    caller: Submitter,
    artifact: Annotated[uuid.UUID, Query(description="What to run; made, or still in the making.")],
    threads: Annotated[
        int | None, Query(ge=1, le=MAX_THREADS, description="Lanes; left out: as many as it was planned for.")
    ] = None,
    seed: Annotated[
        int | None,
        Query(
            ge=0,
            lt=2**63,
            description="Of random numbers that the model draws; left out: others each time. Of tokens: 0.",
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        Query(ge=1, le=MOST_TOKENS, description="Of a decoder: go on with the prompt `ids` by so many tokens at most."),
    ] = None,
    temperature: Annotated[
        float, Query(ge=0, allow_inf_nan=False, description="Of tokens that are drawn; 0: the most probable one.")
    ] = 0.0,
    top_k: Annotated[int, Query(ge=0, description="Tokens are drawn among so many; 0: among all.")] = 0,
    top_p: Annotated[
        float, Query(gt=0, le=1, description="And among the fewest that together have this probability.")
    ] = 1.0,
    stop: Annotated[
        list[Annotated[int, Field(ge=0, lt=2**31)]] | None,
        Query(max_length=MOST_STOPS, description="Tokens that end the text; repeatable."),
    ] = None,
    pieces: Annotated[
        bool,
        Query(description="Of an artifact that was compiled with `chunks`: its output comes in pieces, as events."),
    ] = False,
    priority: Annotated[
        int,
        Query(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY, description="Greater goes first; above 0 needs `admin`."),
    ] = 0,
    beside: BesideQuery = NOTHING,
    idempotency_key: IdempotencyKey = None,
) -> InferenceOut:
    """Send inputs as an .npz, as the body or as its part `inputs`.

    The outputs are an .npz at `/inferences/{id}/outputs`.

    The file is not read here: inputs that do not fit are accepted and fail as a job, which names each of them. bfloat16
    travels as its bits, in uint16.

    With `max_tokens` the artifact is a decoder with caches, and the file has one array, `ids` [tokens], the prompt.
    Events of kind `tokens` bring what follows as it comes; the output is `tokens`.

    With `pieces` the output for which the artifact was compiled with `chunks` comes in events of kind `piece`, each as
    soon as it is there, and is the only one.
    """
    if pieces and max_tokens:
        raise BadRequest("pieces and max_tokens are asked for of one inference", fix="leave one of them out")
    how = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "stop": stop or []}
    further: dict[str, Any] = {"generate": how} if max_tokens else {"pieces": True} if pieces else {}
    priorities.allowed(caller, priority)
    async with space(here, caller, model=False) as limit:
        inputs = await receive(request, here.blobs, here.pools.bodies, limit)

    def accept() -> tuple[Submitted, InferenceOut]:
        submitted = runs.infer(
            here.db,
            caller.owner,
            artifact,
            inputs,
            threads=threads,
            seed=seed,
            further=further,
            idempotency_key=idempotency_key,
            priority=priority,
            beside=beside,
            limits=here.limits,
        )
        return submitted, InferenceOut.of(outcomes.inference(here.db, caller.owner, submitted.job.id))

    submitted, made = await to_thread.run_sync(accept)
    accepted(here, response, background, submitted, f"/inferences/{made.id}")
    return made


@router.get("/inferences/{inference_id}", summary="One inference", responses=problem_responses(404))
def get_inference(here: Here, caller: Reader, inference_id: InferenceId) -> InferenceOut:
    """State and progress; once it has SUCCEEDED times, and what its outputs are like."""
    return InferenceOut.of(outcomes.inference(here.db, caller.owner, inference_id))


@router.get(
    "/inferences/{inference_id}/outputs",
    summary="Outputs of an inference",
    response_class=Response,
    responses={**problem_responses(404, JobNotFinished, ArtifactNeverMade, Removed, 416), **FILE},
)
def get_outputs(
    request: Request,
    here: Here,
    caller: Reader,
    inference_id: InferenceId,
    if_none_match: Annotated[str | None, Header(description="ETags that the caller has.")] = None,
    range_: Annotated[str | None, Header(alias="Range", description="The bytes that the caller lacks.")] = None,
    if_range: Annotated[str | None, Header(description="The ETag that `Range` is about.")] = None,
) -> Response:
    """An .npz with one array for each output, by its name.

    Before the end 409 with `Retry-After`; after a failure 410 with the reason.
    """
    outputs = outcomes.outputs(here.db, caller.owner, inference_id)
    return blob_response(
        request,
        here.blobs,
        here.pools.downloads,
        key=outputs.key,
        size=outputs.bytes,
        etag=f'"{outputs.sha256}"',
        media_type=NPZ,
        filename=f"{inference_id}.npz",
    )
