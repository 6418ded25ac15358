"""A zip with an ONNX file and its external data becomes blobs, member by member, never whole in memory or on the disk.

The zip comes from outside: what its directory says is checked before anything is unpacked, and a member is never
unpacked past the size that the directory says.
"""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import IO, cast

from service.blobs.store import CHUNK, Blobs, StoredBlob
from service.errors import BadRequest, BodyTooLarge
from service.jobs.storage.bundle import MOST_FILES, Bundle, demand_distinct, relative_path
from service.jobs.storage.pieces import Piece, as_file

DIRECTORY_BYTES = 2 << 20
"""More is read neither of a zip's directory nor, at once, of a member."""
HIGHEST_RATIO = 100
"""How many times larger than its packed bytes a member may be ..."""
RATIO_FROM = 1 << 20
"""... beyond this many bytes."""

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 0x1 | 0x40 | 0x2000
UNIX = 3
"""`create_system` of a zip whose members carry the mode of a file."""
FINDER = ("__MACOSX", ".DS_Store")
"""What macOS adds to a zip by itself."""

DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
)
"""What `zipfile` raises over a malformed zip; `OverflowError` and `UnicodeDecodeError` are `ValueError`s or below."""


def unpack(blobs: Blobs, pieces: Sequence[Piece], *, model: str | None, limit: int) -> Bundle:
    """The files of the zip that the pieces are. `model` names its ONNX file; None: there is exactly one.

    Raises `BadRequest` for a zip that is damaged, hostile or holds no model, `BodyTooLarge` when its files have more
    than `limit` bytes in all, and `StorageUnavailable`.
    """
    try:
        with zipfile.ZipFile(cast(IO[bytes], as_file(blobs, pieces, DIRECTORY_BYTES))) as archive:
            members = _members(archive, limit)
            chosen = _chosen(members, model)
            folder = PurePosixPath(chosen).parent
            names = {name: _within(folder, name) for name in members if name != chosen}
            demand_distinct(names.values())
            kept = {name: _keep(blobs, archive, info) for name, info in members.items()}
    except (*DAMAGE, OverflowError) as error:
        raise _refusal(f"is damaged: {error}", "send a zip that `unzip -t` accepts") from error
    if kept[chosen].bytes == 0:
        raise BadRequest(f"the model {chosen!r:.120} in the zip is empty", fix="send the ONNX file")
    return Bundle(kept[chosen], {path: kept[name] for name, path in names.items()})


def _members(archive: zipfile.ZipFile, limit: int) -> dict[str, zipfile.ZipInfo]:
    """The files of the zip by normalised path, each of them safe to unpack."""
    found: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        path = relative_path(info.orig_filename.rstrip("/\\") if _is_folder(info) else info.orig_filename)
        if info.filename != info.orig_filename:
            raise _refusal(f"gives {path!r:.120} a second name", "give each file one name")
        if FINDER[0] in PurePosixPath(path).parts or PurePosixPath(path).name == FINDER[1]:
            continue
        _demand_plain(info)
        if _is_folder(info):
            continue
        if path in found:
            raise _refusal(f"holds {path!r:.120} twice", "send each file once")
        found[path] = info
    if len(found) > MOST_FILES + 1:
        raise _refusal(f"holds {len(found)} files", f"put the data into {MOST_FILES} files or fewer")
    if sum(info.file_size for info in found.values()) > limit:
        raise BodyTooLarge(
            f"the files in the zip have more than {limit} bytes",
            fix="send a smaller model, or raise TILEWRIGHT_MAX_MODEL_BYTES",
            details={"limit_bytes": limit},
        )
    return found


def _is_folder(info: zipfile.ZipInfo) -> bool:
    """Also one of a zip that was made on Windows, with backslashes."""
    return info.orig_filename.endswith(("/", "\\"))


def _demand_plain(info: zipfile.ZipInfo) -> None:
    """Raises `BadRequest` unless the member is a file or folder, and packed so that its size can be believed."""
    name = f"{info.filename!r:.120}"
    mode = info.external_attr >> 16 if info.create_system == UNIX else 0
    if stat.S_IFMT(mode) and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise _refusal(f"holds {name}, which is a link or no file", "put the file itself into the zip")
    if _is_folder(info) and info.file_size:
        raise _refusal(f"holds {name}, a folder with bytes", "make the zip anew")
    if info.flag_bits & ENCRYPTED:
        raise _refusal(f"holds {name} encrypted", "send it without a password")
    if info.compress_type not in METHODS:
        raise _refusal(f"holds {name} packed by method {info.compress_type}", "store or deflate it: zip -0, or zip")
    if info.file_size > HIGHEST_RATIO * info.compress_size + RATIO_FROM:
        raise _refusal(f"holds {name} packed more than {HIGHEST_RATIO} to 1", "store it instead: zip -0")


def _chosen(members: dict[str, zipfile.ZipInfo], model: str | None) -> str:
    """The path of the ONNX file."""
    if model is not None:
        if (path := relative_path(model)) not in members:
            raise BadRequest(f"the zip holds no file {path!r:.120}", fix="let 'model' name a file of the zip")
        return path
    models = [path for path in members if path.lower().endswith(".onnx")]
    if len(models) != 1:
        there = ", ".join(sorted(models)[:5]) or "none"
        raise BadRequest(
            f"the zip holds not one ONNX file but {len(models)}: {there:.300}",
            fix="send one file *.onnx and its external data, or name the model: ?model=path/in/the/zip.onnx",
        )
    return models[0]


def _within(folder: PurePosixPath, name: str) -> str:
    try:
        return PurePosixPath(name).relative_to(folder).as_posix()
    except ValueError:
        raise BadRequest(
            f"the zip holds {name!r:.120} outside {str(folder)!r:.120}, the folder of its ONNX file",
            fix="put external data into the folder of the ONNX file or below it",
        ) from None


def _keep(blobs: Blobs, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> StoredBlob:
    with archive.open(info) as member, blobs.writer(info.file_size) as writer:
        while chunk := member.read(CHUNK):
            writer.write(chunk)
        if writer.size != info.file_size:
            raise EOFError(f"{info.filename!r:.120} is cut off")
        return writer.commit()


def _refusal(why: str, fix: str) -> BadRequest:
    return BadRequest(f"the zip {why}", fix=fix)
