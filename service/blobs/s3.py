"""Blobs in a bucket of an S3-compatible store.

A blob is spooled to a local file while it is hashed, then put as one object: an object appears whole or not at all
(PutObject and CompleteMultipartUpload are atomic), and each request's payload is signed, so the store refuses
bytes that changed on the way. Putting the same bytes again replaces the object by its equal and refreshes its time,
which is why no put is made conditional on the object's absence. Parts of an upload whose process was killed stay in
the bucket unseen: give the bucket a lifecycle rule that aborts incomplete multipart uploads.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from service.blobs import copies, spool
from service.blobs.ahead import ahead
from service.blobs.cache import Cache
from service.blobs.spool import Spool, SpoolWriter
from service.blobs.store import KEY_PATTERN, StoredBlob, checked, damaged, demand_length, key_of, lost
from service.errors import StorageUnavailable

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Config  # both exist for type checkers only

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
REMOVING, DAMAGED = "removing", "damaged"
"""Below these, beside the keys, removals are announced, and damaged objects are set aside."""
DECIDE_WITHIN_S = 30.0
"""Whoever took longer to decide on a removal leaves it to the next round."""
STALE_S = DECIDE_WITHIN_S + 2 * (REQUEST_TIMEOUT + RETRY_FOR).total_seconds()
"""A removal that was announced longer ago is over, or was never carried out."""
LOOK_EVERY_S = 0.1


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

    def local(self, key: str, length: int | None = None) -> AbstractContextManager[Path]:
        """The blob as a file of the cache, fetched when it is not there."""
        _demand_form(key)
        return self.cache.holding(key, lambda key: ahead(self.read(key, length=length)), length)

    def copy_to(self, key: str, path: Path, length: int | None = None) -> None:
        """A copy at a path, compared with its digest; a file of the cache that this disk changed is fetched anew."""
        copies.copy(key, lambda: self.local(key, length), path, lambda: self.cache.drop(key))

    def copy(self, key: str, length: int | None = None) -> AbstractContextManager[Path]:
        """A copy of the cache's file, beside what is on its way into the cache."""
        return copies.copied(lambda path: self.copy_to(key, path, length), self.cache.temporary)

    def read(self, key: str, start: int = 0, end: int | None = None, *, length: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to but not including `end`, in chunks; all of them are compared with the digest."""
        size = self.size(key)
        demand_length(key, size, length)
        if start > 0 or (end is not None and end < size):
            return self._ranges(key, start, size if end is None else min(end, size))
        return checked(key, self._ranges(key, 0, size), lambda: self.verify(key, length))

    def size(self, key: str) -> int:
        """Length in bytes."""
        return int(self._head(key)["size"])

    def verify(self, key: str, length: int | None) -> None:
        """Fetch and hash the object; one with other bytes is copied below `damaged` and removed."""
        facts = self._head(key)
        digest = hashlib.sha256()
        if length in (None, facts["size"]):
            for chunk in self._ranges(key, 0, facts["size"]):
                digest.update(chunk)
            if key_of(digest.hexdigest()) == key:
                return
        with s3_errors(key):
            obstore.copy(self.store, key, f"{DAMAGED}/{key.rpartition('/')[2]}.{uuid.uuid4().hex}")
        put_at = facts["last_modified"]
        self._remove(key, lambda now: now["e_tag"] == facts["e_tag"] and now["last_modified"] == put_at)
        self.cache.drop(key)
        demand_length(key, facts["size"], length)
        raise damaged(key, f"it has other bytes than its name promises, of SHA-256 {digest.hexdigest()}")

    def set_aside(self) -> Iterator[tuple[str, str]]:
        """Names and keys of the objects below `damaged`."""
        for found in self._below(DAMAGED):
            name = found["path"].rpartition("/")[2]
            yield name, key_of(name.partition(".")[0])

    def discard(self, name: str) -> None:
        """Remove an object below `damaged`."""
        with s3_errors(), contextlib.suppress(FileNotFoundError):
            obstore.delete(self.store, f"{DAMAGED}/{name}")

    def delete(self, key: str, *, unless_written_since: float | None = None) -> None:
        """Remove; a key that is not there, or that was written again since that time, is no error."""
        if not KEY_PATTERN.fullmatch(key):
            return
        since = math.inf if unless_written_since is None else unless_written_since
        self._remove(key, lambda now: now["last_modified"].timestamp() < since)
        self.cache.drop(key)

    def _remove(self, key: str, may_go: Callable[[ObjectMeta], bool]) -> None:
        """Remove the object if it may go as it is now.

        S3 cannot make that one step: equal bytes have equal tags, and deletions know no times. So the removal is
        announced first, below `removing`; a writer who put the same object meanwhile sees the announcement, waits for
        its end and looks again. One that fails stays announced until it is stale, since the store may still carry it
        out (see docs/decisions/blobs-outlive-races.md).
        """
        name = f"{REMOVING}/{key}/{uuid.uuid4().hex}"
        with s3_errors():
            obstore.put(self.store, name, b"")
            began = time.monotonic()
            try:
                if may_go(obstore.head(self.store, key)) and time.monotonic() - began < DECIDE_WITHIN_S:
                    obstore.delete(self.store, key)
            except FileNotFoundError:
                pass
            obstore.delete(self.store, name)

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
        spool.check(self.cache.temporary)
        with s3_errors():
            obstore.put(self.store, name, b"ready?")
            obstore.delete(self.store, name)

    def sweep(self, older_than_s: float) -> int:
        """Remove abandoned uploads and fetches of this machine older than this; returns how many."""
        with s3_errors():
            for found in self._below(REMOVING):
                if time.time() - found["last_modified"].timestamp() > older_than_s:
                    obstore.delete(self.store, found["path"])
        return spool.sweep(self.cache.temporary, older_than_s)

    def _keep(self, written: Spool) -> StoredBlob:
        """Put the object, let removals of it that are under way come to their end, and look at it."""
        digest = written.seal(durable=False)  # what outlives a power cut is the object
        key = key_of(digest)
        kept = self._put(key, written)
        if kept is None:  # removed by a round that had decided before it was put
            kept = self._put(key, written)
        if kept != written.size:
            raise StorageUnavailable(
                f"blob {key!r} was put with {written.size} bytes and is kept with {kept or 0}",
                fix="send it again; if it stays so, the store does not keep what it is given",
            )
        return StoredBlob(key, digest, written.size)

    def _put(self, key: str, written: Spool) -> int | None:
        """Put the object; its length once nobody removes it any more, None when somebody has."""
        with s3_errors():
            obstore.put(
                self.store,
                key,
                written.path,
                attributes={"Content-Type": "application/octet-stream"},
                chunk_size=PART,
                max_concurrency=PARTS_AT_ONCE,
            )
            put_at = time.monotonic()
            while self._is_being_removed(key) and time.monotonic() - put_at < STALE_S:
                time.sleep(LOOK_EVERY_S)
            try:
                return int(obstore.head(self.store, key)["size"])
            except FileNotFoundError:
                return None

    def _is_being_removed(self, key: str) -> bool:
        return any(True for _ in self._below(f"{REMOVING}/{key}"))

    def _below(self, folder: str) -> Iterator[ObjectMeta]:
        with s3_errors():
            for batch in obstore.list(self.store, folder, chunk_size=1000):
                yield from batch

    def _head(self, key: str) -> ObjectMeta:
        _demand_form(key)
        with s3_errors(key):
            return obstore.head(self.store, key)

    def _ranges(self, key: str, start: int, end: int) -> Iterator[bytes]:
        for begin in range(start, end, RANGE):
            with s3_errors(key):
                chunk = obstore.get_range(self.store, key, start=begin, end=min(begin + RANGE, end)).to_bytes()
            yield chunk


def _demand_form(key: str) -> None:
    if not KEY_PATTERN.fullmatch(key):
        raise lost(key)


@contextlib.contextmanager
def s3_errors(looking_for: str | None = None) -> Iterator[None]:
    """Turn an answer of the store into `StorageUnavailable`, or `BlobLost` where the key is absent."""
    try:
        yield
    except FileNotFoundError as error:
        if looking_for is not None:
            raise lost(looking_for) from None
        raise _unavailable(error) from error
    except (BaseError, OSError, ValueError) as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> StorageUnavailable:
    reason = ADDRESS.sub("(its address)", " ".join(str(error).partition("Debug source:")[0].split()))
    return StorageUnavailable(
        f"the blob store failed: {reason:.300}",
        fix="see that the bucket exists and that TILEWRIGHT_BLOB_* name it and a key that may use it, then retry",
    )
