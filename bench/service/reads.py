"""Status reads at a fixed rate, and as many as the server gives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

from bench.service.wire import Connection, Server

CONNECTIONS = 32
RATE = 1000.0
"""Reads a second that are due."""


@dataclass(frozen=True)
class Reads:
    """Answers per second, and milliseconds from the moment a request was due to its answer."""

    rate: float
    p50_ms: float
    p99_ms: float
    worst_ms: float


def at_rate(server: Server, jobs: Sequence[str], rate: float, seconds: float) -> Reads:
    """Ask for `rate` states a second whether or not the server keeps up.

    Latency counts from when the request was due, not from when a connection was free for it, so that a pause of the
    server shows in all the requests that it held up.
    """
    return asyncio.run(_paced(server, cycle(jobs), rate, int(rate * seconds)))


def at_most(server: Server, jobs: Sequence[str], seconds: float) -> Reads:
    """Ask again as soon as there is an answer, on every connection."""
    return asyncio.run(_unpaced(server, cycle(jobs), seconds))


async def _paced(server: Server, jobs: Iterator[str], rate: float, count: int) -> Reads:
    due: asyncio.Queue[float] = asyncio.Queue()
    taken: list[float] = []

    async def serve() -> None:
        connection = await Connection.open(server)
        while (moment := await due.get()) >= 0:
            await connection.get(server.request(f"/jobs/{next(jobs)}"))
            taken.append(time.perf_counter() - moment)
        connection.close()

    servers = [asyncio.create_task(serve()) for _ in range(CONNECTIONS)]
    begin = time.perf_counter()
    for number in range(count):
        moment = begin + number / rate
        if (wait := moment - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        due.put_nowait(moment)
    for _ in servers:
        due.put_nowait(-1.0)
    await asyncio.gather(*servers)
    return _summary(taken, time.perf_counter() - begin)


async def _unpaced(server: Server, jobs: Iterator[str], seconds: float) -> Reads:
    taken: list[float] = []
    begin = time.perf_counter()

    async def serve() -> None:
        connection = await Connection.open(server)
        while (moment := time.perf_counter()) < begin + seconds:
            await connection.get(server.request(f"/jobs/{next(jobs)}"))
            taken.append(time.perf_counter() - moment)
        connection.close()

    await asyncio.gather(*(serve() for _ in range(CONNECTIONS)))
    return _summary(taken, time.perf_counter() - begin)


def _summary(taken: Sequence[float], seconds: float) -> Reads:
    ordered = sorted(1e3 * one for one in taken)
    return Reads(
        rate=len(ordered) / seconds,
        p50_ms=ordered[len(ordered) // 2],
        p99_ms=ordered[int(0.99 * (len(ordered) - 1))],
        worst_ms=ordered[-1],
    )
