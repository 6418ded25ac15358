"""How a body reaches the blob store: by blocks, in a thread, while the next block arrives."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest
from fastapi import Request

from service.errors import StorageUnavailable
from service.http.pools import Pool
from service.http.requests import upload

BODY = random.Random(11).randbytes(100_003)


class Body:
    """A request whose body comes in these chunks, and then, perhaps, breaks off."""

    def __init__(self, chunks: Sequence[bytes], broken: BaseException | None = None) -> None:
        self.chunks = chunks
        self.broken = broken

    async def stream(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk
            await asyncio.sleep(0)
        if self.broken is not None:
            raise self.broken


def pour(body: Body, write: Callable[[bytes], None]) -> None:
    asyncio.run(upload.pour(cast(Request, cast(Any, body)), write, Pool(1)))


def cut(size: int) -> list[bytes]:
    return [BODY[at : at + size] for at in range(0, len(BODY), size)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "GATHER_BYTES", 1000)


@pytest.mark.parametrize("size", [1000, 7, 999, 1001, 40_000, 200_000])
def test_the_body_arrives_whole_and_in_order(size: int) -> None:
    written: list[bytes] = []
    pour(Body(cut(size)), written.append)
    assert b"".join(written) == BODY
    assert len(written) <= len(BODY) // 1000 + 1


def test_an_empty_body_writes_nothing() -> None:
    written: list[bytes] = []
    pour(Body([b""]), written.append)
    assert written == []


def test_blocks_are_written_one_at_a_time() -> None:
    busy = threading.Lock()

    def write(_: bytes) -> None:
        assert busy.acquire(blocking=False)
        threading.Event().wait(0.001)
        busy.release()

    pour(Body(cut(500)), write)


@pytest.mark.parametrize("block", [0, 3, 99, 100])
def test_what_the_store_raises_ends_the_upload_as_it_was_raised(block: int) -> None:
    seen = 0

    def write(_: bytes) -> None:
        nonlocal seen
        seen += 1
        if seen == block + 1:
            raise StorageUnavailable("the disk is full")

    with pytest.raises(StorageUnavailable, match="full"):
        pour(Body(cut(1000)), write)
    assert seen == block + 1


def test_a_caller_who_leaves_is_reported_only_after_the_thread_has_ended() -> None:
    writing, done = threading.Event(), threading.Event()

    def write(_: bytes) -> None:
        writing.set()
        threading.Event().wait(0.05)
        done.set()

    with pytest.raises(ConnectionResetError):
        pour(Body(cut(1000)[:1], ConnectionResetError()), write)
    assert (writing.is_set(), done.is_set()) == (True, True)


@pytest.mark.parametrize("size", [1000, 10])
def test_a_request_that_is_cancelled_ends_only_after_its_thread_has(size: int) -> None:
    writing, done = threading.Event(), threading.Event()

    def write(_: bytes) -> None:
        writing.set()
        threading.Event().wait(0.05)
        done.set()

    async def cancel_while_writing() -> None:
        body = cast(Request, cast(Any, Body([BODY[:size]])))
        task = asyncio.create_task(upload.pour(body, write, Pool(1)))
        while not writing.is_set():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done.is_set()

    asyncio.run(cancel_while_writing())
