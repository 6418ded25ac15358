"""Room that is kept free on the disks of the database and the blobs, so that a full one can be made room on.

A file of each disk holds it. What deletes frees it where the disk is full; while it is freed no new blob is taken, and
it is filled again once there is room for twice as much.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import sqlalchemy as sa

from service.config import Settings
from service.logs import logger

NAME = "reserve"
MOST_OF_DISK = 20
"""The reserve is at most one of so many parts of its disk."""

log = logger(__name__)


@dataclass(frozen=True)
class Reserve:
    """One file in each of `folders`, of `bytes` or a twentieth of the disk. Safe for many processes; raises nothing."""

    folders: tuple[Path, ...] = ()
    bytes: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """On the disks of a SQLite database and of a local blob folder, which are often the same."""
        url = sa.make_url(settings.sqlalchemy_url)
        database = Path(url.database).parent if url.get_backend_name() == "sqlite" and url.database else None
        blobs = None if settings.blob_url else settings.blob_root
        return cls(tuple(folder for folder in (database, blobs) if folder is not None), settings.reserve_bytes)

    def fill(self) -> bool:
        """Set the room aside wherever it is not and there is twice as much; whether it is whole now."""
        if not self.bytes:
            return True
        whole = True
        for folder in self._disks():
            with contextlib.suppress(OSError):
                wanted = self._wanted(folder)
                if _size(folder / NAME) >= wanted:
                    continue
                if _free(folder) >= 2 * wanted:
                    _allocate(folder / NAME, wanted)
                    continue
            whole = False
        return whole

    @property
    def is_freed(self) -> bool:
        """Whether it was set aside, and was needed."""
        for folder in self._disks() if self.bytes else ():
            with contextlib.suppress(OSError):
                if (folder / NAME).stat().st_size < self._wanted(folder):
                    return True
        return False

    def make_room(self) -> None:
        """Give it up on the disks that are full."""
        for folder in self._disks() if self.bytes else ():
            with contextlib.suppress(OSError):
                wanted = self._wanted(folder)
                if _size(folder / NAME) and _free(folder) < wanted:
                    os.truncate(folder / NAME, 0)
                    log.warning("the disk is full: the reserve is freed for what deletes", folder=str(folder))

    def _disks(self) -> list[Path]:
        """One folder of each disk."""
        found: dict[int, Path] = {}
        for folder in self.folders:
            with contextlib.suppress(OSError):
                found.setdefault(folder.stat().st_dev, folder)
        return list(found.values())

    def _wanted(self, folder: Path) -> int:
        disk = os.statvfs(folder)
        return min(self.bytes, disk.f_blocks * disk.f_frsize // MOST_OF_DISK)


NO_RESERVE = Reserve()


def _free(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _allocate(path: Path, size: int) -> None:
    """Raises `OSError`, and leaves an empty file then."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        os.ftruncate(descriptor, 0)
        raise
    finally:
        os.close(descriptor)
