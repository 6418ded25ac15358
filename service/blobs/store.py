"""What a blob store offers: bytes by the name of their own SHA-256, wherever they are kept.

A key that exists names whole bytes that never change. Writing the same bytes twice is harmless and refreshes the
time of the last write, which garbage collection goes by.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from service.errors import NotFound, StorageUnavailable

KEY_PATTERN = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}")
CHUNK = 1 << 20
"""Bytes that are read or written at a time."""


@dataclass(frozen=True)
class StoredBlob:
    """Bytes that are safely kept: `key` finds them again, `sha256` is hex, `bytes` their length."""

    key: str
    sha256: str
    bytes: int


class BlobWriter(Protocol):
    """One blob in the making; leaving the `with` block without `commit` removes what was written."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def size(self) -> int:
        """Bytes written so far."""
        ...

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append. Raises `BodyTooLarge` past the limit, `StorageUnavailable` when the disk is full."""
        ...

    def commit(self) -> StoredBlob:
        """Make the bytes durable and give them their key. Raises `StorageUnavailable`."""
        ...


class Blobs(Protocol):
    """A blob store, safe for many threads and processes at once.

    Every method raises `StorageUnavailable` when the disk or the network fails, and every one that is given a key
    raises `NotFound` for a key that is not in the store, except `delete`.
    """

    def writer(self, limit: int | None = None) -> BlobWriter:
        """Begin a blob of at most `limit` bytes."""
        ...

    def put_file(self, path: Path) -> StoredBlob:
        """Copy a finished file in."""
        ...

    def put_bytes(self, data: bytes) -> StoredBlob:
        """Keep bytes that are in memory."""
        ...

    def local(self, key: str) -> AbstractContextManager[Path]:
        """The blob as a file, to be read only and only inside the `with` block."""
        ...

    def read(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to but not including `end` (None: to the last), in chunks.

        A key that is missing is found out by the call, before the first chunk is asked for.
        """
        ...

    def size(self, key: str) -> int:
        """Length in bytes."""
        ...

    def delete(self, key: str, *, unless_written_since: float | None = None) -> None:
        """Remove; a key that is not there is no error.

        With `unless_written_since` (seconds since 1970) a blob that was written at that time or later stays: garbage
        collection looks at a key, decides, and must not remove bytes that were stored again meanwhile.
        """
        ...

    def keys(self) -> Iterator[tuple[str, float]]:
        """Every key and its last write, in seconds since 1970."""
        ...

    def check(self) -> None:
        """Write and remove a few bytes; raises `StorageUnavailable` when that fails."""
        ...

    def sweep(self, older_than_s: float) -> int:
        """Remove abandoned uploads older than this; returns how many."""
        ...


def key_of(sha256: str) -> str:
    """The key of the bytes with this digest, in hex."""
    return f"{sha256[:2]}/{sha256}"


def not_found(key: str) -> NotFound:
    """What to raise for a key that the store does not hold."""
    return NotFound(f"blob {key!r} is not in the store", fix="restore the blob store from its backup")


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Turn an error of the file system into `StorageUnavailable`."""
    try:
        yield
    except OSError as error:
        raise StorageUnavailable(
            f"the blob store failed: {error.strerror or error}",
            fix="free disk space or mend the blob folder, then retry",
        ) from error
