"""Take the body of `POST /inferences` in as it streams, to a blob."""

from __future__ import annotations

from fastapi import Request
from starlette.requests import ClientDisconnect

from service.blobs.store import Blobs, BlobWriter, StoredBlob
from service.errors import BadRequest
from service.http.multipart.parser import Multipart
from service.http.pools import Pool
from service.http.requests.upload import MULTIPART, Tally, demand_length, media, pour

NPZ = "application/x-npz"
RAW_TYPES = ("application/octet-stream", NPZ)
PART = "inputs"

ENVELOPE_BYTES = 64 << 10
"""What boundaries and part headers may add to a multipart body."""


async def receive(request: Request, blobs: Blobs, pool: Pool, limit: int) -> StoredBlob:
    """The inputs in the blob store.

    Raises `BodyTooLarge` (also at once, when the announced length says so), `BadRequest` for a body of another form and
    an empty one, and `StorageUnavailable`.
    """
    kind, boundary = media(request)
    if kind not in (*RAW_TYPES, MULTIPART):
        raise BadRequest(f"a body of type {kind!r:.100} is not understood", fix=f"send {NPZ} or {MULTIPART}")
    most = limit + (ENVELOPE_BYTES if kind == MULTIPART else 0)
    demand_length(request, most, limit)
    writer = await pool.run(blobs.writer, limit)
    with writer:
        form = _form(writer, boundary) if kind == MULTIPART else None
        try:
            await pour(request, Tally(form.feed if form else writer.write, most, limit, hashed=False), pool)
        except ClientDisconnect:
            raise BadRequest("the body broke off", fix="send it again") from None
        if form is not None:
            form.demand_end()
        if writer.size == 0:
            raise BadRequest(
                "the inputs are missing or empty", fix=f"send an .npz as the body, or as the part {PART!r}"
            )
        return await pool.run(writer.commit)


def _form(writer: BlobWriter, boundary: bytes | None) -> Multipart:
    """A multipart body whose one part goes to the blob."""
    seen: list[str] = []

    def begin(name: str, filename: str) -> None:
        if seen:
            raise BadRequest("the multipart body has several parts", fix=f"send the part {PART!r} only, once")
        if name != PART:
            raise BadRequest(f"the part is named {name!r:.60}", fix=f"name it {PART!r}")
        seen.append(name)

    return Multipart(boundary, begin=begin, data=writer.write, end=lambda: None)
