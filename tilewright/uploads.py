"""Send a model: not at all when the server has it, in one request when small, else in pieces.

Pieces outlive a broken connection, and the process that sent them: which upload of a model was begun is noted in the
user's state folder (`XDG_STATE_HOME`), and the next process goes on with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tilewright.download import Progress, alone
from tilewright.errors import RequestRefused, ServerUnreachable
from tilewright.http import BUSY, Content, Http
from tilewright.package import Package
from tilewright.wire import StoredModel

RESUMABLE_FROM = 64 << 20
"""Bytes from which on a model is sent in pieces."""
PIECE = 16 << 20
PATIENCE = httpx.Timeout(600.0, connect=10.0)
"""For the answer to a piece: the last one is answered when the server has put the whole together."""
FRUITLESS = 8
"""Attempts in a row that brought nothing to the server, after which it counts as gone."""


def upload(http: Http, package: Package, progress: Progress) -> StoredModel:
    """The model as the server has it. Raises what `Http` raises, and `UsageError` when a file changed meanwhile."""
    path = f"/models/{package.digest}"
    if http.exists(path):
        progress(package.size, package.size)
        return StoredModel.from_json(http.json("GET", path))
    if package.size <= RESUMABLE_FROM:
        return StoredModel.from_json(_whole(http, package, progress))
    with alone(str(_note(http, package))):
        if http.exists(path):
            progress(package.size, package.size)
            return StoredModel.from_json(http.json("GET", path))
        return StoredModel.from_json(_pieces(http, package, progress))


def _whole(http: Http, package: Package, progress: Progress) -> dict[str, Any]:
    headers = {"Content-Type": package.media_type, "Content-Length": str(package.size)}
    body = _reported(package, 0, package.size, progress)
    # Sent twice it is kept once: its digest is its name.
    return http.json("POST", "/models", params={"sha256": package.sha256}, headers=headers, content=body, repeat=True)


def _pieces(http: Http, package: Package, progress: Progress) -> dict[str, Any]:
    """Each piece goes where the server says that the last ended; so nothing is sent twice but the piece that broke."""
    path, offset = _begun(http, package)
    failures = 0
    while True:
        try:
            answer = _piece(http, package, path, offset, progress)
            before, offset = offset, int(answer["received"])
            if model := answer.get("model"):
                _note(http, package).unlink(missing_ok=True)
                return dict(model)
            if before < offset < package.size:
                failures = 0
                continue
            reason = "the upload does not end"
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
        except RequestRefused as error:
            if error.status not in BUSY | {409}:
                raise
            reason = error.message
        failures += 1
        if failures >= FRUITLESS:
            raise ServerUnreachable(f"the upload broke off: {reason}", fix="run it again when the server is back")
        # Time for the server to notice, too: it keeps what arrived of a piece that broke.
        http.pause(failures)
        there = _offset(http, path)
        if there is None:
            _note(http, package).unlink(missing_ok=True)
            return http.json("GET", f"/models/{package.digest}")
        failures, offset = (0 if there > offset else failures), there


def _begun(http: Http, package: Package) -> tuple[str, int]:
    """An upload's path, and how much of the model it has: one that an earlier process began, or a new one."""
    note = _note(http, package)
    with contextlib.suppress(OSError, ValueError):
        path = f"/uploads/{uuid.UUID(note.read_text())}"
        if (there := _offset(http, path)) is not None and there < package.size:
            return path, there
    wanted = {"bytes": package.size, "media_type": package.media_type, "sha256": package.sha256}
    begun = http.json("POST", "/uploads", json=wanted, repeat=True)
    with contextlib.suppress(OSError):  # nothing to go on with after a restart, then
        note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        note.write_text(str(begun["id"]))
    return f"/uploads/{begun['id']}", int(begun.get("received", 0))


def _note(http: Http, package: Package) -> Path:
    """Where it is kept which upload of this model to this server was begun; its name tells neither."""
    home = os.environ.get("XDG_STATE_HOME", "")
    root = Path(home) if os.path.isabs(home) else Path.home() / ".local" / "state"
    what = f"{http.url}\n{package.sha256}\n{package.media_type}\n{package.size}"
    return root / "tilewright" / "uploads" / hashlib.sha256(what.encode()).hexdigest()


def _piece(http: Http, package: Package, path: str, offset: int, progress: Progress) -> dict[str, Any]:
    """The answer to one piece; broken connections are the caller's business."""
    size = min(PIECE, package.size - offset)
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(size),
        "Upload-Offset": str(offset),
    }
    body = _reported(package, offset, size, progress)()
    response = http.client.patch(path, headers=headers, content=body, timeout=PATIENCE)
    http.check(response)
    return http.parsed(response)


def _offset(http: Http, path: str) -> int | None:
    """How many bytes the server has; None when the upload is gone, as it is once it became a model."""
    try:
        return int(http.request("HEAD", path).headers.get("Upload-Offset", 0))
    except RequestRefused as error:
        if error.status == 404:
            return None
        raise


def _reported(package: Package, offset: int, size: int, progress: Progress) -> Content:
    """The bytes, each attempt from `offset` on; progress is reported as they leave."""

    def read() -> Iterator[bytes]:
        here = offset
        progress(here, package.size)
        for piece in package.read(offset, size):
            yield piece
            here += len(piece)
            progress(here, package.size)

    return read
