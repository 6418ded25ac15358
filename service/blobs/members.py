"""Files inside a blob that is a zip archive, read one by one without the rest.

The archive comes from a job's child and is not trusted: its directory and each file are limited in size before they
are held in memory, only the two methods of compression that an artifact uses are undone, and none past the stated
size.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.blobs.ranged import Ranged
from service.blobs.store import Blobs, demand_length
from service.errors import ArtifactUnreadable, NotFound, PartTooLarge

MAX_MEMBER_BYTES = 16 << 20
MAX_DIRECTORY_BYTES = 2 << 20
WINDOW = 128 << 10
"""Bytes that are asked for at once, at least: the end of an archive with all of its directory, as a rule."""

_ENCRYPTED = 0x1
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, UnicodeDecodeError, ValueError)
"""What `zipfile` raises over an archive that is malformed."""


@dataclass(frozen=True)
class Member:
    """A file of the archive; `bytes` is its length once it is unpacked."""

    name: str
    bytes: int


def members(blobs: Blobs, key: str, length: int | None = None) -> tuple[Member, ...]:
    """The files of an archive in its order.

    Raises `ArtifactUnreadable`; `BlobDamaged` where that is because the bytes have changed; `StorageUnavailable`.
    """
    with _archive(blobs, key, length) as (_, archive):
        return tuple(Member(info.filename, info.file_size) for info in archive.infolist() if not info.is_dir())


def member(blobs: Blobs, key: str, name: str, length: int | None = None) -> bytes:
    """The bytes of one file, found by its exact name and compared with its CRC-32.

    Raises `NotFound` when the archive has no such file, `PartTooLarge` past `MAX_MEMBER_BYTES`, and as
    `members` does.
    """
    with _archive(blobs, key, length) as (file, archive):
        try:
            info = archive.getinfo(name)
        except KeyError:
            raise NotFound(
                f"the artifact holds no file {name!r}", fix="GET /artifacts/{id}/files lists what it holds"
            ) from None
        if max(info.file_size, info.compress_size) > MAX_MEMBER_BYTES:
            raise PartTooLarge(
                f"{name!r} has {info.file_size} bytes, more than the {MAX_MEMBER_BYTES} that are served by themselves",
                fix="download the artifact and unzip it",
            )
        if info.flag_bits & _ENCRYPTED or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _unreadable(f"{name!r} is packed in a way that artifacts are not")
        file.largest = MAX_MEMBER_BYTES + WINDOW
        with archive.open(info) as opened:
            content = opened.read(info.file_size)
        if len(content) != info.file_size:
            raise _unreadable(f"{name!r} is shorter than the directory says")
        return content


@contextmanager
def _archive(blobs: Blobs, key: str, length: int | None) -> Iterator[tuple[Ranged, zipfile.ZipFile]]:
    def fetch(start: int, end: int) -> bytes:
        return b"".join(blobs.read(key, start, end, length=length))

    size = blobs.size(key)
    demand_length(key, size, length)
    file = Ranged(fetch, size, window=WINDOW, largest=MAX_DIRECTORY_BYTES)
    try:
        with zipfile.ZipFile(file) as archive:
            yield file, archive
    except (*_DAMAGE, ArtifactUnreadable) as error:
        blobs.verify(key, length)  # raises `BlobDamaged` where it is the store that has changed it
        raise (
            error if isinstance(error, ArtifactUnreadable) else _unreadable(str(error) or type(error).__name__)
        ) from error


def _unreadable(why: str) -> ArtifactUnreadable:
    return ArtifactUnreadable(f"the artifact is damaged: {why}", fix="compile the model again with fresh=true")
