"""Prometheus metrics: of HTTP by this process, of jobs and workers by the database at the time of the scrape.

What the database counts is the same whichever API process answers. Several processes of one machine add up their HTTP
numbers through `PROMETHEUS_MULTIPROC_DIR`, which `python -m service` sets.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.jobs.operations.statistics import Number

PREFIX = "tilewright_"
TYPE = "text/plain; version=0.0.4; charset=utf-8"

DESCRIPTIONS = {
    "blob_faults": "Times that bytes were found lost or damaged.",
    "blob_unchecked_seconds": "How long ago the blob that waits longest was compared with its digest.",
    "blobs_faulty": "Blobs that are lost or damaged now.",
    "cache_hits": "Compilations answered with an artifact that was there.",
    "device_seconds": "Seconds that workers spent on attempts.",
    "jobs": "Jobs that have not ended.",
    "jobs_accepted": "Jobs that were accepted.",
    "jobs_ended": "Jobs that ended.",
    "leases_lost": "Leases that ran out because a worker stopped reporting.",
    "phase_seconds": "Seconds spent in a phase of successful compilations.",
    "phases": "Phases run by successful compilations.",
    "queue_age_seconds": "How long the oldest job of a queue has waited.",
    "log_lines_lost": "Lines of logs that could not be written.",
    "readiness_checks": "Rows that readiness has written.",
    "tuning_records": "Measurements kept.",
    "workers": "Workers that are alive.",
}

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

Answers = tuple[Counter, Histogram]


def answers(registry: CollectorRegistry) -> Answers:
    """The metrics of HTTP: a counter by method, route and status, and seconds to the head of the answer."""
    counted = Counter(PREFIX + "http_requests", "Requests answered.", ("method", "route", "status"), registry=registry)
    timed = Histogram(
        PREFIX + "http_seconds",
        "From a request to the head of its answer.",
        ("method", "route"),
        buckets=BUCKETS,
        registry=registry,
    )
    return counted, timed


def broken(registry: CollectorRegistry) -> Callable[[str], None]:
    """Counts a connection that broke, by why."""
    counted = Counter(
        PREFIX + "http_connections_broken", "Connections that came to nothing.", ("why",), registry=registry
    )
    return lambda why: counted.labels(why).inc()


class Meter:
    """ASGI middleware that counts and times requests by the route that took them, never by path: ids stay out."""

    def __init__(self, app: ASGIApp, *, answers: Answers) -> None:
        self.app = app
        self._counted, self._timed = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin = time.perf_counter()

        async def metered(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "none")
                method = scope["method"] if scope["method"] in METHODS else "other"
                self._counted.labels(method, route, str(message["status"])).inc()
                self._timed.labels(method, route).observe(time.perf_counter() - begin)
            await send(message)

        await self.app(scope, receive, metered)


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def exposition(registry: CollectorRegistry, numbers: Iterable[Number]) -> bytes:
    """The text that a scrape gets."""
    http = registry
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        http = CollectorRegistry()
        multiprocess.MultiProcessCollector(http)  # type: ignore[no-untyped-call]
    whole = CollectorRegistry()
    whole.register(_Samples(numbers))
    return generate_latest(http) + generate_latest(whole)


class _Samples:
    """Numbers as a collector."""

    def __init__(self, numbers: Iterable[Number]) -> None:
        self._numbers = tuple(numbers)

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for number in self._numbers:
            family = families.setdefault(number.name, _family(number))
            family.add_sample(
                f"{PREFIX}{number.name}{'_total' if number.total else ''}", dict(number.labels), number.value
            )
        yield from families.values()


def _family(number: Number) -> Metric:
    kind = CounterMetricFamily if number.total else GaugeMetricFamily
    return kind(PREFIX + number.name, DESCRIPTIONS[number.name])
