"""The events of a job, live, over as many connections as it takes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import httpx

from tilewright.errors import RequestRefused, WaitTimeout
from tilewright.http import BUSY, Http
from tilewright.wire import JobEvent, parse_events

FRUITLESS = 8
"""Broken event streams in a row, none of which brought an event, after which the server counts as gone."""
SILENCE_S = 60.0
"""The server sends a comment more often than that."""


def follow(http: Http, job_id: str, after: int, within_s: float | None = None) -> Iterator[JobEvent]:
    """The events after number `after`, up to the one that ends the job; broken streams are resumed.

    within_s  how long to follow, in seconds; None: to the end

    Raises `WaitTimeout` when that time is over, `ServerUnreachable` and `RequestRefused`.
    """
    fruitless = 0
    until = None if within_s is None else time.monotonic() + within_s
    while True:
        try:
            for event in _stream(http, job_id, after, _left(job_id, until)):
                after, fruitless = max(after, event.seq), 0
                yield event
                if event.ends_job:
                    return
                _left(job_id, until)
            reason = "the stream ended early"
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
        except RequestRefused as error:
            if error.status not in BUSY:
                raise
            reason = error.message
        _left(job_id, until)
        fruitless += 1
        if fruitless >= FRUITLESS:
            raise http.unreachable(reason)
        http.pause(fruitless)


def _left(job_id: str, until: float | None) -> float | None:
    """The seconds that are left. Raises `WaitTimeout` when there are none."""
    if until is None:
        return None
    left = until - time.monotonic()
    if left <= 0:
        raise WaitTimeout(
            f"job {job_id} has not ended in the time that it was waited for; it goes on",
            fix=f"wait longer, look at it with `tilewright watch {job_id}`, or cancel it",
        )
    return left


def _stream(http: Http, job_id: str, after: int, left_s: float | None) -> Iterator[JobEvent]:
    """One stream; the server ends it when the time is over, and if it says nothing, the silence does."""
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(after)} if after else {})}
    silence_s = SILENCE_S
    if left_s is not None:
        headers["Prefer"] = f"wait={math.ceil(left_s)}"
        silence_s = min(SILENCE_S, left_s)
    with http.client.stream("GET", f"/jobs/{job_id}/events", headers=headers, timeout=silence_s) as response:
        http.check(response)
        yield from parse_events(response.iter_lines())
