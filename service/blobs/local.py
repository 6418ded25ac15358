"""Blobs in a local folder.

A blob is written under a temporary name, synced, renamed to its SHA-256 and the folder synced: a key that
exists names whole bytes, also after a power cut. Writing the same bytes again replaces the file, whatever the disk has
made of it meanwhile; who has the old one open reads on there. A file whose digest shows that the disk has damaged it is
set aside, in `damaged`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from service.blobs import copies, spool
from service.blobs.private import FOLDER, private_folder
from service.blobs.spool import Spool, SpoolWriter
from service.blobs.store import (
    CHUNK,
    KEY_PATTERN,
    StoredBlob,
    checked,
    damaged,
    demand_length,
    key_of,
    lost,
    no_room,
    storage_errors,
)
from service.errors import BlobDamaged
from service.reserve import NO_RESERVE, Reserve

ASIDE = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{32}")
"""The name of a file that has lost its key: the digest that it had, or should have, and what sets it apart."""
REMOVING_S = 60.0
"""A removal takes no longer; what it left was its last deed."""
LOOK_AGAIN_S = 0.02


class LocalBlobs:
    """The blob store below one folder, which is made when missing. Safe for many processes at once."""

    def __init__(self, root: Path, reserve: Reserve = NO_RESERVE) -> None:
        self.root = root
        self.reserve = reserve
        self.temporary = root / "tmp"
        self.removing = root / "removing"
        self.damaged = root / "damaged"
        private_folder(root, (self.temporary.name,))
        for folder in (self.temporary, self.removing):
            private_folder(folder, (), whole=True)

    def writer(self, limit: int | None = None) -> SpoolWriter:
        """Begin a blob of at most `limit` bytes. Raises `StorageUnavailable` while the reserve is freed."""
        if self.reserve.is_freed and not self.reserve.fill():
            raise no_room("the disk is full, and what room is left is for deletions")
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
        """The file of a blob, to be read only. Raises `BlobLost` for a key that this store does not hold."""
        path = self.root / key
        if not KEY_PATTERN.fullmatch(key) or not _is_there(path):
            raise lost(key)
        return path

    @contextlib.contextmanager
    def local(self, key: str, length: int | None = None) -> Iterator[Path]:
        """The file itself."""
        with self._open(key, length):
            yield self.path(key)

    def copy_to(self, key: str, path: Path, length: int | None = None) -> None:
        """A copy at a path, compared with its digest; a blob of other bytes is set aside."""
        copies.copy(key, lambda: self.local(key, length), path, lambda: self.verify(key, length))

    def copy(self, key: str, length: int | None = None) -> AbstractContextManager[Path]:
        """A copy among the files that are being written: `sweep` finds it if this process is killed."""
        return copies.copied(lambda path: self.copy_to(key, path, length), self.temporary)

    def read(self, key: str, start: int = 0, end: int | None = None, *, length: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to but not including `end`, in chunks; all of them are compared with the digest."""
        file = self._open(key, length)
        chunks = _chunks(file, start, end)
        if start > 0 or (end is not None and end < os.fstat(file.fileno()).st_size):
            return chunks
        return checked(key, chunks, lambda: self.verify(key, length))

    def size(self, key: str) -> int:
        """Length in bytes."""
        with self._open(key) as file:
            return os.fstat(file.fileno()).st_size

    def verify(self, key: str, length: int | None) -> None:
        """Hash the file; one with other bytes moves into the folder `damaged`."""
        with self._open(key) as file, storage_errors():
            facts = os.fstat(file.fileno())
            digest = hashlib.sha256()
            as_long = length is None or facts.st_size == length
            while as_long and (chunk := file.read(CHUNK)):
                digest.update(chunk)
            found = digest.hexdigest()
            if as_long and key_of(found) == key:
                return
            with contextlib.suppress(FileNotFoundError):
                self._set_aside(self.root / key, facts)  # still open: no other file has its inode
        demand_length(key, facts.st_size, length)
        raise damaged(key, f"it has other bytes than its name promises, of SHA-256 {found}")

    def set_aside(self) -> Iterator[tuple[str, str]]:
        """Names and keys of the files in `damaged`."""
        with storage_errors():
            names = sorted(os.listdir(self.damaged)) if self.damaged.is_dir() else []
        for name in names:
            if ASIDE.fullmatch(name):
                yield name, key_of(name.partition(".")[0])

    def discard(self, name: str) -> None:
        """Remove a file of `damaged`."""
        if ASIDE.fullmatch(name):
            with storage_errors():
                (self.damaged / name).unlink(missing_ok=True)

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
        """Make the bytes durable and give them their key, in place of a file that has it: that one may be damaged."""
        digest = written.seal(durable=True)
        key = key_of(digest)
        final = self.root / key
        with storage_errors():
            if not final.parent.is_dir():
                final.parent.mkdir(exist_ok=True, mode=FOLDER)
                sync_folder(self.root)
            os.utime(written.path)
            os.replace(written.path, final)
            sync_folder(final.parent)
        return StoredBlob(key, digest, written.size)

    def _aside(self, path: Path) -> Path:
        """A new name in the folder of damaged files."""
        private_folder(self.damaged, (), whole=True)
        return self.damaged / f"{path.name}.{uuid.uuid4().hex}"

    def _set_aside(self, path: Path, read: os.stat_result) -> None:
        """Move the file that was read, and no other that took its place meanwhile."""
        aside = self._aside(path)
        path.rename(aside)
        if os.path.samestat(aside.stat(), read):
            sync_folder(path.parent)
        else:
            _put_back(aside, path)

    def _remove_unless_renewed(self, path: Path, since: float) -> None:
        """Take the file away first and look then.

        A writer either renewed it before, or finds it gone and puts its own. A file whose remover was killed in between
        is put back by `sweep`.
        """
        aside = self.removing / f"{path.name}.{uuid.uuid4().hex}"
        path.rename(aside)
        if aside.stat().st_mtime >= since:
            _put_back(aside, path)
        else:
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
        with self.writer():
            spool.check(self.temporary)

    def sweep(self, older_than_s: float) -> int:
        """Remove abandoned uploads older than this; returns how many."""
        with storage_errors():
            for aside in self.removing.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if ASIDE.fullmatch(aside.name) and time.time() - aside.stat().st_ctime > REMOVING_S:
                        _put_back(aside, self.root / key_of(aside.name.partition(".")[0]))
        return spool.sweep(self.temporary, older_than_s)

    def _open(self, key: str, length: int | None = None) -> BinaryIO:
        path = self.path(key)
        with storage_errors():
            try:
                file = path.open("rb", buffering=0)
            except FileNotFoundError:  # removed since
                raise lost(key) from None
        try:
            demand_length(key, os.fstat(file.fileno()).st_size, length)
        except BlobDamaged:
            file.close()
            raise
        return file


def _put_back(aside: Path, path: Path) -> None:
    """Give a file its name again, unless another has it."""
    with contextlib.suppress(FileExistsError):
        os.link(aside, path)
    aside.unlink()


def _is_there(path: Path) -> bool:
    """Whether there is such a file; one that is missing is looked for once more.

    It may be between the names that its removal gives it, and be put back.
    """
    if path.is_file():
        return True
    time.sleep(LOOK_AGAIN_S)
    return path.is_file()


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
