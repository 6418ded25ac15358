"""Requests to addresses that callers name: where they do not go, and how long they take at most."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any

import pytest

from service.jobs import outward

Answering = Callable[[Callable[[socket.socket], object]], str]


@pytest.fixture
def answering() -> Iterator[Answering]:
    """Starts a server on this machine that does this with its one connection; its URL."""
    threads: list[threading.Thread] = []

    def start(serve: Callable[[socket.socket], object]) -> str:
        listening = socket.create_server(("127.0.0.1", 0))

        def run() -> None:
            with listening, listening.accept()[0] as line:
                line.recv(65536)
                serve(line)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}/hook?a=1"

    yield start
    for thread in threads:
        thread.join(120)


def post(url: str, within_s: float = 120.0) -> int:
    return outward.post(url, b"{}", {"X-A": "b"}, within_s=within_s, private=True)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://10.1.2.3/",
        "https://169.254.169.254/latest/meta-data/",
        "https://192.168.0.1:8443/",
        "https://100.64.0.1/",
        "https://0.0.0.0/",
        "https://224.0.0.1/",
        "https://[::1]/",
        "https://[fd00::1]/",
        "https://[fe80::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[64:ff9b::a00:1]/",
        "https://[2002:0a00:0001::]/",
        "http://example.org/",
        "https://example.org:25/",
        "https://user:password@example.org/",
        "ftp://example.org/",
        "https:///path",
        "https://example.org:99999/",
        "https://example.org/a b",
        "https://example.org/\r\nHost: other",
        "file:///etc/passwd",
        f"https://{'a' * 64}.org/",
        "https://a..b/",
    ],
)
def test_what_cannot_be_a_receiver_is_refused_before_a_name_is_looked_up(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a name was looked up"))
    with pytest.raises(outward.Refused):
        outward.place_of(url, private=False)


@pytest.mark.parametrize("url", ["https://example.org", "https://8.8.8.8:8443/x?y", "https://[2606:4700::1]/"])
def test_public_addresses_are_taken(url: str) -> None:
    assert outward.place_of(url, private=False).secure


@pytest.mark.parametrize("found", [["10.0.0.7"], ["8.8.8.8", "127.0.0.1"], ["8.8.8.8", "::1"]])
def test_a_name_of_which_one_address_is_private_is_not_asked(found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET6 if ":" in ip else socket.AF_INET, 1, 6, "", (ip, port)) for ip in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("a connection was made"))
    with pytest.raises(outward.Refused, match="private"):
        outward.post("https://evil.example/", b"", {}, within_s=1.0, private=False)


def test_the_name_is_looked_up_once_and_what_was_checked_is_asked(
    answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []
    url = answering(lambda line: line.sendall(b"HTTP/1.1 204 No Content\r\n\r\n"))
    asked: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: str, *rest: Any, **more: Any) -> Any:
        asked.append(host)
        return real("127.0.0.1" if host == "receiver.example" else "192.0.2.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert post(url.replace("127.0.0.1", "receiver.example")) == 204
    assert (asked, heard) == (["receiver.example"], [])


def test_nothing_is_followed(answering: Answering) -> None:
    assert (
        post(answering(lambda line: line.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n")))
        == 302
    )


def drip(line: socket.socket) -> None:
    line.sendall(b"HTTP/1.1 200 OK\r\n")
    try:
        for number in range(600):
            line.sendall(f"X-{number}: y\r\n".encode())
            time.sleep(0.05)
    except OSError:
        pass


def flood(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.sendall(b"HTTP/1.1 200 OK\r\nX: " + bytes(1 << 22))


def keep_on(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + bytes(1 << 16))


@pytest.mark.parametrize("serve", [drip, lambda line: line.recv(1), flood], ids=["drips", "is silent", "floods"])
def test_whatever_the_other_side_does_the_request_ends(answering: Answering, serve: Any) -> None:
    with pytest.raises((OSError, HTTPException)):
        post(answering(serve), within_s=0.5)


def test_a_body_is_not_read(answering: Answering) -> None:
    assert post(answering(keep_on)) == 200
