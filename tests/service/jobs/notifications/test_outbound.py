"""Requests to addresses that callers name: where they do not go, and how long they take at most."""

from __future__ import annotations

import contextlib
import ipaddress
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any

import pytest

from service.jobs.notifications import outbound

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
    return outbound.post(url, b"{}", {"X-A": "b"}, within_s=within_s, private=True).status


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
        "https://127。0。0。1/",
        "https://[fe80::1%25lo]/",
    ],
)
def test_what_cannot_be_a_receiver_is_refused_before_a_name_is_looked_up(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a name was looked up"))
    with pytest.raises(outbound.Refused):
        outbound.place_of(url, private=False)


@pytest.mark.parametrize("url", ["https://example.org", "https://8.8.8.8:8443/x?y", "https://[2606:4700::1]/"])
def test_public_addresses_are_taken(url: str) -> None:
    assert outbound.place_of(url, private=False).secure


@pytest.mark.parametrize("found", [["10.0.0.7"], ["8.8.8.8", "127.0.0.1"], ["8.8.8.8", "::1"]])
def test_a_name_of_which_one_address_is_private_is_not_asked(found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET6 if ":" in ip else socket.AF_INET, 1, 6, "", (ip, port)) for ip in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("a connection was made"))
    with pytest.raises(outbound.Refused, match="private"):
        outbound.post("https://evil.example/", b"", {}, within_s=1.0, private=False)


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


def test_no_more_of_a_body_is_read_than_was_asked_for(answering: Answering) -> None:
    assert post(answering(keep_on)) == 200
    assert outbound.post(answering(keep_on), b"", {}, within_s=120.0, private=True, most=10).body == bytes(10)


PRIVATE = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/128",
    "::1/128",
    "::/96",
    "::ffff:0:0:0/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/32",
    "2001:2::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
]
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "192.0.1.1",
    "198.17.0.1",
    "2606:4700::1111",
    "2a00:1450:4001::200e",
    "2001:4860:4860::8888",
]
STANDS_FOR = ("::ffff:{}", "64:ff9b::{}")
"""Addresses of IPv6 that lead where one of IPv4 does."""
TUNNELS = ("2002:{a}:{b}::", "2001:0:{a}:{b}::", "2600::5efe:{a}:{b}", "2600::200:5efe:{a}:{b}", "::{a}:{b}")


def drawn(network: str) -> list[str]:
    """The first address of a network, the last one, and some between."""
    net, draws = ipaddress.ip_network(network), random.Random(network)
    return [str(net[at]) for at in (0, net.num_addresses - 1, *(draws.randrange(net.num_addresses) for _ in range(8)))]


@pytest.mark.parametrize("network", PRIVATE)
def test_no_address_is_asked_that_is_not_public_however_it_is_written(network: str) -> None:
    for address in drawn(network):
        same = [address] + ([form.format(address) for form in STANDS_FOR] if ":" not in address else [])
        assert [one for one in same if outbound.is_public(ipaddress.ip_address(one))] == []


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_asked_and_tunnels_to_them_are_not(address: str) -> None:
    assert outbound.is_public(ipaddress.ip_address(address))
    if ":" in address:
        return
    for form in STANDS_FOR:
        assert outbound.is_public(ipaddress.ip_address(form.format(address)))
    high, low = divmod(int(ipaddress.IPv4Address(address)), 1 << 16)
    for form in TUNNELS:
        assert not outbound.is_public(ipaddress.ip_address(form.format(a=f"{high:x}", b=f"{low:x}"))), form


def test_whether_a_name_is_private_or_there_is_none_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        if host == "nowhere.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, 1, 6, "", ("10.0.0.7", port))] if host == "inside.example" else []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    said = set()
    for host in ("inside", "nowhere", "empty"):
        with pytest.raises(outbound.Refused) as refused:
            outbound.post(f"https://{host}.example/", b"", {}, within_s=1.0, private=False)
        said.add(str(refused.value))
    assert len(said) == 1
