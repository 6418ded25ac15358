"""Peers without a key hold all that they can get of a real server, in every stage; whoever has a key is answered."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn

import service.http.app
from service.config import Settings
from service.db.engine import Database
from service.http.admission.connections import STAGES, Connection, Connections, Stage
from service.http.app import create_app
from service.jobs.accounts import access
from service.jobs.inspection.inspector import Inspector
from tests.servers import GUARD_S, free_port
from tests.service.authority import Authority
from tests.service.conftest import RecordingRing
from tests.service.databases import any_database
from tests.service.http.answering import answering

MOST = 8
PEERS = 3 * MOST
ROUNDS = 4
FOR_EVER_S = 3600.0
SEED = 37
BODY = b"Content-Type: application/octet-stream\r\nContent-Length: 90000\r\n\r\nx"


class Tight(Connection):
    """A connection of which the system buffers little, so that an answer which nobody reads is soon left over."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        super().connection_made(transport)


@dataclass
class Place:
    """A server that takes `MOST` connections and closes none for its time."""

    port: int
    key: str
    share: str
    of: Connections
    trusted: ssl.SSLContext | bool

    def client(self, key: str, address: str) -> httpx.Client:
        scheme = "http" if self.trusted is True else "https"
        return httpx.Client(
            base_url=f"{scheme}://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {key}"},
            timeout=GUARD_S,
            transport=httpx.HTTPTransport(local_address=address, verify=self.trusted),
        )

    def peer(self, address: str) -> socket.socket:
        peer = socket.socket()
        peer.settimeout(GUARD_S)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.bind((address, 0))
        peer.connect(("127.0.0.1", self.port))
        return peer

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(int(GUARD_S / 0.01)):
            if holds():
                return
            threading.Event().wait(0.01)
        raise AssertionError([(one.stage, one.displaceable) for one in list(self.of._open)])

    def keyless(self) -> list[Stage]:
        """The stages of connections that can be displaced."""
        return [one.stage for one in list(self.of._open) if one.displaceable]


@dataclass(frozen=True)
class Kind:
    """What peers of a kind send first, what they drip, and where that leaves them."""

    stage: Stage
    first: bytes = b""
    drip: bytes = b""
    tls: bool = False


def request(method: str, path: str, headers: bytes = b"") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n".encode() + headers


MADE_UP = b"Authorization: Bearer twk_made-up\r\n"
KINDS = {
    "silent in the handshake": Kind(Stage.HANDSHAKE, tls=True),
    "drips a handshake": Kind(Stage.HANDSHAKE, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"x", tls=True),
    "silent": Kind(Stage.HEAD),
    "drips a head": Kind(Stage.HEAD, request("GET", "/"), b"x"),
    "waits for a key that is made up": Kind(Stage.ANSWER, request("GET", "/jobs", MADE_UP + b"\r\n")),
    "drips a body meanwhile": Kind(Stage.BODY, request("POST", "/compile", MADE_UP + BODY), b"x"),
    "drips a body after 401": Kind(Stage.LINGERING, request("POST", "/compile", BODY), b"x"),
    "silent after 401 within a body": Kind(Stage.LINGERING, request("POST", "/compile", BODY)),
    "silent after 401": Kind(Stage.BETWEEN, request("GET", "/jobs", b"\r\n")),
    "silent after a probe": Kind(Stage.BETWEEN, request("GET", "/healthz", b"\r\n")),
    "reads nothing of the page": Kind(Stage.READING, request("GET", "/openapi.json", b"\r\n")),
    "reads nothing of many answers": Kind(Stage.ANSWER, request("GET", "/openapi.json", b"\r\n") * 40),
    "reads nothing of what ends": Kind(Stage.READING, request("GET", "/openapi.json", b"Connection: close\r\n\r\n")),
    "follows a job through a link": Kind(Stage.ANSWER, b"SHARED"),
}


@pytest.fixture
def serving(
    settings: Settings, db: Database, ring: RecordingRing, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[bool], Place]]:
    """Starts the server; keys that are made up wait until the test ends."""
    found: list[Connections] = []
    over = threading.Event()
    enter = access.Door.enter

    def made(*arguments: Any, **named: Any) -> Connections:
        found.append(Connections(*arguments, **named))
        return found[-1]

    def entered(door: access.Door, key: str) -> access.Caller:
        if key == "twk_made-up":
            assert over.wait(GUARD_S)
        return enter(door, key)

    monkeypatch.setattr(service.http.app, "Connections", made)
    monkeypatch.setattr(access.Door, "enter", entered)
    with ExitStack() as stack:

        def start(tls: bool) -> Place:
            limits: dict[str, Any] = {"max_connections": MOST, "max_connections_per_address": MOST}
            limits |= {"head_s": FOR_EVER_S, "stalled_s": FOR_EVER_S}
            trusted: ssl.SSLContext | bool = True
            if tls:
                authority = Authority(tmp_path, "ours")
                files = authority.certified("server")
                limits |= {"tls_certificate_file": files.certificate, "tls_key_file": files.key}
                trusted = ssl.create_default_context(cafile=str(authority.file))
            app = create_app(settings.model_copy(update=limits), ring=ring, inspector=Inspector(ready=0))
            port, key = free_port(), access.make_key(db, "ada", ["read", "compile"], "")
            config = uvicorn.Config(app, host="127.0.0.1", port=port, http=Tight, log_level="critical")
            config.timeout_keep_alive, config.timeout_graceful_shutdown = int(FOR_EVER_S), 1
            stack.enter_context(answering(config))
            stack.callback(over.set)
            return Place(port, key, "", found[0], trusted)

        yield start


@any_database
@pytest.mark.parametrize("addresses", [["127.0.0.2"], ["127.0.0.2", "127.0.0.3", "127.0.0.1"]], ids=len)
@pytest.mark.parametrize("what", KINDS)
def test_peers_without_a_key_never_keep_out_who_has_one(
    serving: Callable[[bool], Place], what: str, addresses: list[str]
) -> None:
    kind, drawn = KINDS[what], random.Random(SEED)
    place = serving(kind.tls)
    with ExitStack() as open_:
        http = open_.enter_context(place.client(place.key, "127.0.0.1"))
        job = http.post("/compile", files={"model": b"m"}).json()["id"]
        token = http.post(f"/jobs/{job}/shares", json={}).json()["token"]
        shared = request("GET", f"/jobs/{job}/events", f"Authorization: Bearer {token}\r\n\r\n".encode())
        stream = open_.enter_context(http.stream("GET", f"/jobs/{job}/events"))
        lines = stream.iter_lines()
        assert next(lines) == "event: state"
        for _ in range(ROUNDS):
            peers: list[socket.socket] = []
            for _ in range(PEERS):
                peers.append(open_.enter_context(place.peer(drawn.choice(addresses))))
                with contextlib.suppress(OSError):
                    peers[-1].sendall(shared if kind.first == b"SHARED" else kind.first)
                    peers[-1].sendall(kind.drip)
            place.until(lambda: place.keyless() == [kind.stage] * (MOST - 1))
            with place.client(place.key, "127.0.0.1") as another:
                assert another.get("/jobs").status_code == 200
            for peer in peers:
                with contextlib.suppress(OSError):
                    peer.sendall(kind.drip)
        assert len(place.of) <= MOST
        with place.client(place.key, "127.0.0.1") as another:
            assert another.post(f"/jobs/{job}/cancel").is_success
        assert "CANCELLED" in "".join(lines), "what a key pays for was never displaced"


def test_every_stage_is_tried() -> None:
    assert {kind.stage for kind in KINDS.values()} == set(Stage) == set(STAGES)
