"""Connections on an event loop for code that waits for them in a thread.

What the client does with requests (repeating, resuming, checking) is written once, as plain code. `AsyncClient` runs it
in threads; what it sends goes through `LoopTransport` to an `httpx.AsyncClient`'s transport on the caller's loop, so
that connections belong to the loop, and ending a task ends its request at once.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar, cast

import httpx

Made = TypeVar("Made")
_DONE = object()


class Cancelled(BaseException):
    """In a thread: the task that waits for it was cancelled. No code of the client catches it."""


class Call:
    """What one awaited call of a client has in flight. Its task may end it from the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._flying: concurrent.futures.Future[Any] | None = None

    def wait_for(self, coroutine: Coroutine[Any, Any, Made]) -> Made:
        """In the thread: what the coroutine gives, run on the loop. Raises Cancelled."""
        with self._lock:
            if self._ended.is_set():
                coroutine.close()
                raise Cancelled
            self._flying = flying = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return flying.result()
        except concurrent.futures.CancelledError:
            raise Cancelled from None
        finally:
            self._flying = None

    def sleep(self, seconds: float) -> None:
        """In the thread: a pause that the end of the call ends. Raises Cancelled."""
        if self._ended.wait(seconds):
            raise Cancelled

    def end(self) -> None:
        """From the loop: what is in flight is cancelled, and nothing more is sent."""
        with self._lock:
            self._ended.set()
            if self._flying is not None:
                self._flying.cancel()


CALL: ContextVar[Call] = ContextVar("CALL")


def pause(seconds: float) -> None:
    """The pause between two attempts: of an awaited call one that cancelling ends, else `time.sleep`."""
    call = CALL.get(None)
    if call is None:
        time.sleep(seconds)
    else:
        call.sleep(seconds)


class LoopTransport(httpx.BaseTransport):
    """A transport for plain code in threads, which must run under a `Call`; requests go over `inner`, on its loop."""

    def __init__(self, inner: httpx.AsyncClient) -> None:
        self.inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it on the loop; the body of the answer is read there piece by piece."""
        call, content = CALL.get(), request.stream
        stream = content if isinstance(content, httpx.AsyncByteStream) else _Sent(content)
        forwarded = httpx.Request(
            request.method, request.url, headers=request.headers, stream=stream, extensions=request.extensions
        )
        response = call.wait_for(self.inner.send(forwarded, stream=True))
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_Received(call, response),
            extensions=response.extensions,
        )


class _Sent(httpx.AsyncByteStream):
    """A body of plain code for the loop; its pieces may come from files, so each is read in a thread."""

    def __init__(self, inner: httpx.SyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = iter(self._inner)
        while (piece := await asyncio.to_thread(next, pieces, _DONE)) is not _DONE:
            yield cast(bytes, piece)


class _Received(httpx.SyncByteStream):
    """The body of an answer on the loop for plain code."""

    def __init__(self, call: Call, response: httpx.Response) -> None:
        self._call, self._response = call, response

    def __iter__(self) -> Iterator[bytes]:
        # Not by `aiter_raw`, which refuses what a transport has read already.
        pieces = aiter(cast(httpx.AsyncByteStream, self._response.stream))
        while (piece := self._call.wait_for(_next(pieces))) is not None:
            yield piece

    def close(self) -> None:
        """Give the connection back, or break it where it was not read whole; after a cancellation on the loop alone."""
        try:
            self._call.wait_for(self._response.aclose())
        except Cancelled:
            asyncio.run_coroutine_threadsafe(self._response.aclose(), self._call.loop)


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


async def awaited(pool: concurrent.futures.Executor, work: Callable[[], Made], *, keep: Call | None = None) -> Made:
    """What `work` gives in a thread of the pool; cancelling the task ends its requests.

    keep  the call of which this is a part, such as one step of an iterator
    """
    loop = asyncio.get_running_loop()
    call = keep or Call(loop)
    context = copy_context()
    context.run(CALL.set, call)
    try:
        return await loop.run_in_executor(pool, lambda: context.run(work))
    except asyncio.CancelledError:
        call.end()
        raise
