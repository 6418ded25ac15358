"""Blobs of a far store as local files: fetched once, checked against their digest, dropped by least recent use.

A file in the cache is never replaced, only added and removed. Who uses one holds a shared lock on it (`flock`, so
that the end of the process gives it back), and who removes one must first get the exclusive lock: no file vanishes
under its reader, in whatever process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from service.blobs.private import FOLDER, private_folder
from service.blobs.spool import Spool
from service.blobs.store import KEY_PATTERN, damaged, key_of, storage_errors

Fetch = Callable[[str], Generator[bytes]]
"""The bytes of a key in chunks, from the far store."""


class Cache:
    """The files below one folder, which is made when missing; of `limit` bytes in all, beside those in use."""

    def __init__(self, root: Path, limit: int) -> None:
        self.root = root
        self.temporary = root / "tmp"
        self._limit = limit
        private_folder(root, (self.temporary.name,))
        private_folder(self.temporary, (), whole=True)

    @contextlib.contextmanager
    def holding(self, key: str, fetch: Fetch, length: int | None = None) -> Iterator[Path]:
        """The file of a blob, there for as long as the `with` block lasts; its bytes come from `fetch` when missing.

        Raises `StorageUnavailable` when the disk fails, `BlobDamaged` when the bytes are not those that the key
        promises. A file of another `length` than this was damaged by this disk, and is fetched anew.
        """
        path = self.root / key
        while (held := _hold(path)) is None or length not in (None, os.fstat(held).st_size):
            if held is None:
                self._add(key, path, fetch)
                continue
            os.close(held)
            if not _remove(path):
                raise damaged(key, "its copy in the cache is too short or too long, and in use")
        try:
            self._trim()
            yield path
        finally:
            os.close(held)

    def drop(self, key: str) -> None:
        """Remove a blob's file unless it is in use."""
        _remove(self.root / key)

    def _add(self, key: str, path: Path, fetch: Fetch) -> None:
        spool = Spool(self.temporary, None)
        try:
            with contextlib.closing(fetch(key)) as chunks:
                for chunk in chunks:
                    spool.write(chunk)
            if key_of(spool.seal(durable=True)) != key:
                raise damaged(key, "it came from the store with other bytes than its name promises")
            with storage_errors():
                path.parent.mkdir(exist_ok=True, mode=FOLDER)
                with contextlib.suppress(FileExistsError):  # another reader was faster
                    os.link(spool.path, path)
        finally:
            spool.discard()

    def _trim(self) -> None:
        """Remove what was used least recently until the limit is kept; what is in use stays."""
        kept = []
        with storage_errors():
            for path in self.root.glob("??/*"):
                if KEY_PATTERN.fullmatch(f"{path.parent.name}/{path.name}"):
                    with contextlib.suppress(FileNotFoundError):
                        facts = path.stat()
                        kept.append((facts.st_mtime, facts.st_size, path))
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if total <= self._limit:
                return
            if _remove(path):
                total -= size


def _hold(path: Path) -> int | None:
    """A descriptor with a shared lock on the file that `path` names; None when it names none."""
    with storage_errors():
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        held = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            held = os.path.samestat(os.fstat(descriptor), path.stat())
            os.utime(descriptor)  # the time of the last use
        except FileNotFoundError:
            held = False  # removed between the opening and the lock
        finally:
            if not held:
                os.close(descriptor)
        return descriptor if held else None


def _remove(path: Path) -> bool:
    """Remove a file that nobody holds; whether it is gone."""
    with storage_errors():
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):  # else it was removed, and fetched anew for another
                path.unlink()
            return True
        except FileNotFoundError:
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
