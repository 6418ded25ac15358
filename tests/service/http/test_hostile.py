"""A real server, hostile callers who do their worst, and an honest one who is always answered."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest
import uvicorn

from service.config import Settings
from service.db.engine import Database
from service.http.admission.connections import Connection
from service.http.app import create_app
from service.jobs.accounts import access
from service.jobs.inspection.inspector import Inspector
from tests.servers import GUARD_S, free_port
from tests.service.conftest import RecordingRing
from tests.service.databases import any_database

HONEST = 60
HALF_OPEN = 60
PATCHES = 20
BODY = 4 << 20


@dataclass(frozen=True)
class Place:
    port: int
    honest: str
    hostile: str

    def client(self, key: str = "") -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=GUARD_S, trust_env=False)


@pytest.fixture
def place(settings: Settings, db: Database, ring: RecordingRing) -> Iterator[Place]:
    update = {
        "max_connections": 50,
        "max_uploads_per_owner": 3,
        "max_streams_per_owner": 2,
        "max_model_bytes": 8 << 20,
        "head_s": 3600.0,
    }
    app = create_app(settings.model_copy(update=update), ring=ring, inspector=Inspector(ready=0))
    port = free_port()
    config = uvicorn.Config(app, host="127.0.0.1", port=port, http=Connection, log_level="critical", access_log=False)
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        threading.Event().wait(0.01)
    yield Place(
        port, access.make_key(db, "ada", ["read", "compile"], ""), access.make_key(db, "mallory", ["compile"], "")
    )
    server.should_exit = True
    thread.join(GUARD_S)


@any_database
def test_an_honest_caller_is_always_answered(place: Place, zipped: Callable[..., bytes]) -> None:
    stop = threading.Event()
    heard: Counter[tuple[str, int]] = Counter()
    lock = threading.Lock()

    def hear(what: str, status: int) -> None:
        with lock:
            heard[what, status] += 1

    with place.client(place.hostile) as http:
        body = zipped({"a.onnx": bytes(BODY // 2), "b.onnx": bytes(BODY // 2)})
        digest = hashlib.sha256(body).hexdigest()
        announced = {"bytes": len(body), "media_type": "application/zip", "sha256": digest}
        path = http.post("/uploads", json=announced).headers["location"]
        assert http.patch(path, content=body, headers={"Upload-Offset": "0"}).status_code == 400

    def patch() -> None:
        with place.client(place.hostile) as http:
            while not stop.is_set():
                with contextlib.suppress(httpx.TransportError):
                    answer = http.patch(path, headers={"Upload-Offset": str(len(body))})
                    hear("empty PATCH", answer.status_code)

    def keyless() -> None:
        with place.client() as http:
            large = b'{"artifacts": [' + bytes(BODY)
            while not stop.is_set():
                with contextlib.suppress(httpx.TransportError):
                    kind = {"Content-Type": "application/json"}
                    hear("keyless", http.post("/benchmarks", content=large, headers=kind).status_code)
                    hear("readyz", http.get("/readyz").status_code)

    def half_open(peers: ExitStack) -> None:
        for _ in range(HALF_OPEN):
            peer = peers.enter_context(socket.create_connection(("127.0.0.1", place.port), GUARD_S))
            with contextlib.suppress(OSError):
                peer.sendall(b"GET / HTTP/1.1\r\nHost:")

    answered = []
    with ExitStack() as peers, ThreadPoolExecutor(PATCHES + 4) as pool:
        try:
            working = [*(pool.submit(patch) for _ in range(PATCHES)), *(pool.submit(keyless) for _ in range(4))]
            for number in range(HONEST):
                if number == HONEST // 2:
                    half_open(peers)
                with place.client(place.honest) as http:
                    answered.append(http.get("/jobs").status_code)
            for _ in range(int(GUARD_S / 0.01)):
                if heard["empty PATCH", 429] and heard["keyless", 401]:
                    break
                assert all(not one.done() for one in working), "a hostile caller gave up"
                threading.Event().wait(0.01)
        finally:
            stop.set()
    for one in working:
        one.result()
    assert answered == [200] * HONEST
    assert heard["empty PATCH", 429] > 0
    assert {what for what in heard if what[0] == "empty PATCH"} <= {("empty PATCH", 429), ("empty PATCH", 400)}
    assert {status for what, status in heard if what == "keyless"} == {401}


@any_database
def test_an_owner_has_so_many_streams_open_and_who_leaves_makes_room(place: Place) -> None:
    with place.client(place.honest) as http, ExitStack() as following:
        job = http.post("/compile", files={"model": b"m"}).json()["id"]
        streams = [following.enter_context(http.stream("GET", f"/jobs/{job}/events")) for _ in range(2)]
        lines = [stream.iter_lines() for stream in streams]  # an iterator that is dropped closes its stream
        assert [next(one) for one in lines] == ["event: state"] * 2
        refused = http.get(f"/jobs/{job}/events")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_at_once")
        assert refused.json()["details"] == {"limit": 2, "of": "event streams"}
        assert int(refused.headers["retry-after"]) > 0
        assert http.get(f"/jobs/{job}").status_code == 200
        streams[0].close()
        for _ in range(int(GUARD_S / 0.05)):  # the server hears a moment later that the peer has left
            with http.stream("GET", f"/jobs/{job}/events") as stream:
                if stream.status_code == 200:
                    break
            threading.Event().wait(0.05)
        assert stream.status_code == 200
