"""Fetch to a file: there whole or not at all; an artifact is resumed where it broke and checked against its SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from tilewright.errors import BrokenDownload, RequestRefused, ServerUnreachable
from tilewright.files import new_part, part_of, unwritable
from tilewright.http import BUSY, Http

CHUNK = 1 << 20
ATTEMPTS = 6
_ETAG = re.compile(r'"([0-9a-f]{64})"')
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/\d+")

Progress = Callable[[int, int], None]
"""Called with the bytes that are here and the bytes in all (0: unknown)."""


def unheard(here: int, whole: int) -> None:
    """The progress that nobody watches."""


def download(http: Http, url: str, name: str, target: Path, progress: Progress = unheard) -> Path:
    """GET `url` into `target`; what a broken attempt left beside it under `name` is continued, today or tomorrow.

    Raises `BrokenDownload` when the bytes are not those of the announced SHA-256, `ServerUnreachable` after several
    attempts that brought nothing, `UsageError` when `target` cannot be written.
    """
    part = part_of(target, name)
    try:
        with alone(str(part.absolute())):
            return _download(http, url, part, target, progress)
    except OSError as error:
        raise unwritable(target, error) from error


def save(http: Http, url: str, target: Path, params: Mapping[str, Any], progress: Progress = unheard) -> Path:
    """GET what is made anew for each request, and cannot be resumed, into `target`. Raises as `download` does."""
    part = new_part(target)
    try:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                digest = _attempt(http, url, part, progress, params)
                break
            except (httpx.TransportError, RequestRefused) as error:
                if not _passes(error):
                    raise
                if attempt == ATTEMPTS:
                    raise ServerUnreachable(f"the download broke off: {error}", fix="run it again") from error
                part.unlink(missing_ok=True)
                http.pause(attempt)
        if digest:
            _verify(part, digest)
        os.replace(part, target)
    except OSError as error:
        raise unwritable(target, error) from error
    finally:
        part.unlink(missing_ok=True)
    return target


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Of all threads of this process one at a time is at work on `what`: a part that is continued, an upload's note."""
    with _LOCK:
        mine = _AT_WORK.setdefault(what, threading.Lock())
        _WAITING[what] = _WAITING.get(what, 0) + 1
    try:
        with mine:
            yield
    finally:
        with _LOCK:
            _WAITING[what] -= 1
            if not _WAITING[what]:
                del _WAITING[what], _AT_WORK[what]


_LOCK = threading.Lock()
_AT_WORK: dict[str, threading.Lock] = {}
_WAITING: dict[str, int] = {}


def _download(http: Http, url: str, part: Path, target: Path, progress: Progress) -> Path:
    failures = 0
    while True:
        before = _size(part)
        try:
            digest = _attempt(http, url, part, progress, {})
            break
        except (httpx.TransportError, RequestRefused) as error:
            if not _passes(error):
                raise
            failures = failures + 1 if _size(part) == before else 0
            if failures >= ATTEMPTS:
                raise ServerUnreachable(
                    f"the download broke off: {error}", fix="run it again: it goes on from there"
                ) from error
            http.pause(failures + 1)
    if not digest:
        raise BrokenDownload(
            "the server announced no SHA-256 for the file", fix="check that TILEWRIGHT_URL is Tilewright's"
        )
    _verify(part, digest)
    os.replace(part, target)
    return target


def _passes(error: httpx.TransportError | RequestRefused) -> bool:
    """Whether another attempt may end otherwise: the connection broke, or the server says that it is busy."""
    return not isinstance(error, RequestRefused) or error.status in BUSY


def _verify(part: Path, digest: str) -> None:
    if (found := _sha256(part)) != digest:
        part.unlink()
        raise BrokenDownload(f"the file has SHA-256 {found}, the server announced {digest}", fix="download it again")


def _attempt(http: Http, url: str, part: Path, progress: Progress, params: Mapping[str, Any]) -> str:
    """One request; the announced SHA-256, empty when there is none."""
    here = _size(part)
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={here}-"} if here else {})}
    with http.client.stream("GET", url, headers=headers, params=params) as response:
        if response.status_code == 416:
            # The part is whole already, or of something else: the checksum decides.
            with http.client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as head:
                http.check(head)
                return _digest(head)
        http.check(response)
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
