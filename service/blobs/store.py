"""What a blob store offers: bytes by the name of their own SHA-256, wherever they are kept.

A key that exists names whole bytes that never change. Writing the same bytes twice is harmless and refreshes the
time of the last write, which garbage collection goes by.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from service.errors import BlobDamaged, BlobLost, StorageUnavailable

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
    raises `BlobLost` for a key that is not in the store, except `delete`. Those that open a blob are told how many
    bytes its row says it has (`length`; None: that is not known), and raise `BlobDamaged` when it has more or fewer.
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

    def local(self, key: str, length: int | None = None) -> AbstractContextManager[Path]:
        """The blob as a file, to be read only and only inside the `with` block; its bytes are not checked."""
        ...

    def copy_to(self, key: str, path: Path, length: int | None = None) -> None:
        """Make a file of mode 0400 with the blob's bytes at a path where nothing is; they have the blob's digest.

        Raises `BlobDamaged` for a blob of other bytes, which is set aside, and `OSError` where `path` cannot be
        written.
        """
        ...

    def copy(self, key: str, length: int | None = None) -> AbstractContextManager[Path]:
        """The same in a place of the store's own: a file that is there inside the `with` block alone."""
        ...

    def read(self, key: str, start: int = 0, end: int | None = None, *, length: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to but not including `end` (None: to the last), in chunks.

        A key that is missing or of another length is found out by the call, before the first chunk is asked for. Where
        these are all of its bytes, they are compared with its digest on the way: in place of the last chunk comes
        `BlobDamaged`, and the blob is set aside. A part is not checked.
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

    def verify(self, key: str, length: int | None) -> None:
        """Read all of a blob and compare it with its digest.

        What is damaged is set aside under another name, where nobody takes it for the blob: the next write of the same
        bytes makes it whole. Raises `BlobDamaged` then, and `BlobLost`.
        """
        ...

    def set_aside(self) -> Iterator[tuple[str, str]]:
        """The damaged blobs that were set aside: a name for `discard`, and the key that each had."""
        ...

    def discard(self, name: str) -> None:
        """Remove what was set aside under this name."""
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


AGAIN = "send the model again, or compile it again; the operator may have the bytes in a backup"


def lost(key: str) -> BlobLost:
    """What to raise for a key that the store does not hold."""
    return BlobLost(f"blob {key!r} is not in the store", fix=AGAIN, details={"key": key})


def damaged(key: str, why: str) -> BlobDamaged:
    """What to raise for a blob whose bytes are not those that were kept."""
    return BlobDamaged(f"blob {key!r} is damaged: {why}", fix=AGAIN, details={"key": key})


def misread(key: str) -> StorageUnavailable:
    """What to raise for a blob that was read with other bytes than it is kept with."""
    return StorageUnavailable(
        f"blob {key!r} was read with other bytes than it has",
        fix="try again; if it stays so, check the machine's memory and its way to the blobs",
        details={"key": key},
    )


def checked(key: str, chunks: Iterator[bytes], verify: Callable[[], None]) -> Iterator[bytes]:
    """The chunks of a whole blob, of which the last is held back until they have the digest that the key promises.

    Where they have not, `verify` is to look at what is kept, and to raise if that is damaged; else `misread` is raised.
    """
    digest, held = hashlib.sha256(), b""
    for chunk in chunks:
        digest.update(chunk)
        if held:
            yield held
        held = chunk
    if key_of(digest.hexdigest()) != key:
        verify()
        raise misread(key)
    if held:
        yield held


def demand_length(key: str, found: int, length: int | None) -> None:
    """Raises `BlobDamaged` unless a blob has the length that its row says, if that is known."""
    if length is not None and found != length:
        raise damaged(key, f"it has {found} bytes and should have {length}")


NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def no_room(reason: str) -> StorageUnavailable:
    """What to raise for a disk that is full."""
    return StorageUnavailable(
        f"the blob store failed: {reason}", fix="make room: delete models or jobs, or free disk space, then retry"
    )


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Turn an error of the file system into `StorageUnavailable`."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise no_room(error.strerror or str(error)) from error
        raise StorageUnavailable(
            f"the blob store failed: {error.strerror or error}",
            fix="mend the blob folder or its disk, then retry",
        ) from error
