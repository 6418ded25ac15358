"""Many event streams of one job at once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bench.service.wire import Connection, Server


@dataclass(frozen=True)
class Streams:
    """How many streams carried the whole job without a gap, and milliseconds from an event's commit to its arrival."""

    streams: int
    whole: int
    events: int
    lag_p50_ms: float
    lag_p99_ms: float


def follow(server: Server, job: str, streams: int) -> Streams:
    """Follow a job that has just begun on this many streams until it ends."""
    return asyncio.run(_follow(server, job, streams))


async def _follow(server: Server, job: str, streams: int) -> Streams:
    heard = await asyncio.gather(*(_one(server, job) for _ in range(streams)))
    lags = sorted(lag for _, late in heard for lag in late) or [0.0]
    longest = max(len(numbers) for numbers, _ in heard)
    return Streams(
        streams=streams,
        whole=sum(numbers == list(range(1, longest + 1)) for numbers, _ in heard),
        events=longest,
        lag_p50_ms=lags[len(lags) // 2],
        lag_p99_ms=lags[int(0.99 * (len(lags) - 1))],
    )


async def _one(server: Server, job: str) -> tuple[list[int], Sequence[float]]:
    """Numbers of the events, and the lag of those that were committed after the stream began."""
    connection = await Connection.open(server)
    numbers, lags, begin = [], [], time.time()
    async for line in connection.lines(server.request(f"/jobs/{job}/events", "Accept: text/event-stream")):
        if line.startswith(b"data:"):
            event = json.loads(line[5:])
            numbers.append(int(event["seq"]))
            committed = datetime.fromisoformat(event["at"]).timestamp()
            if committed > begin:
                lags.append(1e3 * (time.time() - committed))
    connection.close()
    return numbers, lags
