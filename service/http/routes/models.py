"""`/models`: send a model once, look at it, delete it with all that hangs on it."""

from __future__ import annotations

from typing import Annotated, Any

from anyio import to_thread
from fastapi import Header, Path, Query, Request, Response

from service.errors import DigestMismatch, ModelInUse, NotAllowed, QuotaExceeded
from service.http.admission.auth import Reader, Submitter
from service.http.gate import Gated
from service.http.multipart.parts import DATA, MODEL
from service.http.requests.model_bodies import BINARY, DATA_SCHEMA, MODEL_BYTES, ZIP_SCHEMA
from service.http.requests.upload import MULTIPART, in_turn, receive
from service.http.responses.cursors import Cursor, Following, Limit, decode_moment, encode_moment
from service.http.responses.download import blob_response
from service.http.responses.errors import problem_responses
from service.http.schemas.labels import LabelsIn, Saying, Tagged
from service.http.schemas.models import DIGEST, DIGEST_EXAMPLE, ModelOut, ModelPage, RemovalOut
from service.http.state import Here
from service.jobs.lifecycle import labels
from service.jobs.operations import removal
from service.jobs.storage import models
from service.jobs.storage.bundle import relative_path
from service.jobs.storage.uploads import RAW_TYPES, ZIP

BODY: dict[str, Any] = {
    "required": True,
    "content": {
        RAW_TYPES[0]: {"schema": BINARY},
        ZIP: {"schema": ZIP_SCHEMA},
        MULTIPART: {
            "schema": {
                "type": "object",
                "required": [MODEL],
                "additionalProperties": False,
                "properties": {MODEL: BINARY, DATA: DATA_SCHEMA},
            },
            "example": {MODEL: MODEL_BYTES, DATA: ["<the bytes of weights/layer0.bin>"]},
        },
    },
}
FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file.",
        "content": {RAW_TYPES[0]: {"schema": {"type": "string", "format": "binary"}}},
        "headers": {"ETag": {"description": "SHA-256 of the file, quoted.", "schema": {"type": "string"}}},
    },
    206: {
        "description": "The part that `Range` asked for.",
        "content": {RAW_TYPES[0]: {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "The caller's copy (`If-None-Match`) is this file."},
}

Digest = Annotated[str, Path(pattern=DIGEST, description="The model's digest, in hex.", examples=[DIGEST_EXAMPLE])]
ModelInZip = Annotated[
    str | None,
    Query(
        max_length=500,
        description="Path of the ONNX file in a zip; left out: the only file *.onnx.",
        examples=["m.onnx"],
    ),
]

router = Gated(tags=["models"])


@router.post(
    "/models",
    status_code=201,
    summary="Upload a model",
    responses={
        **problem_responses(NotAllowed, QuotaExceeded, 413, DigestMismatch, 507),
        200: {"model": ModelOut, "description": "It was there already."},
    },
    openapi_extra={"requestBody": BODY},
)
async def upload_model(
    request: Request,
    response: Response,
    here: Here,
    caller: Submitter,
    sha256: Annotated[
        str | None, Query(pattern=DIGEST, description="SHA-256 of the body, in hex; 422 when it has another.")
    ] = None,
    content_digest: Annotated[
        str | None, Header(description="The same as RFC 9530 says it: `sha-256=:<base64>:`.")
    ] = None,
    model: ModelInZip = None,
) -> ModelOut:
    """Send an ONNX file as the body; or with external data, as multipart (`model`, `data`...) or as a zip.

    The body is streamed to the disk and hashed on the way. A model that the caller has sent before is kept once.
    External data has the path that the model names it by: the filename of a part `data`, or its place in the zip
    relative to the ONNX file. Nothing is read as a model here; one that is malformed fails when it is compiled.
    """
    upload = await receive(request, here, caller, sha256=sha256, model=model)
    assert upload.bundle is not None, "no digest is taken here"
    kept = await to_thread.run_sync(models.put, here.db, caller.owner, upload.bundle, here.limits)
    response.headers["Location"] = f"/models/{kept.model.digest}"
    if not kept.new:
        response.status_code = 200
    return ModelOut.of(kept.model)


@router.get("/models", summary="List models", responses=problem_responses(400))
def list_models(
    here: Here,
    caller: Reader,
    following: Following,
    tag: Tagged = None,
    query: Saying = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ModelPage:
    """The caller's models, newest first."""
    before = decode_moment(cursor)
    rows, last = models.page(here.db, caller.owner, tags=tag or (), text=query or "", before=before, limit=limit)
    return ModelPage(models=[ModelOut.of(row) for row in rows], next_cursor=following(encode_moment(last)))


@router.get("/models/{digest}", summary="One model", responses=problem_responses(404))
def get_model(here: Here, caller: Reader, digest: Digest) -> ModelOut:
    """Sizes and paths of its files, and how many compilations of it there are."""
    found = models.find(here.db, caller.owner, digest)
    return ModelOut.of(found.model, found.jobs)


@router.patch("/models/{digest}", summary="Name a model", responses=problem_responses(404))
def label_model(here: Here, caller: Submitter, digest: Digest, wanted: LabelsIn) -> ModelOut:
    """Give it another name, note or tags; what is left out stays, and null takes it away."""
    return ModelOut.of(labels.label_model(here.db, caller.owner, digest, wanted.changes))


@router.head(
    "/models/{digest}",
    summary="Is this model there?",
    response_description="It is there.",
    responses=problem_responses(404),
)
async def has_model(here: Here, caller: Reader, digest: Digest) -> Response:
    """200 or 404: whether it needs to be sent at all.

    Files that were not compared with their digests for an hour are so now: what is damaged is to be sent again.
    """
    if due := await to_thread.run_sync(models.unchecked, here.db, caller.owner, digest):
        await in_turn(here, caller, lambda: models.present(here.db, here.blobs, digest, due))
    return Response()


@router.get(
    "/models/{digest}/file",
    summary="Download a file of a model",
    response_class=Response,
    responses={**problem_responses(404, 416), **FILE},
)
def download_model_file(
    request: Request,
    here: Here,
    caller: Reader,
    digest: Digest,
    path: Annotated[
        str | None,
        Query(
            max_length=500,
            description="Path of a file of external data; without it: the ONNX file.",
            examples=["w.bin"],
        ),
    ] = None,
    if_none_match: Annotated[str | None, Header(description="ETags that the caller has.")] = None,
    range_: Annotated[str | None, Header(alias="Range", description="Bytes that the caller lacks.")] = None,
    if_range: Annotated[str | None, Header(description="`Range` holds only for the file with this ETag.")] = None,
) -> Response:
    """The bytes as they were sent; `Range`, `If-Range` and `If-None-Match` are honoured."""
    wanted = None if path is None else relative_path(path)
    found = models.file(here.db, caller.owner, digest, wanted)
    return blob_response(
        request,
        here.blobs,
        here.pools.downloads,
        key=found.key,
        size=found.bytes,
        etag=f'"{found.sha256}"',
        media_type=RAW_TYPES[0],
        filename=f"{found.sha256}.{'onnx' if wanted is None else 'bin'}",
    )


@router.delete(
    "/models/{digest}",
    summary="Delete a model",
    responses={
        **problem_responses(404, ModelInUse),
        202: {
            "model": RemovalOut,
            "description": "Its jobs were told to stop; repeat the request after `Retry-After`.",
        },
    },
)
def delete_model(
    here: Here,
    caller: Submitter,
    response: Response,
    digest: Digest,
    cancel: Annotated[bool, Query(description="Cancel the jobs that wait or run.")] = False,
) -> RemovalOut:
    """Delete it with its jobs, their events, logs and artifacts, and the benchmarks and inferences of these artifacts.

    While jobs wait or run: 409, or with `cancel=true` they are cancelled. As long as one has not stopped the answer is
    202 and nothing is deleted yet: repeat the request. Tuning records stay. The bytes leave the disk in about an hour.
    """
    removed = removal.remove(here.db, caller.owner, digest, cancel=cancel)
    if removed.stopping:
        response.status_code = 202
        response.headers["Retry-After"] = "2"
    return RemovalOut.of(removed)
