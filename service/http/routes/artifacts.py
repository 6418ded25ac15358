"""`/artifacts`: what a compilation made."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from fastapi.responses import FileResponse

from service.http.auth import Reader
from service.http.errors import problem_responses
from service.http.schemas import ReceiptOut, utc
from service.http.state import Here
from service.jobs import find

FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The artifact, a zip file with the extension .tw.",
        "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {"ETag": {"description": "SHA-256 of the file, quoted.", "schema": {"type": "string"}}},
    },
    206: {"description": "The parts that `Range` asked for."},
    304: {"description": "The caller's copy (`If-None-Match`) is this file."},
    416: {"description": "The file has no such range."},
}

router = APIRouter(tags=["artifacts"])


@router.get(
    "/artifacts/{artifact_id}",
    summary="Download an artifact",
    response_class=FileResponse,
    responses={**problem_responses(404, 409, 410), **FILE},
)
def download(
    here: Here,
    caller: Reader,
    artifact_id: uuid.UUID,
    if_none_match: Annotated[str | None, Header(description="ETags that the caller has.")] = None,
) -> Response:
    """The file. Before the job is done 409 with `Retry-After`; after it failed 410 with the reason.

    `Range` and `If-Range` are honoured, so that a broken download goes on where it stopped.
    """
    artifact = find.artifact(here.db, caller.owner, artifact_id)
    etag = f'"{artifact.sha256}"'
    headers = {
        "ETag": etag,
        "Cache-Control": "private, max-age=31536000, immutable",
        "X-Content-Type-Options": "nosniff",
    }
    if _matches(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    return FileResponse(
        here.blobs.path(artifact.blob_key), headers=headers, media_type="application/zip", filename=f"{artifact.id}.tw"
    )


@router.get(
    "/artifacts/{artifact_id}/receipt", summary="Receipt of an artifact", responses=problem_responses(404, 409, 410)
)
def receipt(here: Here, caller: Reader, artifact_id: uuid.UUID) -> ReceiptOut:
    """What varies between two compilations of the same bytes: times, measurements, the numeric verdict."""
    artifact = find.artifact(here.db, caller.owner, artifact_id)
    return ReceiptOut(
        artifact=artifact.id,
        job=artifact.job_id,
        sha256=artifact.sha256,
        bytes=artifact.bytes,
        created_at=utc(artifact.created_at),
        receipt=artifact.receipt,
    )


def _matches(if_none_match: str | None, etag: str) -> bool:
    """RFC 9110, 13.1.2: any of the listed tags, compared weakly, or `*`."""
    if if_none_match is None:
        return False
    tags = [tag.strip() for tag in if_none_match.split(",")]
    return "*" in tags or any(tag.removeprefix("W/") == etag for tag in tags)
