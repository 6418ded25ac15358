from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tilewright.client import Client

JOB = "019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11"
ARTIFACT = "019aa1f0-7c2e-7a4b-9d0e-5b2a4c7e9f02"


class Stream(httpx.SyncByteStream):
    """A body that breaks off after `cut` bytes, if that is given."""

    def __init__(self, body: bytes, cut: int | None = None, piece: int = 1000) -> None:
        self.body, self.cut, self.piece = body, cut, piece

    def __iter__(self) -> Iterator[bytes]:
        whole = self.body if self.cut is None else self.body[: self.cut]
        for start in range(0, len(whole), self.piece):
            yield whole[start : start + self.piece]
        if self.cut is not None:
            raise httpx.ReadError("the connection broke")


@dataclass
class FakeServer:
    """Answers as the API does, as far as the client looks; every request is noted."""

    events: list[tuple[str, dict[str, Any]]] = field(
        default_factory=lambda: [
            ("state", {"state": "LEASED"}),
            ("phase", {"phase": "load", "fraction": 0.1, "message": ""}),
            ("notice", {"phase": "tile", "fraction": 0.5, "message": "mind [this]"}),
            ("state", {"state": "SUCCEEDED"}),
        ]
    )
    state: str = "QUEUED"
    problem: dict[str, Any] | None = None
    artifact: bytes = bytes(range(256)) * 40
    etag: str = ""
    cuts: list[int | None] = field(default_factory=list)
    """Where the bodies of the next answers break off, one for each."""
    refusals: list[int] = field(default_factory=list)
    """Connections to refuse before the next answers: counts of requests."""
    seen: list[httpx.Request] = field(default_factory=list)
    pages: dict[str, Any] = field(default_factory=dict)

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.answer)

    def job(self) -> dict[str, Any]:
        return {
            "id": JOB,
            "state": self.state,
            "artifact_id": ARTIFACT,
            "phase": None,
            "fraction": 0.0,
            "problem": self.problem,
            "created_at": "2026-11-21T04:00:00Z",
        }

    def answer(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.seen.append(request)
        if self.refusals and self.refusals.pop():
            raise httpx.ConnectError("refused")
        match request.method, request.url.path.split("/")[1:]:
            case "POST", ["compile"]:
                return httpx.Response(202, json=self.job())
            case "GET", ["jobs", _, "events"]:
                return self._events(int(request.headers.get("last-event-id", 0)))
            case "GET" | "DELETE", ["jobs", _]:
                return httpx.Response(200, json=self.job())
            case "GET", ["jobs"]:
                return httpx.Response(200, json={"jobs": [self.job()], "next_cursor": None})
            case "GET", ["tuning-records"]:
                return httpx.Response(200, json=self.pages[request.url.params.get("cursor", "")])
            case "GET", ["artifacts", _]:
                return self._artifact(request)
        return httpx.Response(404, json={"code": "no_such_route", "detail": "nothing here", "fix": "look elsewhere"})

    def _events(self, after: int) -> httpx.Response:
        text = ": hello\n\n" + "".join(
            f"event: {kind}\ndata: {json.dumps(data)}\nid: {seq}\n\n"
            for seq, (kind, data) in enumerate(self.events, 1)
            if seq > after
        )
        cut = self.cuts.pop(0) if self.cuts else None
        if cut is None and self.events[-1][1].get("state"):
            self.state = self.events[-1][1]["state"]
        return httpx.Response(200, stream=Stream(text.encode(), cut, piece=7))

    def _artifact(self, request: httpx.Request) -> httpx.Response:
        etag = self.etag or f'"{hashlib.sha256(self.artifact).hexdigest()}"'
        start, status, headers = 0, 200, {"etag": etag}
        if wanted := request.headers.get("range"):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(self.artifact):
                return httpx.Response(416)
            status = 206
            headers["content-range"] = f"bytes {start}-{len(self.artifact) - 1}/{len(self.artifact)}"
        headers["content-length"] = str(len(self.artifact) - start)
        cut = self.cuts.pop(0) if self.cuts else None
        return httpx.Response(status, headers=headers, stream=Stream(self.artifact[start:], cut))


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client("http://server.test", "twk_key", transport=server.transport(), pause_s=0.0) as client:
        yield client


@pytest.fixture
def command(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command line against the fake server."""
    from typer.testing import CliRunner

    from tilewright.cli import app, output

    monkeypatch.setattr(
        output,
        "Client",
        lambda url, key: Client(url or "http://server.test", key, transport=server.transport(), pause_s=0.0),
    )
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])
