"""Answer with a blob, whole or the range that the caller lacks (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import closing

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Send

from service.blobs.ahead import ahead
from service.blobs.store import Blobs
from service.errors import RangeUnsatisfiable, StorageUnavailable
from service.http.pools import Pool
from service.http.responses.errors import response_to
from service.logs import logger

IMMUTABLE = {"Cache-Control": "private, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
RANGE = re.compile(r"bytes=\s*(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))\s*", re.ASCII)

log = logger(__name__)


def blob_response(
    request: Request, blobs: Blobs, pool: Pool, *, key: str, size: int, etag: str, media_type: str, filename: str
) -> Response:
    """The answer to GET or HEAD: 200, 206 with one range, 304 or 416.

    `etag` is strong and quoted. A `Range` of several parts, or of another form, is answered with the whole, as the
    RFC allows. Raises `NotFound` and `StorageUnavailable` before the first byte is sent.

    The last byte of the file is sent to nobody before all of the file has been compared with its digest: where the
    digest differs, the connection breaks before it. So an answer of the whole, or of its end, is whole or incomplete.
    """
    headers = {**IMMUTABLE, "ETag": etag}
    if matches(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    headers |= {"Accept-Ranges": "bytes", "Content-Disposition": f'attachment; filename="{filename}"'}
    part: tuple[int, int] | None = None
    if request.headers.get("if-range", etag) == etag:
        try:
            part = single_range(request.headers.get("range"), size)
        except RangeUnsatisfiable as error:
            refusal = response_to(error, request.url.path)
            refusal.headers["Content-Range"] = f"bytes */{size}"
            return refusal
    start, end = part or (0, size)
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - start)
    status = 200 if part is None else 206
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=media_type)
    if end == size:
        chunks = _after(start, blobs.read(key, length=size))
    else:
        chunks = blobs.read(key, start, end, length=size)
    return Chunks(ahead(chunks), pool, status, headers, media_type)


def _after(start: int, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """What follows the first `start` bytes."""
    for chunk in chunks:
        if start < len(chunk):
            yield chunk[start:]
        start = max(0, start - len(chunk))


class Chunks(StreamingResponse):
    """A body from a generator that blocks; the generator is closed when the caller is gone."""

    def __init__(
        self, chunks: Generator[bytes], pool: Pool, status_code: int, headers: dict[str, str], media_type: str
    ) -> None:
        super().__init__((), status_code, headers, media_type)
        self._chunks = chunks
        self._pool = pool

    async def stream_response(self, send: Send) -> None:
        """Send head and body. Bytes that turn out damaged end it: with a problem before the head, else without an end.

        The server closes a connection whose answer has no end.
        """
        with closing(self._chunks) as chunks:
            chunk = await self._pool.run(_next, chunks)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                while chunk is not None:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    chunk = await self._pool.run(_next, chunks)
            except StorageUnavailable as error:
                log.error("a download was broken off", reason=error.message)
                return
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _next(chunks: Generator[bytes]) -> bytes | None:
    return next(chunks, None)


def single_range(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last; None: send the whole. Raises `RangeUnsatisfiable`."""
    found = RANGE.fullmatch(header or "")
    if found is None:
        return None
    first, last, suffix = found.groups()
    if suffix is not None:
        start, end = max(0, size - int(suffix)), size
    else:
        start, end = int(first), min(size, int(last) + 1 if last else size)
        if last and int(last) < int(first):
            return None  # malformed, not unsatisfiable
    if start >= end:
        raise RangeUnsatisfiable(f"the file has {size} bytes", fix="ask for a range within them")
    return start, end


def matches(if_none_match: str | None, etag: str) -> bool:
    """RFC 9110, 13.1.2: any of the listed tags, compared weakly, or `*`."""
    if if_none_match is None:
        return False
    tags = [tag.strip() for tag in if_none_match.split(",")]
    return "*" in tags or any(tag.removeprefix("W/") == etag for tag in tags)
