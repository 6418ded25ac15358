"""A small HTTP/1.1 client for load: one connection, no library's work between two requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from tilewright.errors import ServerUnreachable


@dataclass(frozen=True)
class Server:
    """Where requests go, and the key they carry."""

    url: str
    key: str

    def request(self, path: str, *headers: str) -> bytes:
        """The bytes of a GET request."""
        lines = (f"GET {path} HTTP/1.1", f"Host: {urlsplit(self.url).netloc}", f"Authorization: Bearer {self.key}")
        return "\r\n".join([*lines, *headers, "", ""]).encode()


class Connection:
    """A connection that is used for one request after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, server: Server) -> Self:
        """Connect; raises `OSError`."""
        address = urlsplit(server.url)
        return cls(*await asyncio.open_connection(address.hostname, address.port))

    async def get(self, request: bytes) -> bytes:
        """The body of the answer. Raises `ServerUnreachable` unless it is a 200 of stated length."""
        self._writer.write(request)
        head = await self._head()
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return await self._reader.readexactly(int(lengths[0].partition(b":")[2]))

    async def lines(self, request: bytes) -> AsyncIterator[bytes]:
        """The lines of a chunked answer as they come, without the chunks' sizes."""
        self._writer.write(request)
        await self._head()
        held = b""
        while size := int(await self._reader.readline(), 16):
            held += await self._reader.readexactly(size)
            await self._reader.readexactly(2)
            *whole, held = held.split(b"\n")
            for line in whole:
                yield line.rstrip(b"\r")

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def _head(self) -> bytes:
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = head.split(b"\r\n", 1)[0].decode(errors="replace")
        if status.split()[1:2] != ["200"]:
            raise ServerUnreachable(f"the server answered {status!r}", fix="see the server's log")
        return head
