"""The .tw container: a zip whose bytes depend on its members alone, in which chosen members can be mapped."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO

from compiler.encodings.aside import Octets
from compiler.errors import InternalError, PlaceUnusable, machine_error

PAGE = 4096
_TIME = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644
_ALIGNMENT_FIELD = 0xD935
"""Extra field of the zip format that pads a member's data to an alignment, as Android's zipalign writes it: the
alignment, then zeros."""
_ZIP64_FROM = 1 << 31
_LOCAL_HEADER, _ZIP64_FIELD = 30, 20
_CHUNK = 1 << 20


def write_archive(path: Path, members: Mapping[str, Octets], mapped: Collection[str] = ()) -> None:
    """Writes the members in their order to `path`, which appears whole or not at all.

    Those named in `mapped` are stored as they are, from a multiple of PAGE bytes on. Raises DiskFull when there
    is no space, PlaceUnusable when the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "xb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
                for name, content in members.items():
                    _add(archive, file, name, content, name in mapped)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as reason:
        error = machine_error(f"the artifact cannot be written to {path}", reason)
        if isinstance(error, PlaceUnusable):
            error.fix = "name a file in a folder that can be written"
        raise error from reason
    finally:
        temporary.unlink(missing_ok=True)


def replace_last(path: Path, name: str, content: bytes) -> None:
    """Writes the last member of an archive anew, where it lies; nothing before it changes.

    Raises as `write_archive` does, and InternalError where another member is the last one.
    """
    try:
        with open(path, "r+b") as file:
            with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
                last = archive.filelist.pop()
                if last.filename != name:
                    raise InternalError(f"the last member of {path} is {last.filename}, not {name}")
                del archive.NameToInfo[name]
                archive.start_dir = last.header_offset
                _add(archive, file, name, content, mapped=False)
            file.flush()
            os.fsync(file.fileno())
    except OSError as reason:
        raise machine_error(f"the artifact cannot be written to {path}", reason) from reason


def _add(archive: zipfile.ZipFile, file: IO[bytes], name: str, content: Octets, mapped: bool) -> None:
    member = zipfile.ZipInfo(name, _TIME)
    member.create_system = 3  # Unix, wherever it is written: it says how external_attr is meant
    member.external_attr = _MODE << 16
    member.compress_type = zipfile.ZIP_STORED if mapped else zipfile.ZIP_DEFLATED
    large = len(content) >= _ZIP64_FROM
    if mapped:
        begin = file.tell() + _LOCAL_HEADER + len(name.encode()) + (_ZIP64_FIELD if large else 0)
        member.extra = _padding(begin)
    with archive.open(member, "w", force_zip64=large) as out:
        for at in range(0, len(content), _CHUNK):
            out.write(memoryview(content)[at : at + _CHUNK])
    if mapped and (file.tell() - len(content)) % PAGE:
        raise InternalError(f"{name} begins at byte {file.tell() - len(content)} of the archive, not at a page")


def _padding(begin: int) -> bytes:
    """The extra field after which data that would begin at `begin` begins at a multiple of PAGE."""
    size = -(begin + 6) % PAGE
    return struct.pack("<HHH", _ALIGNMENT_FIELD, 2 + size, PAGE) + bytes(size)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
