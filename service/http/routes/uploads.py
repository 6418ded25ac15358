"""`/uploads`: send a model in pieces that outlive a broken connection."""

from __future__ import annotations

from typing import Annotated, Any

from anyio import to_thread
from fastapi import Header, Request, Response
from starlette.requests import ClientDisconnect

from service.db.models import Upload
from service.errors import BadRequest, DigestMismatch, WrongOffset
from service.http.admission.auth import Submitter
from service.http.gate import Gated
from service.http.requests.upload import in_turn, pour
from service.http.responses.errors import problem_responses
from service.http.routes.models import ModelInZip
from service.http.schemas.ids import UploadId
from service.http.schemas.models import UploadIn, UploadOut
from service.http.state import Here
from service.jobs.storage import models, uploads
from service.jobs.storage.uploads import RAW_TYPES

PIECE: dict[str, Any] = {
    "required": False,
    "content": {RAW_TYPES[0]: {"schema": {"type": "string", "format": "binary", "description": "the next bytes"}}},
}
OFFSETS = {
    "Upload-Offset": {"description": "Bytes that have arrived.", "schema": {"type": "integer"}},
    "Upload-Length": {"description": "Bytes of the whole.", "schema": {"type": "integer"}},
}
STANDING: dict[int | str, dict[str, Any]] = {200: {"description": "How far it is.", "headers": OFFSETS}}

router = Gated(tags=["uploads"])


@router.post(
    "/uploads",
    status_code=201,
    summary="Begin a resumable upload",
    responses={**problem_responses(413), 201: {"description": "Begun.", "headers": OFFSETS}},
)
def begin_upload(here: Here, caller: Submitter, response: Response, wanted: UploadIn) -> UploadOut:
    """Announce the size; then send the bytes with `PATCH`, in one request or many.

    The last byte turns it into a model as `POST /models` with that media type would. An upload that nothing is added to
    for a day is removed.
    """
    upload = uploads.begin(
        here.db,
        caller.owner,
        size=wanted.bytes,
        media_type=wanted.media_type,
        sha256=wanted.sha256,
        limit=here.settings.max_model_bytes,
        limits=here.limits,
    )
    response.headers["Location"] = f"/uploads/{upload.id}"
    response.headers.update(_standing(upload))
    return UploadOut.of(upload)


@router.patch(
    "/uploads/{upload_id}",
    summary="Send the next bytes",
    responses={**problem_responses(404, WrongOffset, 413, DigestMismatch, 507), **STANDING},
    openapi_extra={"requestBody": PIECE},
)
async def append_to_upload(
    request: Request,
    response: Response,
    here: Here,
    caller: Submitter,
    upload_id: UploadId,
    upload_offset: Annotated[
        int, Header(ge=0, le=2**62, description="Where the body begins: as many bytes as have arrived.", examples=[0])
    ],
    model: ModelInZip = None,
) -> UploadOut:
    """The body is appended; the answer to the last byte carries the model.

    An offset that is not what has arrived is answered by 409 with the right one in `Upload-Offset`; of two requests
    that send the same bytes at once, one wins. When the connection breaks, what has arrived stays (but for less than 1
    MiB, which is not worth a piece). An empty body at the end asks once more for the model, say when the zip needs
    `model`.
    """
    upload = await to_thread.run_sync(uploads.find, here.db, caller.owner, upload_id)
    with uploads.Appender(here.db, here.blobs, upload, upload_offset) as appender:
        try:
            await pour(request, appender.write, here.pools.bodies)
        except ClientDisconnect:
            await here.pools.bodies.run(appender.break_off)
            raise BadRequest("the body broke off", fix="ask HEAD /uploads/{id} where to go on") from None
        await here.pools.bodies.run(appender.end)
    now = await to_thread.run_sync(uploads.find, here.db, caller.owner, upload_id)
    response.headers.update(_standing(now))
    if now.received < now.bytes:
        return UploadOut.of(now)

    def finish() -> models.Kept:
        whole = uploads.find(here.db, caller.owner, upload_id)  # another request may have finished it meanwhile
        return uploads.finish(
            here.db, here.blobs, whole, model=model, limit=here.settings.max_model_bytes, limits=here.limits
        )

    kept = await in_turn(here, caller, finish)
    return UploadOut.of(now, kept.model)


@router.head("/uploads/{upload_id}", summary="Where to go on", responses={**problem_responses(404), **STANDING})
def has_upload(here: Here, caller: Submitter, upload_id: UploadId) -> Response:
    """`Upload-Offset` says how much has arrived, `Upload-Length` how much there is."""
    return Response(headers=_standing(uploads.find(here.db, caller.owner, upload_id)))


@router.get("/uploads/{upload_id}", summary="One upload", responses=problem_responses(404))
def get_upload(here: Here, caller: Submitter, upload_id: UploadId) -> UploadOut:
    """How much has arrived, and the model that it became."""
    upload = uploads.find(here.db, caller.owner, upload_id)
    model = None if upload.model_digest is None else models.row(here.db, caller.owner, upload.model_digest)
    return UploadOut.of(upload, model)


@router.delete(
    "/uploads/{upload_id}",
    status_code=204,
    summary="Give an upload up",
    response_description="It is gone.",
    responses=problem_responses(404),
)
def delete_upload(here: Here, caller: Submitter, upload_id: UploadId) -> Response:
    """Forget it and its bytes; the model that it may have become stays."""
    uploads.abandon(here.db, caller.owner, upload_id)
    return Response(status_code=204)


def _standing(upload: Upload) -> dict[str, str]:
    return {
        "Upload-Offset": str(upload.received),
        "Upload-Length": str(upload.bytes),
        "Cache-Control": "no-store",
    }
