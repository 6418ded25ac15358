"""Blobs in a bucket of an S3-compatible store.

A blob is spooled to a local file while it is hashed, then put as one object: an object appears whole or not at all
(PutObject and CompleteMultipartUpload are atomic), and each request's payload is signed, so the store refuses
bytes that changed on the way. Putting the same bytes again replaces the object by its equal and refreshes its time,
which is why no put is made conditional on the object's absence. Parts of an upload whose process was killed stay in
the bucket unseen: give the bucket a lifecycle rule that aborts incomplete multipart uploads.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from service.blobs import spool
from service.blobs.ahead import ahead
from service.blobs.cache import Cache
from service.blobs.spool import Spool, SpoolWriter
from service.blobs.store import KEY_PATTERN, StoredBlob, key_of, not_found
from service.errors import StorageUnavailable

if TYPE_CHECKING:
    from obstore.store import S3Config  # exists for type checkers only

PART = 8 << 20
"""Bytes in each part of an upload."""
RANGE = 4 << 20
"""Bytes in each request of a download: each is bounded in time and retried by itself."""
PARTS_AT_ONCE = 3
REQUEST_TIMEOUT = timedelta(seconds=60)
CONNECT_TIMEOUT = timedelta(seconds=5)
RETRIES = 4
ADDRESS = re.compile(r"https?://\S+")
"""What callers of the API are not shown."""
RETRY_FOR = timedelta(seconds=90)


def s3_store(
    bucket: str,
    prefix: str,
    *,
    region: str,
    endpoint: str = "",
    access_key_id: str = "",
    secret_access_key: str = "",
    session_token: str = "",
) -> S3Store:
    """A client of the bucket, with bounded time and retries; an empty value is left to the environment."""
    config: S3Config = {"region": region}
    if endpoint:
        config["endpoint"] = endpoint
    if access_key_id:
        config["access_key_id"] = access_key_id
    if secret_access_key:
        config["secret_access_key"] = secret_access_key
    if session_token:
        config["session_token"] = session_token
    return S3Store(
        bucket,
        prefix=prefix or None,
        config=config,
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "timeout": REQUEST_TIMEOUT,
            "connect_timeout": CONNECT_TIMEOUT,
        },
        retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_FOR},
    )


class S3Blobs:
    """The blob store in one bucket, below the prefix of `store`; whole files are read by way of `cache`."""

    def __init__(self, store: S3Store, cache: Cache) -> None:
        self.store = store
        self.cache = cache

    def writer(self, limit: int | None = None) -> SpoolWriter:
        """Begin a blob of at most `limit` bytes."""
        return SpoolWriter(self.cache.temporary, limit, self._keep)

    def put_file(self, path: Path) -> StoredBlob:
        """Copy a finished file in."""
        return spool.copy_in(path, self.writer())

    def put_bytes(self, data: bytes) -> StoredBlob:
        """Keep bytes that are in memory."""
        with self.writer() as writer:
            writer.write(data)
            return writer.commit()

    def local(self, key: str) -> AbstractContextManager[Path]:
        """The blob as a file of the cache, fetched when it is not there."""
        _demand_form(key)
        return self.cache.holding(key, lambda key: ahead(self.read(key)))

    def read(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to but not including `end`, in chunks."""
        size = self.size(key)
        return self._ranges(key, start, size if end is None else min(end, size))

    def size(self, key: str) -> int:
        """Length in bytes."""
        _demand_form(key)
        with s3_errors(key):
            return obstore.head(self.store, key)["size"]

    def delete(self, key: str, *, unless_written_since: float | None = None) -> None:
        """Remove; a key that is not there, or that was written again since that time, is no error."""
        if not KEY_PATTERN.fullmatch(key):
            return
        with s3_errors(), contextlib.suppress(FileNotFoundError):
            if unless_written_since is not None:
                written = obstore.head(self.store, key)["last_modified"].timestamp()
                if written >= unless_written_since:
                    return
            obstore.delete(self.store, key)
        self.cache.drop(key)

    def keys(self) -> Iterator[tuple[str, float]]:
        """Every key and its last write, in seconds since 1970."""
        with s3_errors():
            for batch in obstore.list(self.store, chunk_size=1000):
                for found in batch:
                    if KEY_PATTERN.fullmatch(found["path"]):
                        yield found["path"], found["last_modified"].timestamp()

    def check(self) -> None:
        """Put and delete an object of a few bytes; raises `StorageUnavailable` when that fails."""
        name = f"tmp/check-{uuid.uuid4().hex}"
        with s3_errors():
            obstore.put(self.store, name, b"ready?")
            obstore.delete(self.store, name)

    def sweep(self, older_than_s: float) -> int:
        """Remove abandoned uploads and fetches of this machine older than this; returns how many."""
        return spool.sweep(self.cache.temporary, older_than_s)

    def _keep(self, written: Spool) -> StoredBlob:
        """Put the object and look at it."""
        digest = written.seal(durable=False)  # what outlives a power cut is the object
        key = key_of(digest)
        with s3_errors():
            obstore.put(
                self.store,
                key,
                written.path,
                attributes={"Content-Type": "application/octet-stream"},
                chunk_size=PART,
                max_concurrency=PARTS_AT_ONCE,
            )
            kept = obstore.head(self.store, key)["size"]
        if kept != written.size:
            raise StorageUnavailable(
                f"blob {key!r} was put with {written.size} bytes and is kept with {kept}",
                fix="send it again; if it stays so, the store does not keep what it is given",
            )
        return StoredBlob(key, digest, written.size)

    def _ranges(self, key: str, start: int, end: int) -> Iterator[bytes]:
        for begin in range(start, end, RANGE):
            with s3_errors(key):
                chunk = obstore.get_range(self.store, key, start=begin, end=min(begin + RANGE, end)).to_bytes()
            yield chunk


def _demand_form(key: str) -> None:
    if not KEY_PATTERN.fullmatch(key):
        raise not_found(key)


@contextlib.contextmanager
def s3_errors(looking_for: str | None = None) -> Iterator[None]:
    """Turn an answer of the store into `StorageUnavailable`, or `NotFound` where the key is absent."""
    try:
        yield
    except FileNotFoundError as error:
        if looking_for is not None:
            raise not_found(looking_for) from None
        raise _unavailable(error) from error
    except (BaseError, OSError, ValueError) as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> StorageUnavailable:
    reason = ADDRESS.sub("(its address)", " ".join(str(error).partition("Debug source:")[0].split()))
    return StorageUnavailable(
        f"the blob store failed: {reason:.300}",
        fix="see that the bucket exists and that TILEWRIGHT_BLOB_* name it and a key that may use it, then retry",
    )
