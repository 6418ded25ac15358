"""Connections of one API process: how many, and how long one may hold its place without sending or reading anything.

uvicorn limits how long a connection idles between two requests, and nothing else. `Connection` is its protocol with a
limit for each state that a peer could stay in for ever, and `Connections` looks at all of them once in a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.config import Settings
from service.logs import logger

LOOK_EVERY_S = 0.5
MOST_HEAD_BYTES = 64 << 10
LEAST_BODY_BYTES = 16 << 10
"""Of a body that must arrive within `stalled_s`, or its end."""
LINGER_S, LINGER_IDLE_S = 30.0, 5.0
"""How long what is still sent of a body is thrown away after the answer, so that the peer can read the answer; and how
long nothing of it may come."""
DISCARDED_BYTES_PER_S = 64 << 20
"""Of all that is thrown away together: senders on this machine could keep the event loop at it and at nothing else."""
HANG_UPS_AT_ONCE = 50
"""A thousand peers that went silent together are not all hung up on before the next request is served."""
BODY_HEADERS = (b"content-length", b"transfer-encoding")
CLOSES, END_OF_HEAD = b"\r\nconnection: close", b"\r\n\r\n"
OF_APP_STATE = "connections"
"""Under which the app's lifespan hands `Connections` to the protocol."""

log = logger(__name__)


class Stage(Enum):
    """What a connection waits for."""

    HEAD = auto()  # of a request, its first or one that has begun to arrive
    BODY = auto()
    ANSWER = auto()
    BETWEEN = auto()  # two requests: uvicorn's own limit holds
    LINGERING = auto()


class Connections:
    """The open connections; to be used inside one event loop."""

    def __init__(self, settings: Settings, descriptors: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.head_s = settings.head_s
        self.stalled_s = settings.stalled_s
        self.most = max(8, min(settings.max_connections, descriptors))
        self.most_per_address = min(settings.max_connections_per_address, self.most)
        self.clock = clock
        self._open: OrderedDict[Connection, None] = OrderedDict()
        self._idle: OrderedDict[Connection, None] = OrderedDict()
        self._of_address: Counter[str] = Counter()
        self._refused = 0
        self._lingering = 0

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        """Count a new connection; over a limit the one that is idle longest makes room. False: there is no room."""
        here = self._of_address[connection.address] >= self.most_per_address
        if here or len(self._open) >= self.most:
            among = (one for one in self._idle if not here or one.address == connection.address)
            oldest = next(among, None)
            if oldest is None:
                self._refused += 1
                return False
            oldest.hang_up()
            self.forget(oldest)
        self._open[connection] = None
        self._of_address[connection.address] += 1
        return True

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        if connection not in self._open:
            return
        del self._open[connection]
        self._idle.pop(connection, None)
        self._of_address[connection.address] -= 1
        if not self._of_address[connection.address]:
            del self._of_address[connection.address]

    def idles(self, connection: Connection, idle: bool) -> None:
        """Whether no request of a connection is under way, from now on."""
        self._idle.pop(connection, None)
        if idle and connection in self._open:
            self._idle[connection] = None

    def lingers(self, more: int) -> None:
        """So many more connections than before linger."""
        self._lingering += more

    def pause_s(self, discarded: int) -> float:
        """Seconds until a lingering connection that just threw away so many bytes may read on."""
        return discarded * self._lingering / DISCARDED_BYTES_PER_S

    def look(self) -> bool:
        """Close connections whose time is over; True: `HANG_UPS_AT_ONCE` of them, and there may be more."""
        now, hung_up = self.clock(), 0
        for connection in list(self._open):
            hung_up += connection.look(now)
            if hung_up == HANG_UPS_AT_ONCE:
                return True
        if self._refused:
            log.warning("connections were refused", refused=self._refused, open=len(self._open), limit=self.most)
            self._refused = 0
        return False

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look again and again inside the `with` block."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            while self.look():
                await asyncio.sleep(0)


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with limits on the time of each stage and on the size of a head."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.of: Connections = self.app_state[OF_APP_STATE]
        self.address = ""
        self.stage = Stage.HEAD
        self._since = self._last = self.of.clock()
        self._bytes = 0
        self._stuck: tuple[float, int] | None = None

    # What the event loop calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or hang up when there is no room."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if not self.of.admit(self):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        self._enter(Stage.HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self.of.forget(self)
        if self.stage is Stage.LINGERING:
            self.of.lingers(-1)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes in, no more of a head than `MOST_HEAD_BYTES`."""
        if self.stage is Stage.LINGERING:
            self._last = self.of.clock()
            self.transport.pause_reading()
            self.loop.call_later(self.of.pause_s(len(data)), self._read_on)
            return
        if self.stage is Stage.BETWEEN:
            self._enter(Stage.HEAD)
        self._bytes += len(data)
        super().data_received(data)
        if self.stage is Stage.HEAD and self._bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def pause_writing(self) -> None:
        """The peer reads more slowly than we write."""
        self._stuck = (self.of.clock(), self.transport.get_write_buffer_size())
        super().pause_writing()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._stuck = None
        super().resume_writing()

    # What the parser and the app's answers call

    def on_headers_complete(self) -> None:
        """The head is whole; what follows is the body."""
        self._enter(Stage.BODY)
        super().on_headers_complete()
        if any(name in BODY_HEADERS for name, _ in self.headers):
            self.cycle.transport = _Outlet(self)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        """The body is whole."""
        super().on_message_complete()
        if self.stage is Stage.BODY:
            self._enter(Stage.ANSWER)

    def on_response_complete(self) -> None:
        """The answer is whole. What is left of the body is not worth reading: the connection ends."""
        newest = self.cycle.response_complete  # else this was the answer to one of several that were sent at once
        super().on_response_complete()
        if newest and self.stage is Stage.BODY:
            self.end()
        elif newest and self.stage is not Stage.LINGERING:
            self._enter(Stage.BETWEEN)

    def end(self) -> None:
        """Hang up after an answer. Our side ends first where the body still comes.

        What comes is thrown away for a moment: closing at once would have the peer's system throw away the answer.
        """
        if self.stage is not Stage.BODY:
            self.transport.close()
        elif not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self._enter(Stage.LINGERING)
            with contextlib.suppress(OSError, RuntimeError):
                self.transport.write_eof()

    # What `Connections` calls

    def look(self, now: float) -> bool:
        """Hang up if the time of the present stage is over; whether it was."""
        if self.transport.is_closing():
            return False
        took = now - self._since
        if self._stuck is not None:
            self._look_at_reader(now, *self._stuck)
        elif self.stage is Stage.HEAD and took > self.of.head_s:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        elif self.stage is Stage.LINGERING and (took > LINGER_S or now - self._last > LINGER_IDLE_S):
            self.transport.abort()
        elif self.stage is Stage.BODY:
            self._look_at_body(now, took)
        return self.transport.is_closing()

    def hang_up(self) -> None:
        """Close at once."""
        self.transport.abort()

    def _look_at_body(self, now: float, took: float) -> None:
        """A body must arrive in time while it is waited for; while it waits for us its time does not run."""
        if self.flow.read_paused:
            self._since, self._bytes = now, 0
        elif took > self.of.stalled_s:
            if self._bytes < LEAST_BODY_BYTES:
                self.transport.abort()
            self._since, self._bytes = now, 0

    def _look_at_reader(self, now: float, since: float, unread: int) -> None:
        """Of an answer that is not read as fast as it is sent, something must be read in time."""
        left = self.transport.get_write_buffer_size()
        if left < unread:
            self._stuck = (now, left)
        elif now - since > self.of.stalled_s:
            self.transport.abort()

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def _enter(self, stage: Stage) -> None:
        self.of.lingers((stage is Stage.LINGERING) - (self.stage is Stage.LINGERING))
        self.stage = stage
        self._since = self._last = self.of.clock()
        self._bytes = 0
        self.of.idles(self, stage in (Stage.HEAD, Stage.BETWEEN))

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer what is no whole request, and hang up; nothing is said where nothing was asked."""
        if self._bytes or status is HTTPStatus.SERVICE_UNAVAILABLE:
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\nconnection: close\r\ncontent-length: 0\r\n"
            self.transport.write(f"{head}retry-after: 5\r\n\r\n".encode())
        self.transport.close()


class _Outlet:
    """The transport as an answer has it whose request has a body.

    An answer that begins before the body has ended says that the connection will not be used again.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._begun = False

    def write(self, data: bytes) -> None:
        """Send; the head of an answer comes in one piece."""
        if not self._begun and self._connection.stage is Stage.BODY and data.startswith(b"HTTP/1.1 "):
            head, _, rest = data.partition(END_OF_HEAD)
            self._begun = not data.startswith(b"HTTP/1.1 100 ")
            if self._begun and CLOSES not in head:
                data = head + CLOSES + END_OF_HEAD + rest
        self._connection.transport.write(data)

    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._connection.transport.is_closing()

    def close(self) -> None:
        """Hang up."""
        self._connection.end()
