"""Requests to an app without a server or a client between, so that a test sees what the app reads of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.types import Message

CHUNK = 1 << 16


@dataclass
class Answer:
    """What came back, and how many bytes and messages of the body the app took."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    read: int
    asked: int

    @property
    def problem(self) -> dict[str, Any]:
        """The problem document that the answer is; a HEAD's has no body."""
        assert self.headers["content-type"] == "application/problem+json", self
        found: dict[str, Any] = json.loads(self.body)
        assert found["status"] == self.status
        return found


def ask(app: Any, method: str, url: str, headers: Mapping[str, str], body: Iterable[bytes] = ()) -> Answer:
    """One request, whose body comes in these chunks."""
    return asyncio.run(_ask(app, method, url, headers, iter(body)))


async def _ask(app: Any, method: str, url: str, headers: Mapping[str, str], body: Iterator[bytes]) -> Answer:
    sent: list[Message] = []
    answer = Answer(0, {}, b"", 0, 0)

    async def receive() -> Message:
        answer.asked += 1
        await asyncio.sleep(0)
        chunk = next(body, None)
        answer.read += len(chunk or b"")
        return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}

    async def send(message: Message) -> None:
        sent.append(message)

    parts = urlsplit(url)
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": raw,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    await app(scope, receive, send)
    start = next(message for message in sent if message["type"] == "http.response.start")
    answer.status = start["status"]
    answer.headers = {name.decode(): value.decode() for name, value in start["headers"]}
    answer.body = b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body")
    return answer


def endless(most: int = 1 << 30) -> Iterator[bytes]:
    """A body that does not end before `most` bytes."""
    for _ in range(most // CHUNK):
        yield bytes(CHUNK)
