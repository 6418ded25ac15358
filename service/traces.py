"""Spans of OpenTelemetry: where they go, and which one a request is in.

Without the SDK, or without a collector, all that is written to them is passed over.
"""

from __future__ import annotations

import os

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service.logs import logger

COLLECTORS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The variables of OpenTelemetry that name a collector; the exporter reads them itself, with those beside them."""

log = logger(__name__)


def export(service: str) -> None:
    """Sends the spans of this process to the collector that the environment names; without one nothing is done.

    service  what this process is called there, unless OTEL_SERVICE_NAME says it
    """
    if not any(os.environ.get(name) for name in COLLECTORS):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        log.warning("spans are not exported", reason=str(error), fix="pip install 'tilewright[traces]'")
        return
    named = Resource.create({SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME") or service})
    provider = TracerProvider(resource=named)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def here() -> str | None:
    """The `traceparent` of the span that this thread or task is in; None where nobody records one."""
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")
