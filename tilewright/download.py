"""Fetch one artifact to a file: resumed where it broke, checked against its SHA-256, there whole or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tilewright.errors import BrokenDownload, ServerUnreachable

CHUNK = 1 << 20
ATTEMPTS = 6
_ETAG = re.compile(r'"([0-9a-f]{64})"')
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/\d+")

Progress = Callable[[int, int], None]
"""Called with the bytes that are here and the bytes in all (0: unknown)."""


def download(
    http: httpx.Client,
    url: str,
    name: str,
    target: Path,
    *,
    check: Callable[[httpx.Response], None],
    progress: Progress = lambda here, whole: None,
    pause_s: float = 0.5,
) -> Path:
    """GET `url` into `target`; what a broken attempt left beside it under `name` is continued, today or tomorrow.

    check  raises for an answer that is an error

    Raises `BrokenDownload` when the bytes are not those of the announced SHA-256, `ServerUnreachable` after several
    attempts that brought nothing.
    """
    part = target.with_name(f".{target.name}.{name}.part")
    failures = 0
    while True:
        before = _size(part)
        try:
            digest = _attempt(http, url, part, check, progress)
            break
        except httpx.TransportError as error:
            failures = failures + 1 if _size(part) == before else 0
            if failures >= ATTEMPTS:
                raise ServerUnreachable(
                    f"the download broke off: {error}", fix="run it again: it goes on from there"
                ) from error
            time.sleep(pause_s * 2**failures)
    if digest and (found := _sha256(part)) != digest:
        part.unlink()
        raise BrokenDownload(f"the file has SHA-256 {found}, the server announced {digest}", fix="download it again")
    if not digest:
        raise BrokenDownload(
            "the server announced no SHA-256 for the file", fix="check that TILEWRIGHT_URL is Tilewright's"
        )
    os.replace(part, target)
    return target


def _attempt(
    http: httpx.Client, url: str, part: Path, check: Callable[[httpx.Response], None], progress: Progress
) -> str:
    """One request; the announced SHA-256, empty when there is none."""
    here = _size(part)
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={here}-"} if here else {})}
    with http.stream("GET", url, headers=headers) as response:
        if response.status_code == 416:
            # The part is whole already, or of something else: the checksum will tell.
            with http.stream("GET", url, headers={"Accept-Encoding": "identity"}) as head:
                check(head)
                return _digest(head)
        check(response)
        resumed = _CONTENT_RANGE.match(response.headers.get("content-range", ""))
        if response.status_code != 206 or resumed is None or int(resumed[1]) != here:
            here = 0
        whole = here + int(response.headers.get("content-length", 0))
        with part.open("ab" if here else "wb") as file:
            progress(here, whole)
            for chunk in response.iter_bytes():
                file.write(chunk)
                here += len(chunk)
                progress(here, whole)
            file.flush()
            os.fsync(file.fileno())
        return _digest(response)


def _digest(response: httpx.Response) -> str:
    found = _ETAG.fullmatch(response.headers.get("etag", ""))
    return found[1] if found else ""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
