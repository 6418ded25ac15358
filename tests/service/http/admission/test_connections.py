"""A real server, and peers that send less than a request, more than one, or read nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import anyio.to_thread
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from service.config import Settings
from service.http.admission import connections
from service.http.admission.connections import (
    DISCARDED_BYTES_PER_S,
    HANG_UPS_AT_ONCE,
    LEAST_BODY_BYTES,
    MOST_HEAD_BYTES,
    OF_APP_STATE,
    Connection,
    Connections,
    Stage,
    connection_of,
    site_of,
)
from tests.servers import GUARD_S, free_port
from tests.service.http.answering import answering

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
BIG = 32 << 20
KEY = b"key"
PAID = b"GET /slow HTTP/1.1\r\nHost: x\r\nKey: x\r\n\r\n"


class Clock:
    """A clock that stands until a test moves it."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Running:
    """A server, its connections and what its app saw."""

    port: int
    of: Connections
    clock: Clock
    loop: Any
    read: list[int]
    waiting: threading.Event
    go: threading.Event

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", self.port), GUARD_S, (address, 0))
        peer.settimeout(GUARD_S)
        return peer

    def pass_(self, seconds: float) -> None:
        """So much later the server looks at its connections."""
        self.clock.now += seconds
        done = threading.Event()

        def look() -> None:
            while self.of.look():
                pass
            done.set()

        self.loop.call_soon_threadsafe(look)
        assert done.wait(GUARD_S)

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(int(GUARD_S / 0.01)):
            if holds():
                return
            threading.Event().wait(0.01)
        raise AssertionError("it never came to hold")


def application(read: list[int], waiting: threading.Event, go: threading.Event, found: dict[str, Any]) -> Any:
    """`/` answers at once, `/read` once it has read the body, `/slow` when told to, `/big` with much."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(scope, receive, send, found)
            return
        if scope["path"] == "/read":
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    read.append(-1)
                    return
                read.append(len(message["body"]))
                more = message["more_body"]
        if (KEY, b"x") in scope["headers"]:
            connection = connection_of(scope)
            assert connection is not None
            connection.pay()
        if scope["path"] == "/slow":
            waiting.set()
            await anyio.to_thread.run_sync(go.wait, GUARD_S)
        body = bytes(BIG) if scope["path"] == "/big" else b"ok"
        head = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})

    return app


async def _live(scope: Scope, receive: Receive, send: Send, found: dict[str, Any]) -> None:
    await receive()
    scope["state"][OF_APP_STATE] = found["of"]
    found["loop"] = asyncio.get_running_loop()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


@contextlib.contextmanager
def serving(**settings: Any) -> Iterator[Running]:
    clock, port = Clock(), free_port()
    of = Connections(Settings(**{"head_s": 10.0, "stalled_s": 30.0, **settings}), 10_000, clock)
    found: dict[str, Any] = {"of": of}
    read: list[int] = []
    waiting, go = threading.Event(), threading.Event()
    app = application(read, waiting, go, found)
    config = uvicorn.Config(app, host="127.0.0.1", port=port, http=Connection, log_level="error", access_log=False)
    config.timeout_keep_alive = 3600
    config.timeout_graceful_shutdown = 1
    with answering(config):
        try:
            yield Running(port, of, clock, found["loop"], read, waiting, go)
        finally:
            go.set()


@pytest.fixture
def server() -> Iterator[Running]:
    with serving() as running:
        yield running


def answer(peer: socket.socket) -> bytes:
    """One short answer."""
    whole = b""
    while b"\r\n\r\n" not in whole or not whole.endswith(b"ok"):
        piece = peer.recv(65536)
        assert piece, whole
        whole += piece
    return whole


def rest(peer: socket.socket) -> bytes:
    """What comes until the server hangs up."""
    whole = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := peer.recv(65536):
            whole += piece
    return whole


def is_open(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        peer.settimeout(GUARD_S)


def test_heads_that_never_end_are_given_up_and_an_honest_peer_is_answered(server: Running) -> None:
    with ExitStack() as peers:
        silent = [peers.enter_context(server.connect()) for _ in range(20)]
        half = [peers.enter_context(server.connect()) for _ in range(20)]
        for peer in half:
            peer.sendall(b"GET / HTTP/1.1\r\nHost:")
        server.until(lambda: len(server.of) == 40)
        server.pass_(9.0)
        for peer in half:
            peer.sendall(b" x")  # progress is no help: it is the whole head that has so long
        assert all(is_open(peer) for peer in (*silent, *half))
        server.pass_(2.0)
        assert {rest(peer) for peer in silent} == {b""}
        assert all(rest(peer).startswith(b"HTTP/1.1 408 ") for peer in half)
        with server.connect() as honest:
            honest.sendall(REQUEST)
            assert answer(honest).startswith(b"HTTP/1.1 200")
        server.until(lambda: len(server.of) == 0)


def test_many_that_went_silent_together_are_hung_up_on_in_portions(server: Running) -> None:
    many = 2 * HANG_UPS_AT_ONCE + 10
    with ExitStack() as peers:
        for _ in range(many):
            peers.enter_context(server.connect())
        server.until(lambda: len(server.of) == many)
        server.clock.now += 11.0
        looks: list[bool] = []
        portions: list[int] = []

        def look() -> None:
            looks.append(server.of.look())
            portions.append(sum(one.transport.is_closing() for one in server.of._open))
            if looks[-1]:
                server.loop.call_soon(look)

        server.loop.call_soon_threadsafe(look)
        server.until(lambda: False in looks)
        assert looks == [True, True, False]
        assert portions[0] == HANG_UPS_AT_ONCE
        server.until(lambda: len(server.of) == 0)


def test_what_is_thrown_away_of_many_bodies_is_read_at_one_rate_for_all(server: Running) -> None:
    """A body whose answer is known: its sender gets no more of the event loop than its share."""
    assert server.of.pause_s(1 << 20) == 0.0
    with server.connect() as peer, server.connect() as other:
        for one in (peer, other):
            one.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")
        server.until(lambda: [one.stage for one in server.of._open] == [Stage.LINGERING] * 2)
        assert server.of.pause_s(DISCARDED_BYTES_PER_S) == 2.0
        for one in (peer, other):
            one.sendall(bytes(4 << 20))
            assert answer(one).endswith(b"ok")
    server.until(lambda: len(server.of) == 0)
    assert server.of.pause_s(1 << 20) == 0.0


def test_a_second_request_has_as_long_as_the_first(server: Running) -> None:
    with server.connect() as peer:
        for _ in range(2):
            peer.sendall(REQUEST)
            answer(peer)
            server.pass_(1000.0)  # between two requests uvicorn's own limit holds
        peer.sendall(b"GET / HT")
        server.until(lambda: any(one.stage is Stage.HEAD for one in server.of._open))
        server.pass_(11.0)
        assert rest(peer).startswith(b"HTTP/1.1 408 ")


def test_a_head_without_end_is_refused(server: Running) -> None:
    with server.connect() as peer:
        with contextlib.suppress(ConnectionError):
            peer.sendall(b"GET / HTTP/1.1\r\n")
            for number in range(64):
                peer.sendall(b"x-%d: " % number + bytes(97 for _ in range(MOST_HEAD_BYTES // 16)) + b"\r\n")
        server.until(lambda: len(server.of) == 0)
        assert rest(peer)[:13] in (b"HTTP/1.1 431 ", b"")


def test_a_body_that_trickles_is_given_up_and_one_that_flows_is_not(server: Running) -> None:
    head = b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    with server.connect() as trickling, server.connect() as flowing:
        trickling.sendall(head + b"x")
        flowing.sendall(head)
        sent = 0
        while sent < 1_000_000:
            piece = min(250_000, 1_000_000 - sent)
            flowing.sendall(bytes(piece))
            sent += piece
            server.until(lambda sent=sent: sum(one for one in server.read if one > 0) >= sent)  # type: ignore[misc]
            if is_open(trickling):
                trickling.sendall(bytes(10))
            server.pass_(31.0)
        assert answer(flowing).startswith(b"HTTP/1.1 200")
        assert rest(trickling) == b""
        assert -1 in server.read, "the app is told that the peer is gone"
        assert LEAST_BODY_BYTES < 250_000


def test_a_body_that_the_app_does_not_read_yet_loses_no_time(server: Running) -> None:
    body = 300_000
    with server.connect() as peer:
        peer.sendall(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % body + bytes(200_000))
        assert server.waiting.wait(GUARD_S)
        server.until(lambda: any(one.flow.read_paused for one in server.of._open))
        for _ in range(3):
            server.pass_(31.0)
        assert is_open(peer)
        server.go.set()
        assert answer(peer).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_what_is_left_of_a_body_after_the_answer_is_thrown_away_for_a_moment(server: Running, more: bytes) -> None:
    length = b"" if b"chunked" in more else b"Content-Length: 1000000000\r\n"
    with server.connect() as peer:
        peer.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n" + length + more + b"\r\n")
        said = answer(peer)
        assert said.startswith(b"HTTP/1.1 200"), "it can be read although the body is not"
        assert said.count(b"connection: close") == 1
        assert peer.recv(1) == b"", "the server says nothing more"
        for _ in range(3):
            (one,) = server.of._open
            before = one._last
            server.clock.now += 4.0
            peer.sendall(bytes(1000))
            server.until(lambda before=before, one=one: one._last > before)  # type: ignore[misc]
            server.pass_(0.0)
            assert len(server.of) == 1, "what goes on is not cut off"
        server.pass_(6.0)
        server.until(lambda: len(server.of) == 0)


def test_a_connection_whose_body_was_read_or_had_come_is_used_again(server: Running) -> None:
    with server.connect() as peer:
        for path in (b"/read", b"/", b"/read"):
            peer.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
            said = answer(peer)
            assert said.startswith(b"HTTP/1.1 200")
            assert b"connection: close" not in said
        peer.sendall(b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert peer.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(b"abc")
        assert answer(peer).startswith(b"HTTP/1.1 200")
        assert is_open(peer)


def test_a_body_that_waits_to_be_asked_for_is_never_sent_to_an_answer_that_needs_none(server: Running) -> None:
    with server.connect() as peer:
        peer.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        said = rest(peer)
        assert said.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in said


def test_requests_that_are_sent_at_once_are_answered_in_turn(server: Running) -> None:
    with server.connect() as peer:
        peer.sendall(REQUEST * 3 + b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")
        said = b""
        while said.count(b"HTTP/1.1 200") < 3:
            said += peer.recv(65536)
        peer.sendall(b"abc")
        assert answer(peer).startswith(b"HTTP/1.1 200")
        server.until(lambda: [one.stage for one in server.of._open] == [Stage.BETWEEN])


def test_a_body_that_goes_on_for_ever_after_the_answer_is_cut_off(server: Running) -> None:
    with server.connect() as peer:
        peer.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
        answer(peer)
        for _ in range(8):
            (one,) = server.of._open
            before = one._last
            server.clock.now += 4.0
            with contextlib.suppress(ConnectionError):
                peer.sendall(bytes(1000))
            server.until(lambda before=before, one=one: one._last > before)  # type: ignore[misc]
            server.pass_(0.0)
            if not server.of._open:
                break
        server.until(lambda: len(server.of) == 0)


def test_an_answer_that_nobody_reads_is_given_up_and_one_that_is_read_slowly_is_not(server: Running) -> None:
    ask = b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"
    with server.connect() as slow, server.connect() as deaf:
        slow.sendall(ask)
        deaf.sendall(ask)
        server.until(lambda: sum(one._stuck for one in server.of._open) == 2)
        seen = len(slow.recv(65536))
        for _ in range(4):
            goal = seen + BIG // 8
            while seen < goal:
                seen += len(slow.recv(65536))
            server.pass_(20.0)
        server.until(lambda: len(server.of) == 1)
        while seen < BIG:
            piece = len(slow.recv(1 << 20))
            assert piece
            seen += piece


def test_past_the_limit_the_connection_that_is_idle_longest_makes_room() -> None:
    with serving(max_connections=8, max_connections_per_address=8) as server, ExitStack() as peers:
        busy = peers.enter_context(server.connect())
        busy.sendall(PAID)
        assert server.waiting.wait(GUARD_S)
        idle = []
        for number in range(7):
            idle.append(peers.enter_context(server.connect()))
            server.until(lambda number=number: len(server.of) == number + 2)  # type: ignore[misc]
        for oldest in idle[:3]:
            honest = peers.enter_context(server.connect())
            honest.sendall(REQUEST)
            assert answer(honest).startswith(b"HTTP/1.1 200")
            assert rest(oldest) == b""
        assert all(is_open(peer) for peer in idle[3:])
        server.go.set()
        assert answer(busy).startswith(b"HTTP/1.1 200"), "what is at work is never closed for a new one"


def test_where_all_are_at_work_a_new_one_is_told_to_come_back() -> None:
    with serving(max_connections=8, max_connections_per_address=8) as server, ExitStack() as peers:
        busy = [peers.enter_context(server.connect()) for _ in range(8)]
        for peer in busy:
            peer.sendall(PAID)
        server.until(lambda: sum(not one.displaceable for one in server.of._open) == 8)
        refused = rest(peers.enter_context(server.connect()))
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 5" in refused
        server.go.set()
        for peer in busy:
            assert answer(peer).startswith(b"HTTP/1.1 200")


def test_an_address_has_its_own_limit(server: Running) -> None:
    of = Connections(Settings(max_connections=100, max_connections_per_address=4), 10_000)
    assert (of.most, of.most_per_address) == (100, 4)
    assert Connections(Settings(max_connections=100), 50).most == 50, "no more than there are descriptors for"
    assert server.of.most_per_address == 2000


def test_the_address_that_holds_most_loses_its_oldest() -> None:
    with serving(max_connections=8, max_connections_per_address=8) as server, ExitStack() as peers:
        honest = peers.enter_context(server.connect("127.0.0.2"))
        many = []
        for number in range(12):
            many.append(peers.enter_context(server.connect("127.0.0.3")))
            server.until(lambda number=number: len(server.of) == min(8, number + 2))  # type: ignore[misc]
        assert [rest(peer) for peer in many[:5]] == [b""] * 5
        assert all(is_open(peer) for peer in (honest, *many[5:]))
        honest.sendall(REQUEST)
        assert answer(honest).startswith(b"HTTP/1.1 200")


def test_an_answer_that_ends_the_connection_and_that_nobody_reads_is_given_up(server: Running) -> None:
    with server.connect() as deaf:
        deaf.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        server.until(lambda: [one.stage for one in server.of._open] == [Stage.READING])
        for _ in range(3):
            server.pass_(31.0)
        server.until(lambda: len(server.of) == 0)


def test_what_a_key_pays_for_is_paid_for_until_it_was_read(server: Running) -> None:
    with server.connect() as peer:
        peer.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\nKey: x\r\n\r\n")
        server.until(lambda: [(one.stage, one.displaceable) for one in server.of._open] == [(Stage.READING, False)])
        seen = 0
        while seen < BIG:
            seen += len(peer.recv(1 << 20))
        server.pass_(1.0)
        assert [(one.stage, one.displaceable) for one in server.of._open] == [(Stage.BETWEEN, True)]
        peer.sendall(REQUEST)
        answer(peer)


@pytest.mark.parametrize(
    ("address", "site"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_addresses_of_one_network_of_ipv6_count_as_one(address: str, site: str) -> None:
    assert site_of(address) == site


def resetting(server: Running) -> None:
    """Twenty requests at once, and a peer that is gone before it is answered."""
    peer = server.connect()
    peer.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n" + 20 * REQUEST)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def malformed(server: Running) -> None:
    with server.connect() as peer:
        peer.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a greeting of TLS\r\n\r\n")
        assert b"400" in rest(peer)


def upgrading(server: Running) -> None:
    with server.connect() as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade, close\r\nUpgrade: h2c\r\n\r\n")
        rest(peer)


@pytest.mark.parametrize(("why", "peer"), [("reset", resetting), ("malformed", malformed), ("upgrade", upgrading)])
def test_a_flood_of_broken_connections_is_counted_and_told_in_one_line(
    why: str, peer: Callable[[Running], None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 100
    said: list[dict[str, Any]] = []
    # Where lines go is the process's, which an earlier test may have decided.
    monkeypatch.setattr(connections, "log", SimpleNamespace(warning=lambda line, **more: said.append({line: more})))
    counted: list[str] = []
    with serving() as server:
        server.of._counted = counted.append
        for _ in range(many):
            peer(server)
        server.until(lambda: len(counted) == many and not len(server.of))
        for _ in range(3):
            server.pass_(1.0)
        with server.connect() as honest:
            honest.sendall(REQUEST)
            assert answer(honest).startswith(b"HTTP/1.1 200")
    assert set(counted) == {why}
    assert caplog.records == []
    assert said == [{"connections broke": {why: many, "open": 0, "limit": said[0]["connections broke"]["limit"]}}]
