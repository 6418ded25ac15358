"""Models that arrive in pieces.

Each piece is a blob of its own, so that what has arrived outlives connection and process. Any API process takes the
next piece: all that is known of an upload is its row and its blobs.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from service.blobs.store import Blobs, BlobWriter, StoredBlob
from service.db import uploads
from service.db.engine import Database
from service.db.models import Upload
from service.errors import BadRequest, BodyTooLarge, DigestMismatch, NotFound, WrongOffset
from service.jobs.accounts import audit, quotas
from service.jobs.accounts.quotas import UNLIMITED, Limits
from service.jobs.storage import models
from service.jobs.storage.bundle import Bundle
from service.jobs.storage.pieces import Piece, stream
from service.jobs.storage.unpack import unpack

RAW_TYPES = ("application/octet-stream", "application/onnx", "application/x-onnx")
ZIP = "application/zip"
PIECE_BYTES = 64 << 20
"""A longer body is kept in pieces of this size as it comes: a process that is killed loses at most one."""
LEAST_KEPT = 1 << 20
"""Bytes of a broken body that are worth a piece of their own."""
MOST_PIECES = 10_000


def begin(
    db: Database,
    owner: uuid.UUID,
    *,
    size: int,
    media_type: str,
    sha256: str | None,
    limit: int,
    limits: Limits = UNLIMITED,
) -> Upload:
    """Announce an upload of `size` bytes, which count as stored from now on.

    Raises `BodyTooLarge` past `limit`, `QuotaExceeded`, and as `quotas.opened` does.
    """
    if size > limit:
        raise BodyTooLarge(
            f"the upload is announced with {size} bytes, more than the {limit} allowed",
            fix="send a smaller model, or raise TILEWRIGHT_MAX_MODEL_BYTES",
            details={"limit_bytes": limit},
        )
    with db.write() as session:
        quotas.demand_passage(session, quotas.opened(session, owner), size, limits)
        upload = Upload(owner_id=owner, media_type=media_type, bytes=size, sha256=sha256, received=0, parts=[])
        made = uploads.add(session, upload)
        audit.note(session, "create", f"/uploads/{made.id}")
        return made


def find(db: Database, owner: uuid.UUID, upload_id: uuid.UUID) -> Upload:
    """One upload. Raises `NotFound`."""
    with db.read() as session:
        found = uploads.of_owner(session, owner, upload_id)
    if found is None:
        raise _no_such_upload(upload_id)
    return found


def abandon(db: Database, owner: uuid.UUID, upload_id: uuid.UUID) -> None:
    """Forget an upload; its pieces are garbage. Raises `NotFound`."""
    with db.delete() as session:
        if not uploads.remove(session, owner, upload_id):
            raise _no_such_upload(upload_id)
        audit.note(session, "delete", f"/uploads/{upload_id}")


class Appender:
    """Takes bytes that begin at `offset` of an upload; what was not ended by `end` or `break_off` is dropped.

    Raises `WrongOffset` unless the upload has just as many bytes.
    """

    def __init__(self, db: Database, blobs: Blobs, upload: Upload, offset: int) -> None:
        if offset != upload.received:
            raise _wrong_offset(upload)
        self._db = db
        self._blobs = blobs
        self._upload = upload
        self._parts: list[dict[str, Any]] = list(upload.parts)
        self._kept = offset
        self._writer: BlobWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, trace)

    def write(self, chunk: bytes) -> None:
        """Append a chunk.

        Raises `BadRequest` past the announced size, `WrongOffset` when another was faster, `StorageUnavailable`.
        """
        if self._kept + self._open + len(chunk) > self._upload.bytes:
            raise BadRequest(
                f"the piece ends behind the {self._upload.bytes} bytes that were announced",
                fix="announce an upload's whole size in POST /uploads",
            )
        left = memoryview(chunk)
        while left:
            if self._writer is None:
                self._writer = self._blobs.writer()
            room = PIECE_BYTES - self._open
            self._writer.write(left[:room])
            left = left[room:]
            if self._open == PIECE_BYTES:
                self._keep()

    def end(self) -> None:
        """The body is whole: keep what is left of it. Raises as `write` does."""
        if self._open:
            self._keep()

    def break_off(self) -> None:
        """The body broke off: keep what has come if that is much. Raises as `write` does."""
        if self._open >= LEAST_KEPT:
            self._keep()

    @property
    def _open(self) -> int:
        return 0 if self._writer is None else self._writer.size

    def _keep(self) -> None:
        assert self._writer is not None, "there is something to keep"
        if len(self._parts) >= MOST_PIECES:
            raise BadRequest(f"the upload came in {MOST_PIECES} pieces", fix="send larger pieces, of 16 MiB or so")
        with self._writer as writer:
            blob = writer.commit()
        self._writer = None
        part = {"key": blob.key, "bytes": blob.bytes}
        with self._db.delete() as session:
            if not uploads.append(session, self._upload.id, self._kept, self._parts, part):
                now = uploads.of_owner(session, self._upload.owner_id, self._upload.id)
                raise _no_such_upload(self._upload.id) if now is None else _wrong_offset(now)
            audit.note(session, "append", f"/uploads/{self._upload.id}")
        self._parts.append(part)
        self._kept += blob.bytes


def finish(
    db: Database, blobs: Blobs, upload: Upload, *, model: str | None, limit: int, limits: Limits = UNLIMITED
) -> models.Kept:
    """The model that a whole upload is; asking again gives the same one.

    `model` and `limit` as in `unpack`. Raises what that raises; `DigestMismatch` when the bytes are others than
    announced, after which the upload is gone; `NotFound` when the upload or its model was removed meanwhile.
    """
    if upload.model_digest is not None:
        return models.Kept(models.row(db, upload.owner_id, upload.model_digest), new=False)
    assert upload.received == upload.bytes, "it is whole"
    try:
        bundle = _opened(db, blobs, upload, model, limit)
    except DigestMismatch:
        abandon(db, upload.owner_id, upload.id)
        raise
    with db.write() as session:
        quotas.opened(session, upload.owner_id)
        # Its pieces are let go of in the transaction that makes the model: one of the two names each blob at any time.
        if uploads.become(session, upload.id, models.digest_of(bundle)):
            return models.put_within(session, upload.owner_id, bundle, limits)
    other = find(db, upload.owner_id, upload.id)
    return models.Kept(models.row(db, upload.owner_id, other.model_digest or ""), new=False)


def _opened(db: Database, blobs: Blobs, upload: Upload, model: str | None, limit: int) -> Bundle:
    pieces = [Piece(part["key"], part["bytes"]) for part in upload.parts]
    if upload.media_type != ZIP:
        return Bundle(_joined(blobs, pieces, upload.sha256))
    if upload.sha256 is not None:
        demand_digest(upload.found_sha256 or _hashed(db, blobs, upload, pieces), upload.sha256)
    return unpack(blobs, pieces, model=model, limit=limit)


def _hashed(db: Database, blobs: Blobs, upload: Upload, pieces: Sequence[Piece]) -> str:
    """The SHA-256 (hex) of a whole upload, kept in its row: asking again for its model does not read it again."""
    digest = hashlib.sha256()
    for chunk in stream(blobs, pieces):
        digest.update(chunk)
    with db.write() as session:
        uploads.hashed(session, upload.id, digest.hexdigest())
    return digest.hexdigest()


def _joined(blobs: Blobs, pieces: Sequence[Piece], sha256: str | None) -> StoredBlob:
    if len(pieces) == 1:
        found = pieces[0].key.rpartition("/")[2]
        demand_digest(found, sha256)
        return StoredBlob(pieces[0].key, found, pieces[0].bytes)
    digest = hashlib.sha256()
    with blobs.writer() as writer:
        for chunk in stream(blobs, pieces):
            writer.write(chunk)
            if sha256 is not None:
                digest.update(chunk)
        if sha256 is not None:
            demand_digest(digest.hexdigest(), sha256)  # before anything is kept
        return writer.commit()


def demand_digest(found: str, announced: str | None) -> None:
    """Raises `DigestMismatch` when another SHA-256 (hex) than `found` was announced."""
    if announced is not None and found != announced:
        raise DigestMismatch(
            f"the bytes have the SHA-256 {found}, not {announced} as announced",
            fix="send them again: they were changed on the way, or the announcement is of others",
            details={"announced": announced, "found": found},
        )


def _wrong_offset(upload: Upload) -> WrongOffset:
    return WrongOffset(
        f"the upload has {upload.received} bytes",
        fix="go on there: send Upload-Offset with that number and the bytes from there on",
        details={"received": upload.received, "bytes": upload.bytes},
    )


def _no_such_upload(upload_id: uuid.UUID) -> NotFound:
    return NotFound(f"there is no upload {upload_id}", fix="begin one with POST /uploads")
