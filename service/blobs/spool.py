"""A temporary file that is hashed while it is written: what every store does before it knows a blob's key."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from service.blobs.private import FILE
from service.blobs.store import CHUNK, BlobWriter, StoredBlob, storage_errors
from service.errors import BodyTooLarge

CACHED_BYTES = 64 << 20
"""The beginning of each file that goes through the page cache: what most models and artifacts fit in."""
CHECKED_BYTES = 4096
"""A disk without room for so many is full."""


class Spool:
    """Bytes on their way into a store: a file in `folder`, removed by `discard` unless it was moved away.

    Writes are gathered to blocks, which are hashed and written one by one. What lies beyond `CACHED_BYTES` is written
    past the page cache where the file system can (`O_DIRECT`, for which the blocks are aligned in memory and in the
    file): one large upload does not push everything else out of memory, and waits less for the sync at its end.
    """

    def __init__(self, folder: Path, limit: int | None) -> None:
        self.path = folder / uuid.uuid4().hex
        self.size = 0
        self._limit = limit
        self._hash = hashlib.sha256()
        self._block = mmap.mmap(-1, CHUNK)
        self._filled = 0
        self._direct = False
        with storage_errors():
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE)
            self._file: BinaryIO = os.fdopen(descriptor, "wb", buffering=0)

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append. Raises `BodyTooLarge` past the limit, `StorageUnavailable` when the disk is full."""
        self.size += len(chunk)
        if self._limit is not None and self.size > self._limit:
            raise BodyTooLarge(
                f"the upload is larger than {self._limit} bytes",
                fix="send a smaller model, or raise TILEWRIGHT_MAX_MODEL_BYTES",
                details={"limit_bytes": self._limit},
            )
        left = memoryview(chunk)
        while left:
            taken = min(len(left), CHUNK - self._filled)
            self._block[self._filled : self._filled + taken] = left[:taken]
            self._filled += taken
            left = left[taken:]
            if self._filled == CHUNK:
                if not self._direct and self.size >= CACHED_BYTES:
                    self._direct = self._bypass(True)
                self._flush()

    def seal(self, *, durable: bool) -> str:
        """Close the file, after a sync when it must outlive a power cut; returns the digest in hex."""
        if self._direct:
            self._bypass(False)  # the last block need not fill its alignment
        self._flush()
        with storage_errors():
            if durable:
                os.fsync(self._file.fileno())
            self._file.close()
        return self._hash.hexdigest()

    def discard(self) -> None:
        """Close and remove what is still there."""
        self._file.close()
        self._block.close()
        self.path.unlink(missing_ok=True)

    def _flush(self) -> None:
        with memoryview(self._block) as whole, whole[: self._filled] as block:
            self._hash.update(block)
            with storage_errors():
                written = 0
                while written < self._filled:
                    try:
                        written += os.write(self._file.fileno(), block[written:])
                    except OSError as error:
                        # Short writes end off the alignment, and some file systems refuse only here.
                        if not self._direct or error.errno != errno.EINVAL:
                            raise
                        self._direct = self._bypass(False)
        self._filled = 0

    def _bypass(self, wanted: bool) -> bool:
        """Write past the page cache from now on, or no longer; whether it does."""
        if not hasattr(os, "O_DIRECT"):
            return False
        flags = fcntl.fcntl(self._file, fcntl.F_GETFL) & ~os.O_DIRECT
        try:
            fcntl.fcntl(self._file, fcntl.F_SETFL, flags | os.O_DIRECT if wanted else flags)
        except OSError:  # a file system that knows no such thing, as tmpfs did
            return False
        return wanted


class SpoolWriter:
    """A `BlobWriter` that gathers the bytes in `folder`; `keep` puts the whole where the store has its blobs."""

    def __init__(self, folder: Path, limit: int | None, keep: Callable[[Spool], StoredBlob]) -> None:
        self._spool = Spool(folder, limit)
        self._keep = keep

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.discard()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._spool.size

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append. Raises `BodyTooLarge` past the limit, `StorageUnavailable` when the disk is full."""
        self._spool.write(chunk)

    def commit(self) -> StoredBlob:
        """Make the bytes durable and give them their key. Raises `StorageUnavailable`."""
        return self._keep(self._spool)


def copy_in(path: Path, writer: BlobWriter) -> StoredBlob:
    """Write a whole file and commit it."""
    with writer:
        with storage_errors(), path.open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                writer.write(chunk)
        return writer.commit()


def check(folder: Path) -> None:
    """Write and remove `CHECKED_BYTES`. Raises `StorageUnavailable` when that fails."""
    written = Spool(folder, None)
    try:
        written.write(bytes(CHECKED_BYTES))
        written.seal(durable=True)
    finally:
        written.discard()


def sweep(folder: Path, older_than_s: float) -> int:
    """Remove the files in `folder` that were last written longer ago than this; returns how many."""
    removed = 0
    with storage_errors():
        for path in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > older_than_s:
                    path.unlink()
                    removed += 1
    return removed
