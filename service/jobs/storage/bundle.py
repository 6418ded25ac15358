"""A model as it arrives: one ONNX file, and external data by the paths that the model names them with."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType

from service.blobs.store import StoredBlob
from service.errors import BadRequest

MOST_FILES = 1000
LONGEST_PATH = 500
"""Bytes in UTF-8."""
LONGEST_NAME = 255
"""Bytes of one name in a path, as file systems allow."""

NO_DATA: Mapping[str, StoredBlob] = MappingProxyType({})
FIX = "name external data by its path relative to the ONNX file, with '/' between names"


@dataclass(frozen=True)
class Bundle:
    """Files in the blob store that together are a model; `data` by relative path."""

    model: StoredBlob
    data: Mapping[str, StoredBlob] = field(default_factory=lambda: NO_DATA)


def relative_path(text: str) -> str:
    """The path without `.` and doubled slashes; backslashes, which Windows has between names, are slashes.

    Raises `BadRequest` for one that is absolute, leads upwards, has a drive letter, a control character or half a
    surrogate pair, or is too long.
    """
    text = text.replace("\\", "/")
    if (why := _objection(text)) is not None:
        raise BadRequest(f"path {text[:100]!r} of external data {why}", fix=FIX)
    return PurePosixPath(text).as_posix()


def demand_distinct(paths: Iterable[str]) -> None:
    """Raises `BadRequest` unless files with these paths can lie beside each other in one folder."""
    seen: set[str] = set()
    for path in paths:
        if path in seen:
            raise BadRequest(
                f"external data {path!r:.120} was sent twice",
                fix="send each file once, and files of one name with their folders: "
                "-F 'data=@a/w.bin;filename=a/w.bin'",
            )
        seen.add(path)
    if len(seen) > MOST_FILES:
        raise BadRequest(f"{len(seen)} files of external data", fix=f"put the data into {MOST_FILES} files or fewer")
    for path in seen:
        for folder in PurePosixPath(path).parents:
            if str(folder) in seen:
                raise BadRequest(
                    f"external data {str(folder)!r:.120} is a file and the folder of another", fix="rename one of them"
                )


def _objection(text: str) -> str | None:
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return "has half a surrogate pair"
    parts = PurePosixPath(text).parts
    if any(unicodedata.category(char) == "Cc" for char in text):
        return "has a control character"
    if text.startswith("/") or re.match(r"[A-Za-z]:", text):
        return "is absolute"
    if ".." in parts:
        return "leads upwards"
    if not parts or text.endswith("/"):
        return "names no file"
    if len(raw) > LONGEST_PATH or any(len(part.encode()) > LONGEST_NAME for part in parts):
        return f"is longer than {LONGEST_PATH} bytes, or has a name longer than {LONGEST_NAME}"
    return None
