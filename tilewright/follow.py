"""The events of a job, live, over as many connections as it takes."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from tilewright.errors import RequestRefused
from tilewright.http import BUSY, Http
from tilewright.wire import JobEvent, parse_events

FRUITLESS = 8
"""Broken event streams in a row, none of which brought an event, after which the server counts as gone."""
SILENCE_S = 60.0
"""The server sends a comment more often than that."""


def follow(http: Http, job_id: str, after: int) -> Iterator[JobEvent]:
    """The events after number `after`, up to the one that ends the job; broken streams are resumed.

    Raises `ServerUnreachable` and `RequestRefused`.
    """
    fruitless = 0
    while True:
        try:
            for event in _stream(http, job_id, after):
                after, fruitless = max(after, event.seq), 0
                yield event
                if event.ends_job:
                    return
            reason = "the stream ended early"
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
        except RequestRefused as error:
            if error.status not in BUSY:
                raise
            reason = error.message
        fruitless += 1
        if fruitless >= FRUITLESS:
            raise http.unreachable(reason)
        http.pause(fruitless)


def _stream(http: Http, job_id: str, after: int) -> Iterator[JobEvent]:
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(after)} if after else {})}
    with http.client.stream("GET", f"/jobs/{job_id}/events", headers=headers, timeout=SILENCE_S) as response:
        http.check(response)
        yield from parse_events(response.iter_lines())
