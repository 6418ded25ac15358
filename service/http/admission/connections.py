"""Connections of one API process: how many, how long each may hold its place, and which makes room for a new one.

`STAGES` is the whole rule: what a connection may wait for, for how long, and whether a key pays for its place. Whatever
no key pays for is displaced when there is no room, so peers without a key never keep out a caller who has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import ssl
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Any, Literal

from starlette.types import Scope
from uvicorn._types import ASGI3Application, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.config import Settings
from service.logs import logger
from service.threads import lasting_task

LOOK_EVERY_S = 0.5
MOST_HEAD_BYTES = 64 << 10
LEAST_BODY_BYTES = 16 << 10
"""Of a body that must arrive within `stalled_s`, or its end."""
DISCARDED_BYTES_PER_S = 64 << 20
"""Of all that is thrown away together: senders on this machine could keep the event loop at it and at nothing else."""
HANG_UPS_AT_ONCE = 50
"""A thousand peers that went silent together are not all hung up on before the next request is served."""
CLOSES, END_OF_HEAD = b"\r\nconnection: close", b"\r\n\r\n"
OF_APP_STATE = "connections"
"""Under which the app's lifespan hands `Connections` to the protocol."""
OF_REQUEST = "tilewright.connection"
"""Under which the state of a request's scope refers to its `Connection`."""
SITE_PREFIX = 64
"""Of an address of IPv6: who has one has all that share it."""

TELL_EVERY_S = 10.0
"""Of connections that broke one line tells so often, however many there were."""
OF_UVICORN = logging.getLogger("uvicorn.error.connections")
"""What uvicorn says of one connection: faults of ours alone, for what a peer does wrong is counted."""
OF_UVICORN.setLevel(logging.ERROR)

Broken = Literal["reset", "malformed", "refused", "displaced", "upgrade", "transport"]
"""Why a connection ended before its answer, or without one."""

log = logger(__name__)


class Stage(Enum):
    """What a connection waits for."""

    HANDSHAKE = "the TLS handshake"
    HEAD = "the head of a request: nothing of it has come yet, or a part"
    BODY = "the body of a request"
    ANSWER = "the answer: the key is looked up, work is done, events are streamed, a file is sent"
    READING = "the peer, to read the rest of an answer that is whole"
    BETWEEN = "the next request"
    LINGERING = "the end of a body that is thrown away, because its answer is known"


@dataclass(frozen=True)
class Terms:
    """Of one stage: times are seconds, or the name of the setting that has them.

    keyed    whether the key of the request pays for the place, from its acceptance on; else nobody does
    longest  how long the stage may last
    still    how long the peer may make no progress: of a body `LEAST_BODY_BYTES`, of an answer that it does not read
             as fast as it is sent a byte
    """

    keyed: bool = False
    longest: str | float = math.inf
    still: str | float = math.inf


KEEP_ALIVE_S = 5
"""Kept to by uvicorn, which is given it."""

STAGES: Mapping[Stage, Terms] = {
    Stage.HANDSHAKE: Terms(longest="head_s"),
    Stage.HEAD: Terms(longest="head_s"),
    Stage.BODY: Terms(keyed=True, still="stalled_s"),
    Stage.ANSWER: Terms(keyed=True, still="stalled_s"),
    Stage.READING: Terms(keyed=True, still="stalled_s"),
    Stage.BETWEEN: Terms(longest=KEEP_ALIVE_S),
    Stage.LINGERING: Terms(longest=30.0, still=5.0),
}
"""A connection whose place no key pays for is displaceable."""


class Connections:
    """The open connections; to be used inside one event loop.

    Raises `OptionsError` for certificates that cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        descriptors: int,
        clock: Callable[[], float] = time.monotonic,
        counted: Callable[[Broken], None] = lambda why: None,
    ) -> None:
        self._counted = counted
        self._broken: Counter[str] = Counter()
        self._told = -TELL_EVERY_S
        self.most = max(8, min(settings.max_connections, descriptors))
        self.most_per_address = min(settings.max_connections_per_address, self.most)
        self.tls = settings.tls
        self.head_s = settings.head_s
        self.clock = clock
        self.limits = {
            stage: (_seconds(settings, terms.longest), _seconds(settings, terms.still))
            for stage, terms in STAGES.items()
        }
        self.limits[Stage.BETWEEN] = (math.inf, math.inf)  # uvicorn's own timer
        self._open: OrderedDict[Connection, None] = OrderedDict()
        self._displaceable: dict[str, OrderedDict[Connection, None]] = {}
        self._of_address: Counter[str] = Counter()
        self._lingering = 0

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, connection: object) -> bool:
        return connection in self._open

    def admit(self, connection: Connection) -> bool:
        """Count a new connection. False: there is no room, and keys pay for all that could make some.

        Over a limit the oldest displaceable one makes room: over an address's limit one of that address, else one of
        the address that has most of them.
        """
        address = connection.address
        here = self._of_address[address] >= self.most_per_address
        if here or len(self._open) >= self.most:
            among = self._displaceable.get(address) if here else max(self._displaceable.values(), key=len, default=None)
            if not among:
                self.broke("refused")
                return False
            oldest = next(iter(among))
            self.broke("displaced")
            oldest.hang_up()
            self.forget(oldest)
        self._open[connection] = None
        self._of_address[address] += 1
        return True

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        if connection not in self._open:
            return
        del self._open[connection]
        self._hold(connection)
        self._of_address[connection.address] -= 1
        if not self._of_address[connection.address]:
            del self._of_address[connection.address]

    def sort(self, connection: Connection) -> None:
        """The stage of a connection has begun, or a key pays from now on: it is the last to be displaced, or is not."""
        self._hold(connection)
        if connection.displaceable and connection in self._open:
            self._displaceable.setdefault(connection.address, OrderedDict())[connection] = None

    def _hold(self, connection: Connection) -> None:
        among = self._displaceable.get(connection.address)
        if among is not None:
            among.pop(connection, None)
        if not among:
            self._displaceable.pop(connection.address, None)

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
        if self._broken and now - self._told >= TELL_EVERY_S:
            log.warning("connections broke", **self._broken, open=len(self._open), limit=self.most)
            self._broken.clear()
            self._told = now
        return False

    def broke(self, why: Broken) -> None:
        """Count a connection, or a request of one, that came to nothing by its peer's doing, or for want of room."""
        self._broken[why] += 1
        self._counted(why)

    def unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What the event loop could not hand to anybody: of a connection it is counted, else as the loop does it."""
        if "transport" in context or "protocol" in context:
            self.broke("transport")
        else:
            loop.default_exception_handler(context)

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look again and again inside the `with` block, and hang up on who is still there at its end."""
        asyncio.get_running_loop().set_exception_handler(self.unhandled)
        watching = asyncio.create_task(lasting_task("connections", self._watch))
        try:
            yield
        finally:
            watching.cancel()
            for connection in list(self._open):
                connection.hang_up()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            while self.look():
                await asyncio.sleep(0)


def connection_of(scope: Scope) -> Connection | None:
    """The connection that a request came over; None where it came over none, as in tests."""
    found: weakref.ref[Connection] | None = scope.get("state", {}).get(OF_REQUEST)
    return None if found is None else found()


def _seconds(settings: Settings, limit: str | float) -> float:
    return float(getattr(settings, limit) if isinstance(limit, str) else limit)


def site_of(address: str) -> str:
    """What counts as one address."""
    if ":" not in address:
        return address
    plain = ipaddress.IPv6Address(address)
    return str(plain.ipv4_mapped or ipaddress.ip_network((plain.packed, SITE_PREFIX), strict=False))


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with limits on the time of each stage and on the size of a head. It does TLS itself.

    uvicorn's own TLS has a connection counted once its handshake is done, and a peer that never begins one by nobody.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.of: Connections = self.app_state[OF_APP_STATE]
        self.logger = OF_UVICORN
        self.address = ""
        self.stage = Stage.HEAD if self.of.tls is None else Stage.HANDSHAKE
        self._paid = False
        self._answering: RequestResponseCycle | None = None
        self._since = self._last = self.of.clock()
        self._bytes = 0
        self._unread = 0
        self._stuck = False
        self._early = b""
        self._handshake: asyncio.Task[None] | None = None

    @property
    def displaceable(self) -> bool:
        """Whether no key pays for this connection's place."""
        return not (self._paid and STAGES[self.stage].keyed)

    @property
    def gone(self) -> bool:
        """Whether it is of no use any more to answer."""
        return self.transport.is_closing()

    def pay(self) -> None:
        """The key of the request that is worked on was accepted: its owner pays for the place until it is answered."""
        self._paid = True
        self.of.sort(self)

    # What the event loop calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or hang up when there is no room."""
        peer = transport.get_extra_info("peername")
        self.address = site_of(str(peer[0])) if isinstance(peer, tuple) else ""
        self.transport = transport
        admitted = self.of.admit(self)
        if admitted and self.of.tls is not None:
            self.of.sort(self)
            self._handshake = self.loop.create_task(self._shake_hands(self.of.tls))
            return
        if self.of.tls is not None:
            transport.abort()
            return
        super().connection_made(transport)
        if admitted:
            self._enter(Stage.HEAD)
        else:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self.of.forget(self)
        if self._handshake is not None:
            self._handshake.cancel()
        if self.stage is Stage.LINGERING:
            self.of.lingers(-1)
        pending = [cycle for cycle, _ in self.pipeline]
        if self._answering is not None:
            pending.append(self._answering)
        self.pipeline.clear()
        if unanswered := [cycle for cycle in pending if not cycle.response_complete and not cycle.disconnected]:
            self.of.broke("reset")
        for cycle in unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes in, no more of a head than `MOST_HEAD_BYTES`."""
        if self.stage is Stage.HANDSHAKE:  # before it begins, or after its end: `_shake_hands` goes on in a moment
            self._early += data
            if self.transport.get_protocol() is self:
                self.transport.pause_reading()
            return
        if self.stage is Stage.LINGERING:
            self._last = self.of.clock()
            self.transport.pause_reading()
            self.loop.call_later(self.of.pause_s(len(data)), self._read_on)
            return
        if self.stage in (Stage.BETWEEN, Stage.READING) and not self.gone:
            self._paid = False
            self._enter(Stage.HEAD)
        self._bytes += len(data)
        super().data_received(data)
        if self.stage is Stage.HEAD and self._bytes > MOST_HEAD_BYTES and not self.gone:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def pause_writing(self) -> None:
        """The peer reads more slowly than we write."""
        self._stuck, self._last, self._unread = True, self.of.clock(), self.transport.get_write_buffer_size()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._stuck = False
        super().resume_writing()

    # What the parser and the app's answers call

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["state"][OF_REQUEST] = weakref.ref(self)

    def on_headers_complete(self) -> None:
        """The head is whole; what follows is the body."""
        self._enter(Stage.BODY)
        super().on_headers_complete()
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
            self._look_for_rest()
        else:
            self._paid = False
            self.of.sort(self)

    def end(self) -> None:
        """Hang up after an answer. Our side ends first where the body still comes.

        What comes is thrown away for a moment: closing at once would have the peer's system throw away the answer.
        """
        if self.stage is not Stage.BODY:
            self.transport.close()
        elif not self.gone:
            self._unset_keepalive_if_required()
            self._enter(Stage.LINGERING)
            with contextlib.suppress(OSError, RuntimeError):
                self.transport.write_eof()

    def _unsupported_upgrade_warning(self) -> None:
        self.of.broke("upgrade")

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self.of.broke("malformed")
        super().send_400_response(msg)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle

        async def send(message: ASGISendEvent) -> None:
            try:
                await cycle.send(message)
            except (OSError, RuntimeError):
                if not self.transport.is_closing():
                    raise
                cycle.disconnected = True  # the peer went away, and nobody has told us yet

        async def answer(scope: Any, receive: Any, _: Any) -> None:
            await app(scope, receive, send)

        super()._start_asgi_task(cycle, answer)

    # What `Connections` calls

    def look(self, now: float) -> bool:
        """Hang up if the time of the present stage is over; whether it was."""
        if self.gone or self.stage is Stage.READING:
            self._look_for_rest()
        if self._progressed():
            self._last = now
        longest, still = self.of.limits[self.stage]
        if now - self._since <= longest and now - self._last <= still:
            return False
        if self.stage is Stage.HEAD:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.hang_up()
        return True

    def hang_up(self) -> None:
        """Close at once."""
        self.transport.abort()

    def _progressed(self) -> bool:
        """Whether the peer has done its part of late, or it is not its turn."""
        if self._stuck or self.stage is Stage.READING:
            before, self._unread = self._unread, self.transport.get_write_buffer_size()
            return self._unread < before
        if self.stage is Stage.BODY:
            enough = self.flow.read_paused or self._bytes >= LEAST_BODY_BYTES
            self._bytes = 0 if enough else self._bytes
            return enough
        return self.stage is Stage.ANSWER

    def _look_for_rest(self) -> None:
        """Nothing more is written: once all of it has been read nobody pays any more."""
        unread = bool(self.transport.get_write_buffer_size())
        paid, stage = self._paid and unread, Stage.READING if unread or self.gone else Stage.BETWEEN
        if (paid, stage) != (self._paid, self.stage):
            self._paid = paid
            self._enter(stage)

    async def _shake_hands(self, context: ssl.SSLContext) -> None:
        beginning = self.loop.start_tls(
            self.transport, self, context, server_side=True, ssl_handshake_timeout=self.of.head_s
        )
        shaking = self.loop.create_task(beginning)
        # In the next turn of the loop it calls `connection_made` of the transport's new protocol and reads on. What was
        # read before comes between that and whatever is read then.
        self.loop.call_soon(self.loop.call_soon, self._hand_over)
        try:
            secured = await shaking
        except OSError:
            self.hang_up()
            return
        if secured is None or self not in self.of:
            return
        super().connection_made(secured)
        self._enter(Stage.HEAD)
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def _hand_over(self) -> None:
        early, self._early = memoryview(self._early), b""
        protocol: Any = self.transport.get_protocol()
        while early and not self.gone:
            room = protocol.get_buffer(len(early))
            taken = min(len(room), len(early))
            room[:taken] = early[:taken]
            protocol.buffer_updated(taken)
            early = early[taken:]

    def _read_on(self) -> None:
        if not self.gone:
            self.transport.resume_reading()

    def _enter(self, stage: Stage) -> None:
        self.of.lingers((stage is Stage.LINGERING) - (self.stage is Stage.LINGERING))
        self.stage = stage
        self._since = self._last = self.of.clock()
        self._bytes = 0
        self._unread = self.transport.get_write_buffer_size()
        self.of.sort(self)

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer what is no whole request, and hang up; nothing is said where nothing was asked."""
        if self._bytes or status is HTTPStatus.SERVICE_UNAVAILABLE:
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\nconnection: close\r\ncontent-length: 0\r\n"
            self.transport.write(f"{head}retry-after: 5\r\n\r\n".encode())
        self.transport.close()


class _Outlet:
    """The transport as an answer has it.

    One that begins before the body of its request has ended says that the connection will not be used again. What is
    sent once the connection is closed is dropped: of requests that came together uvicorn ends the last one only.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._begun = False

    def write(self, data: bytes) -> None:
        """Send; the head of an answer comes in one piece."""
        if self._connection.gone:
            return
        if not self._begun and self._connection.stage is Stage.BODY and data.startswith(b"HTTP/1.1 "):
            head, _, rest = data.partition(END_OF_HEAD)
            self._begun = not data.startswith(b"HTTP/1.1 100 ")
            if self._begun and CLOSES not in head:
                data = head + CLOSES + END_OF_HEAD + rest
        self._connection.transport.write(data)

    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._connection.gone

    def close(self) -> None:
        """Hang up."""
        self._connection.end()
