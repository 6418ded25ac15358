"""One request to an address that a caller named: to a public one only, within a time, and without following anything.

A name is looked up once, and the connection goes to one of the addresses that were checked, so that a name server
that answers otherwise the second time gains nothing. Of the answer its head is read, and what was asked for.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}
LOWEST_FREE_PORT = 1024
"""Below it only the ports of HTTP: what else listens there is no receiver of webhooks."""
MOST_ADDRESSES = 3
"""Of a name that are tried."""

UNICAST = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that is public, but for `NOT_PUBLIC`."""
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses that stand for those of IPv4 in their last 32 bits, where a network has no IPv4 itself."""
ISATAP = (0x00005EFE, 0x02005EFE)
"""Before the last 32 bits of an address that stands for one of IPv4."""
NOT_PUBLIC = tuple(
    ipaddress.ip_network(net)
    for net in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by a carrier's customers; clouds have metadata there
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # a cloud's platform, from inside it
        "169.254.0.0/16",  # link-local
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # IETF protocol assignments; a cloud has metadata there
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # IETF protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)
"""Said here, since what `is_global` says depends on the version of Python."""

Address = tuple[socket.AddressFamily, tuple[str, int]]


@dataclass(frozen=True)
class Answer:
    """Its status, and the beginning of its body that was asked for."""

    status: int
    body: bytes


class Refused(Exception):
    """The request is not made; the text says why, without telling what the name was found to be."""


@dataclass(frozen=True)
class Place:
    """Where a URL leads to."""

    secure: bool
    host: str
    port: int
    target: str
    """Path and query."""


def place_of(url: str, *, private: bool) -> Place:
    """Where a URL leads to. Raises `Refused` for what cannot be a receiver, before any name is looked up.

    private  whether private addresses, and plain HTTP, are allowed
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")  # as the lookup will
    except ValueError:
        raise Refused("it is no URL") from None
    if parts.scheme not in PORTS or not host:
        raise Refused("it is no http or https URL")
    if parts.scheme == "http" and not private:
        raise Refused("it is not https")
    if parts.username is not None or parts.password is not None:
        raise Refused("it holds a user or password")
    if not url.isascii() or any(ord(letter) <= 32 or ord(letter) == 127 for letter in url):
        raise Refused("it holds characters that a URL does not have")
    port = PORTS[parts.scheme] if port is None else port
    if not private and port < LOWEST_FREE_PORT and port not in PORTS.values():
        raise Refused(f"port {port} is not one of HTTP")
    with contextlib.suppress(ValueError):
        if not private and not is_public(ipaddress.ip_address(host)):
            raise Refused("its address is not public")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Place(parts.scheme == "https", host, port, target)


def post(url: str, body: bytes, headers: Mapping[str, str], *, within_s: float, private: bool, most: int = 0) -> Answer:
    """What a POST is answered with. Raises `Refused`, `OSError`, `ssl.SSLError` and `HTTPException`.

    most  how many bytes of the answer's body are read
    """
    place = place_of(url, private=private)
    addresses = _addresses(place, private=private)
    until = time.monotonic() + within_s
    with _connected(addresses, within_s) as plain, contextlib.closing(plain.dup()) as twin:
        late = threading.Timer(until - time.monotonic(), _hang_up, (twin,))  # however slowly the other side sends
        late.daemon = True
        late.start()
        try:
            line = plain
            if place.secure:
                line = ssl.create_default_context().wrap_socket(plain, server_hostname=place.host)
            with contextlib.closing(line):
                answer = _ask(line, place, body, headers, most)
            if time.monotonic() >= until:  # a head that was cut off reads like a whole one
                raise TimeoutError("there was no whole answer in time")
            return answer
        finally:
            late.cancel()


def _ask(line: socket.socket, place: Place, body: bytes, headers: Mapping[str, str], most: int) -> Answer:
    connection = http.client.HTTPConnection(place.host, place.port)
    connection.sock = line
    connection.request("POST", place.target, body, {**headers, "Connection": "close"})
    answer = connection.getresponse()
    return Answer(answer.status, answer.read(most) if most else b"")


def _addresses(place: Place, *, private: bool) -> list[Address]:
    """Where the name leads, none of which is private unless that is allowed.

    Raises `Refused`, in the same words for a name that there is not: whether there is one is told to nobody.
    """
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        found = []
    addresses = [ipaddress.ip_address(str(address[0]).partition("%")[0]) for *_, address in found]
    if not addresses or not (private or all(is_public(address) for address in addresses)):
        raise Refused("its name leads nowhere, or to a private address")
    return [(family, (str(address[0]), int(address[1]))) for family, _, _, _, address in found]


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether it is one of the public Internet, and so is that of IPv4 which it stands for."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        low = int(address) & 0xFFFF_FFFF
        if address in NAT64:
            return is_public(ipaddress.IPv4Address(low))
        if address not in UNICAST or (int(address) >> 32) & 0xFFFF_FFFF in ISATAP:
            return False
    return address.is_global and not any(address in net for net in NOT_PUBLIC if net.version == address.version)


@contextlib.contextmanager
def _connected(addresses: list[Address], within_s: float) -> Iterator[socket.socket]:
    """A connection to the first of these that takes one."""
    fault: OSError | None = None
    for family, address in addresses[:MOST_ADDRESSES]:
        line = socket.socket(family, socket.SOCK_STREAM)
        try:
            line.settimeout(within_s / MOST_ADDRESSES)
            line.connect(address)
            line.settimeout(within_s)
        except OSError as error:
            line.close()
            fault = error
            continue
        with contextlib.closing(line):
            yield line
        return
    raise fault or OSError("the name has no address")


def _hang_up(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
