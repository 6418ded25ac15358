"""The client for asyncio, and the plain one from several threads, against the fake server and a slow one."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx
import pytest

from tests.tilewright.fake_server import ARTIFACT, JOB, FakeServer
from tests.tilewright.messages import message
from tilewright import AsyncClient, Client
from tilewright.errors import RequestRefused, ServerUnreachable

Made = TypeVar("Made")


class Behind(httpx.AsyncBaseTransport):
    """The fake server on a loop, its bodies in pieces of a few bytes."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        answer = self.server.answer(request)
        whole = b"".join(cast(httpx.SyncByteStream, answer.stream))

        async def pieces() -> AsyncIterator[bytes]:
            for begin in range(0, len(whole), 1000):
                yield whole[begin : begin + 1000]

        return httpx.Response(answer.status_code, headers=answer.headers, content=pieces())


def used(server: FakeServer | httpx.AsyncBaseTransport, work: Callable[[AsyncClient], Awaitable[Made]]) -> Made:
    """What `work` gives with a client of the server."""
    transport = Behind(server) if isinstance(server, FakeServer) else server

    async def run() -> Made:
        async with AsyncClient("http://server.test", "twk_key", transport=transport, pause_s=0.0) as client:
            return await work(client)

    return asyncio.run(run())


def test_every_method_of_the_client_is_there_with_its_arguments() -> None:
    names = [name for name in dir(Client) if not name.startswith("_")]
    assert len(names) > 60
    for name in names:
        plain, there = getattr(Client, name), getattr(AsyncClient, name)
        if name != "close":
            assert inspect.signature(there) == inspect.signature(plain), name
        gives = "Iterator" in str(inspect.signature(plain).return_annotation)
        assert inspect.isasyncgenfunction(there) if gives else inspect.iscoroutinefunction(there), name


def test_a_model_is_compiled_followed_and_downloaded(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(message(b"onnx" * 1000))

    async def work(client: AsyncClient) -> tuple[Any, list[str], Path]:
        job = await client.compile(tmp_path / "m.onnx", {"threads": 2})
        seen = [event.kind async for event in client.events(job)]
        ended = (await client.wait(job)).require_success()
        return ended, seen, await client.download(ended, tmp_path / "m.tw")

    ended, seen, path = used(server, work)
    assert (ended.id, ended.artifact_id) == (JOB, ARTIFACT)
    assert seen == ["state", "phase", "notice", "state"]
    assert (
        path.read_bytes()
        == Client("http://server.test", transport=server.transport())
        .download(ARTIFACT, tmp_path / "same.tw")
        .read_bytes()
    )
    (sent,) = server.sent("/models")
    assert sent.content == message(b"onnx" * 1000)
    assert {request.headers["authorization"] for request in server.seen[:-1]} == {"Bearer twk_key"}


class Scripted(httpx.AsyncBaseTransport):
    """Gives each answer in turn, an exception as one; `hangs` waits until it is cancelled."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked, self.cancelled = [*answers], 0, False
        self.is_asked = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        self.is_asked.set()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer == "hangs":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        assert isinstance(answer, httpx.Response)
        return answer


def test_what_is_safe_is_repeated_and_what_is_refused_is_an_error() -> None:
    busy = httpx.Response(503, json={"code": "busy", "detail": "later"})
    broken = httpx.ConnectError("refused")
    transport = Scripted(broken, busy, httpx.Response(200, json={"version": "9"}))
    assert used(transport, lambda client: client.version()) == {"version": "9"}
    assert transport.asked == 3
    refused = Scripted(httpx.Response(404, json={"code": "not_found", "detail": "no such job"}))
    with pytest.raises(RequestRefused, match="no such job"):
        used(refused, lambda client: client.job(JOB))
    gone = Scripted(*[broken] * 5)
    with pytest.raises(ServerUnreachable):
        used(gone, lambda client: client.targets())
    assert gone.asked == 5


def test_cancelling_a_task_ends_its_request_and_others_go_on() -> None:
    transport = Scripted("hangs", httpx.Response(200, json={"version": "9"}))

    async def work(client: AsyncClient) -> dict[str, Any]:
        task = asyncio.create_task(client.version())
        await transport.is_asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await client.version()

    assert used(transport, work) == {"version": "9"}
    assert transport.cancelled
    assert transport.asked == 2


def test_an_iterator_that_is_left_asks_for_no_further_page() -> None:
    page = {"models": [{"digest": "a" * 64, "bytes": 1, "created_at": "2026-01-01T00:00:00Z"}], "next_cursor": "c"}
    transport = Scripted(httpx.Response(200, json=page), httpx.Response(200, json={**page, "next_cursor": None}))

    async def work(client: AsyncClient) -> list[str]:
        async def first(found: AsyncIterator[Any]) -> str:
            return str((await anext(found)).digest)

        found = client.models()
        got = [await first(found)]
        await found.aclose()  # type: ignore[attr-defined]
        return got

    assert used(transport, work) == ["a" * 64]
    assert transport.asked == 1


def test_one_client_serves_many_tasks_at_once() -> None:
    """All requests are there before any is answered."""
    together = 12

    class Barrier(httpx.AsyncBaseTransport):
        def __init__(self) -> None:
            self.here, self.all = 0, asyncio.Event()

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            self.here += 1
            if self.here == together:
                self.all.set()
            await self.all.wait()
            return httpx.Response(200, json={"version": request.url.path})

    async def work(client: AsyncClient) -> list[dict[str, Any]]:
        return await asyncio.gather(*(client.version() for _ in range(together)))

    assert used(Barrier(), work) == [{"version": "/version"}] * together


def test_the_plain_client_may_be_used_by_several_threads(server: FakeServer, tmp_path: Path) -> None:
    """Together they compile, follow, and download one artifact to one file."""
    threads, start = 8, threading.Barrier(8)
    (tmp_path / "m.onnx").write_bytes(message(b"onnx" * 1000))

    def work(client: Client, place: int) -> tuple[str, list[str], bytes]:
        start.wait()
        job = client.compile(tmp_path / "m.onnx", {"threads": place + 1})
        kinds = [event.kind for event in client.events(job)]
        return job.id, kinds, client.download(job, tmp_path / "m.tw").read_bytes()

    with (
        Client("http://server.test", "twk_key", transport=server.transport(), pause_s=0.0) as client,
        ThreadPoolExecutor(threads) as pool,
    ):
        found = [one.result() for one in [pool.submit(work, client, place) for place in range(threads)]]
    assert {one[0] for one in found} == {JOB}
    assert {tuple(one[1]) for one in found} == {("state", "phase", "notice", "state")}
    assert len({one[2] for one in found}) == 1
    assert len(server.sent("/compile")) == threads
    assert list(tmp_path.glob(".*")) == []
