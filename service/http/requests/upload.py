"""Take the body of a request in as it streams: files go to the blob store, hashed on the way, never to memory."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

import anyio
from fastapi import Request
from python_multipart.multipart import parse_options_header
from starlette.requests import ClientDisconnect

from service.errors import BadRequest, BodyTooLarge
from service.http.admission.limits import ENVELOPE_BYTES, Lane
from service.http.multipart.parts import BENCHMARK, DATA, DIGEST, MAX_OPTIONS_BYTES, MODEL, OPTIONS, Parts, too_large
from service.http.pools import Pool
from service.http.requests.body_sizes import space
from service.http.state import State
from service.jobs.accounts.access import Caller
from service.jobs.storage.bundle import Bundle
from service.jobs.storage.pieces import Piece
from service.jobs.storage.samples import SampleFile
from service.jobs.storage.unpack import unpack
from service.jobs.storage.uploads import RAW_TYPES, ZIP, demand_digest

GATHER_BYTES = 2 << 20
"""Chunks are gathered to this size before a thread hashes and writes them; two such blocks are in memory."""

MULTIPART = "multipart/form-data"
JSON = "application/json"

Result = TypeVar("Result")

_SHA256 = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/]{43}=):\s*(?:,|$)")


@dataclass(frozen=True)
class Upload:
    """A model in the blob store, and what came with it: the text of the part `options`, samples.

    There is no `bundle` where `digest` names a model that was uploaded before, or `benchmark` asks for one.
    """

    bundle: Bundle | None
    options: bytes | None = None
    digest: bytes | None = None
    samples: tuple[SampleFile, ...] = ()
    benchmark: bytes | None = None


def media_type(request: Request) -> str:
    """What the body is said to be, in small letters; a model when nothing is said."""
    return media(request)[0]


async def receive(
    request: Request,
    here: State,
    caller: Caller,
    *,
    parts: Collection[str] = (MODEL, DATA),
    sha256: str | None = None,
    model: str | None = None,
) -> Upload:
    """Read a body that is a model, a zip, or multipart with these `parts`; its files have no more bytes than `space`.

    sha256  what the body must have (hex), beside what its `Content-Digest` says
    model   the path of the ONNX file in a zip

    Raises `BodyTooLarge` (also at once, when the announced length says so), `DigestMismatch`, `BadRequest` for a body
    that is of another form or breaks off, `QuotaExceeded`, and `StorageUnavailable`; then nothing is kept.
    """
    async with space(here, caller, model=BENCHMARK not in parts) as limit:
        return await _received(request, here, caller, limit, parts, sha256, model)


async def _received(
    request: Request,
    here: State,
    caller: Caller,
    limit: int,
    parts: Collection[str],
    sha256: str | None,
    model: str | None,
) -> Upload:
    kind, boundary = media(request)
    if kind not in (*RAW_TYPES, ZIP, MULTIPART):
        raise BadRequest(
            f"a body of type {kind!r:.100} is not understood", fix=f"send {MULTIPART}, {ZIP} or {RAW_TYPES[0]}"
        )
    blobs, bodies = here.blobs, here.pools.bodies
    demanded = {digest for digest in (sha256, content_digest(request)) if digest is not None}
    most = limit if kind in RAW_TYPES else limit + MAX_OPTIONS_BYTES + ENVELOPE_BYTES
    demand_length(request, most, limit)
    try:
        if kind == MULTIPART:
            return await _multipart(request, here, boundary, parts, demanded, most, limit)
        writer = await bodies.run(blobs.writer, most)
        with writer:
            tally = Tally(writer.write, most, limit, hashed=bool(demanded))
            await pour(request, tally, bodies)
            if tally.size == 0:
                raise BadRequest("the model is missing or empty", fix="send its bytes as the body")
            tally.demand(demanded)
            stored = await bodies.run(writer.commit)
    except ClientDisconnect:
        raise BadRequest("the body broke off", fix="send it again, or in pieces: POST /uploads") from None
    if kind in RAW_TYPES:
        return Upload(Bundle(stored))
    pieces = [Piece(stored.key, stored.bytes)]
    return Upload(await in_turn(here, caller, lambda: unpack(blobs, pieces, model=model, limit=limit)))


async def in_turn(here: State, caller: Caller, work: Callable[[], Result]) -> Result:
    """What `work` returns, which hashes or unpacks much: one at a time of each owner. Raises what it raises."""
    await here.turns.take(Lane.UNPACKING, caller.owner)
    try:
        return await here.pools.unpacking.run(work)
    finally:
        here.turns.give(Lane.UNPACKING, caller.owner)


async def _multipart(
    request: Request,
    here: State,
    boundary: bytes | None,
    known: Collection[str],
    demanded: set[str],
    most: int,
    limit: int,
) -> Upload:
    patience_s = here.settings.gc_grace_s / 2
    with Parts(here.blobs, boundary, known, limit=limit, patience_s=patience_s) as parts:
        tally = Tally(parts.feed, most, limit, hashed=bool(demanded))
        await pour(request, tally, here.pools.bodies)
        tally.demand(demanded)
        bundle = await here.pools.bodies.run(parts.keep)
        return Upload(bundle, parts.text(OPTIONS), parts.text(DIGEST), parts.samples, parts.text(BENCHMARK))


async def small_body(request: Request, limit: int) -> bytes:
    """The whole body in memory. Raises `BodyTooLarge` and `BadRequest`."""
    gathered = bytearray()
    demand_length(request, limit, limit)
    try:
        async for chunk in request.stream():
            gathered += chunk
            if len(gathered) > limit:
                raise BodyTooLarge(f"the body is larger than {limit} bytes", fix="ask for less at once")
    except ClientDisconnect:
        raise BadRequest("the body broke off", fix="send it again") from None
    return bytes(gathered)


def demand_length(request: Request, most: int, limit: int) -> None:
    """Raises `BodyTooLarge`, which names `limit`, when the body is announced with more than `most` bytes."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > most:
        raise BodyTooLarge(
            f"the body is announced with {announced} bytes, more than the {limit} allowed",
            fix="send a smaller file, or raise TILEWRIGHT_MAX_MODEL_BYTES",
            details={"limit_bytes": limit},
        )


def content_digest(request: Request) -> str | None:
    """The SHA-256 (hex) in `Content-Digest` (RFC 9530, section 2); None without one. Raises `BadRequest`."""
    header = request.headers.get("content-digest")
    if header is None:
        return None
    found = _SHA256.search(header)
    try:
        return base64.b64decode(found[1], validate=True).hex() if found else _no_digest(header)
    except binascii.Error:
        return _no_digest(header)


def _no_digest(header: str) -> str:
    raise BadRequest(
        f"Content-Digest {header!r:.100} holds no SHA-256",
        fix="send sha-256=:<base64 of the 32 bytes>:, or leave it out",
    )


class Tally:
    """Counts, and if need be hashes, what it hands on.

    Raises `BodyTooLarge`, which names `limit`, past `most` bytes.
    """

    def __init__(self, write: Callable[[bytes], None], most: int, limit: int, *, hashed: bool) -> None:
        self.size = 0
        self._write = write
        self._most = most
        self._limit = limit
        self._hash = hashlib.sha256() if hashed else None

    def __call__(self, chunk: bytes) -> None:
        """Counts a chunk. Raises BodyTooLarge beyond the limit."""
        self.size += len(chunk)
        if self.size > self._most:
            raise too_large(self._limit)
        if self._hash is not None:
            self._hash.update(chunk)
        self._write(chunk)

    def demand(self, digests: Collection[str]) -> None:
        """Raises `DigestMismatch` unless these are the SHA-256 of it all."""
        for digest in digests:
            assert self._hash is not None, "a digest is demanded, so it was hashed"
            demand_digest(self._hash.hexdigest(), digest)


def media(request: Request) -> tuple[str, bytes | None]:
    """What the body is said to be, in small letters (a model when nothing is said), and its multipart boundary."""
    kind, parameters = parse_options_header(request.headers.get("content-type") or RAW_TYPES[0])
    return kind.decode("latin-1"), parameters.get(b"boundary")


async def pour(request: Request, write: Callable[[bytes], None], pool: Pool) -> None:
    """Call `write` with the whole body, in a thread of `pool` that works on one block while the next one arrives."""
    gathered: list[bytes] = []
    size = 0
    writing: asyncio.Task[None] | None = None
    try:
        async for chunk in request.stream():
            gathered.append(chunk)
            size += len(chunk)
            if size >= GATHER_BYTES:
                if writing is not None:
                    await asyncio.shield(writing)
                writing = asyncio.create_task(pool.run(write, b"".join(gathered)))
                gathered.clear()
                size = 0
        if writing is not None:
            await asyncio.shield(writing)
        if size:
            writing = asyncio.create_task(pool.run(write, b"".join(gathered)))
            await asyncio.shield(writing)
    finally:
        if writing is not None:
            with anyio.CancelScope(shield=True):  # the writer must not be closed under its thread
                await asyncio.wait([writing])
            if not writing.cancelled():
                writing.exception()  # was raised above, or gives way to what ended the request
