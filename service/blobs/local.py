"""Blobs in a local folder.

A blob is written under a temporary name, synced, renamed to its SHA-256 and the folder synced: a key that
exists names whole bytes, also after a power cut. Writing the same bytes again leaves the file as it is, which somebody
may have open or behind a sandbox's walls (those hold inodes), and renews the time of its last write.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from service.blobs import spool
from service.blobs.private import FOLDER, private_folder
from service.blobs.spool import Spool, SpoolWriter
from service.blobs.store import CHUNK, KEY_PATTERN, StoredBlob, key_of, not_found, storage_errors


class LocalBlobs:
    """The blob store below one folder, which is made when missing. Safe for many processes at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.temporary = root / "tmp"
        private_folder(root, (self.temporary.name,))
        private_folder(self.temporary, (), whole=True)

    def writer(self, limit: int | None = None) -> SpoolWriter:
        """Begin a blob of at most `limit` bytes."""
        return SpoolWriter(self.temporary, limit, self._keep)

    def put_file(self, path: Path) -> StoredBlob:
        """Copy a finished file in."""
        return spool.copy_in(path, self.writer())

    def put_bytes(self, data: bytes) -> StoredBlob:
        """Keep bytes that are in memory."""
        with self.writer() as writer:
            writer.write(data)
            return writer.commit()

    def path(self, key: str) -> Path:
        """The file of a blob, to be read only. Raises `NotFound` for a key that this store never gave out."""
        path = self.root / key
        if not KEY_PATTERN.fullmatch(key) or not path.is_file():
            raise not_found(key)
        return path

    @contextlib.contextmanager
    def local(self, key: str) -> Iterator[Path]:
        """The file itself."""
        yield self.path(key)

    def read(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to but not including `end`, in chunks."""
        return _chunks(self._open(key), start, end)

    def size(self, key: str) -> int:
        """Length in bytes."""
        with self._open(key) as file:
            return os.fstat(file.fileno()).st_size

    def delete(self, key: str, *, unless_written_since: float | None = None) -> None:
        """Remove; a key that is not there, or that was written again since that time, is no error."""
        if not KEY_PATTERN.fullmatch(key):
            return
        path = self.root / key
        with storage_errors(), contextlib.suppress(FileNotFoundError):
            if unless_written_since is None:
                path.unlink()
            elif path.stat().st_mtime < unless_written_since:
                self._remove_unless_renewed(path, unless_written_since)

    def _keep(self, written: Spool) -> StoredBlob:
        """Make the bytes durable and give them their key."""
        digest = written.seal(durable=True)
        key = key_of(digest)
        final = self.root / key
        with storage_errors():
            if not final.parent.is_dir():
                final.parent.mkdir(exist_ok=True, mode=FOLDER)
                sync_folder(self.root)
            try:
                os.utime(final)
            except FileNotFoundError:
                os.replace(written.path, final)
            sync_folder(final.parent)
        return StoredBlob(key, digest, written.size)

    def _remove_unless_renewed(self, path: Path, since: float) -> None:
        """Take the file away first and look then.

        A writer either renewed it before, or finds it gone and puts its own.
        """
        aside = self.temporary / uuid.uuid4().hex
        path.rename(aside)
        if aside.stat().st_mtime >= since:
            with contextlib.suppress(FileExistsError):
                os.link(aside, path)
        aside.unlink()

    def keys(self) -> Iterator[tuple[str, float]]:
        """Every key and its last write, in seconds since 1970."""
        with storage_errors():
            folders = [path for path in self.root.iterdir() if len(path.name) == 2]
        for folder in sorted(folders):
            with storage_errors():
                files = sorted(folder.iterdir())
            for path in files:
                key = f"{folder.name}/{path.name}"
                if KEY_PATTERN.fullmatch(key):
                    with contextlib.suppress(FileNotFoundError):
                        yield key, path.stat().st_mtime

    def check(self) -> None:
        """Write and remove a few bytes; raises `StorageUnavailable` when that fails."""
        with self.writer() as writer:
            writer.write(b"ready?")

    def sweep(self, older_than_s: float) -> int:
        """Remove abandoned uploads older than this; returns how many."""
        return spool.sweep(self.temporary, older_than_s)

    def _open(self, key: str) -> BinaryIO:
        path = self.path(key)
        with storage_errors():
            try:
                return path.open("rb", buffering=0)
            except FileNotFoundError:  # removed since
                raise not_found(key) from None


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _chunks(file: BinaryIO, start: int, end: int | None) -> Iterator[bytes]:
    with file, storage_errors():
        file.seek(start)
        left = float("inf") if end is None else end - start
        while left > 0 and (chunk := file.read(int(min(CHUNK, left)))):
            left -= len(chunk)
            yield chunk
