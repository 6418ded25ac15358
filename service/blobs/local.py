"""Content-addressed blobs in a local folder.

A blob is written under a temporary name, synced, renamed to its SHA-256 and the folder synced: a key that
exists names whole bytes, also after a power cut. Writing the same bytes twice is harmless.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from service.errors import BodyTooLarge, NotFound, StorageUnavailable

KEY_PATTERN = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}")
CHUNK = 1 << 20


@dataclass(frozen=True)
class StoredBlob:
    """Bytes that are safely kept: `key` finds them again, `sha256` is hex, `bytes` their length."""

    key: str
    sha256: str
    bytes: int


class BlobWriter:
    """One upload in progress; leaving the `with` block without `commit` removes what was written."""

    def __init__(self, blobs: Blobs, limit: int | None) -> None:
        self._blobs = blobs
        self._limit = limit
        self._hash = hashlib.sha256()
        self._size = 0
        self._path = blobs.temporary / uuid.uuid4().hex
        with storage_errors():
            self._file: BinaryIO = self._path.open("xb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    def write(self, chunk: bytes | memoryview) -> None:
        """Append. Raises `BodyTooLarge` past the limit, `StorageUnavailable` when the disk is full."""
        self._size += len(chunk)
        if self._limit is not None and self._size > self._limit:
            raise BodyTooLarge(
                f"the upload is larger than {self._limit} bytes",
                fix="send a smaller model, or raise TILEWRIGHT_MAX_MODEL_BYTES",
                details={"limit_bytes": self._limit},
            )
        self._hash.update(chunk)
        with storage_errors():
            self._file.write(chunk)

    def commit(self) -> StoredBlob:
        """Make the bytes durable and give them their key. Raises `StorageUnavailable`."""
        digest = self._hash.hexdigest()
        final = self._blobs.root / digest[:2] / digest
        with storage_errors():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            if not final.parent.is_dir():
                final.parent.mkdir(exist_ok=True)
                sync_folder(self._blobs.root)
            os.replace(self._path, final)
            sync_folder(final.parent)
        return StoredBlob(f"{digest[:2]}/{digest}", digest, self._size)


class Blobs:
    """The blob store below one folder, which is made when missing. Safe for many processes at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.temporary = root / "tmp"
        with storage_errors():
            self.temporary.mkdir(parents=True, exist_ok=True, mode=0o700)

    def writer(self, limit: int | None = None) -> BlobWriter:
        """Begin a blob of at most `limit` bytes."""
        return BlobWriter(self, limit)

    def put_file(self, path: Path) -> StoredBlob:
        """Copy a finished file in."""
        with self.writer() as writer:
            with storage_errors(), path.open("rb") as file:
                while chunk := file.read(CHUNK):
                    writer.write(chunk)
            return writer.commit()

    def put_bytes(self, data: bytes) -> StoredBlob:
        """Keep bytes that are in memory."""
        with self.writer() as writer:
            writer.write(data)
            return writer.commit()

    def path(self, key: str) -> Path:
        """The file of a blob, to be read only. Raises `NotFound` for a key that this store never gave out."""
        path = self.root / key
        if not KEY_PATTERN.fullmatch(key) or not path.is_file():
            raise NotFound(f"blob {key!r} is not in the store", fix="restore the blob folder from its backup")
        return path

    def check(self) -> None:
        """Write and remove a few bytes; raises `StorageUnavailable` when that fails."""
        with self.writer() as writer:
            writer.write(b"ready?")

    def sweep(self, older_than_s: float) -> int:
        """Remove abandoned temporary files older than this; returns how many."""
        removed = 0
        for path in self.temporary.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > older_than_s:
                    path.unlink()
                    removed += 1
        return removed


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
