"""One request to an address that a caller named: to a public one only, within a time, and without following anything.

A name is looked up once, and the connection goes to one of the addresses that were checked, so that a name server
that answers otherwise the second time gains nothing. Of the answer no more than its head is read.
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

TUNNELS = tuple(ipaddress.ip_network(net) for net in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))
"""Addresses of IPv6 that stand for ones of IPv4, which may be private."""

Address = tuple[socket.AddressFamily, tuple[str, int]]


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
        _demand_public(ipaddress.ip_address(host), private=private)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Place(parts.scheme == "https", host, port, target)


def post(url: str, body: bytes, headers: Mapping[str, str], *, within_s: float, private: bool) -> int:
    """The status that a POST is answered with. Raises `Refused`, `OSError`, `ssl.SSLError` and `HTTPException`."""
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
                status = _ask(line, place, body, headers)
            if time.monotonic() >= until:  # a head that was cut off reads like a whole one
                raise TimeoutError("there was no whole answer in time")
            return status
        finally:
            late.cancel()


def _ask(line: socket.socket, place: Place, body: bytes, headers: Mapping[str, str]) -> int:
    connection = http.client.HTTPConnection(place.host, place.port)
    connection.sock = line
    connection.request("POST", place.target, body, {**headers, "Connection": "close"})
    return connection.getresponse().status


def _addresses(place: Place, *, private: bool) -> list[Address]:
    """Where the name leads, none of which is private unless that is allowed."""
    found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    for *_, address in found:
        _demand_public(ipaddress.ip_address(str(address[0]).partition("%")[0]), private=private)
    return [(family, (str(address[0]), int(address[1]))) for family, _, _, _, address in found]


def _demand_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address, *, private: bool) -> None:
    if private:
        return
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif any(address in net for net in TUNNELS):
            raise Refused("its address is private")
    if not address.is_global or address.is_multicast:
        raise Refused("its address is private")


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
