"""The spans of an attempt (OpenTelemetry): one of its own below that of the request, and one below it for each phase.

The process of a job has no way out: it tells of its phases, and the worker, which is told at once, writes them down.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service.jobs.scheduling.lease import Claim

DONE = ("succeeded", "cancelled", "released")
"""What may become of an attempt that nothing was wrong with."""


class Spans:
    """Use it in a `with` block, which lasts as long as the attempt."""

    def __init__(self, claim: Claim) -> None:
        told = {"traceparent": claim.traceparent} if claim.traceparent else {}
        request = TraceContextTextMapPropagator().extract(told, Context())
        known: dict[str, str | int] = {
            "tilewright.job.id": str(claim.job_id),
            "tilewright.job.kind": str(claim.kind),
            "tilewright.job.attempt": claim.attempt,
        }
        self._tracer = trace.get_tracer("tilewright")
        self._attempt = self._tracer.start_span(str(claim.kind), request, SpanKind.CONSUMER, known)
        self._phase: Span | None = None
        self._entered = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()
        self._attempt.end()

    def enter(self, phase: str) -> None:
        """The process of the job says that it is in a phase."""
        if phase != self._entered:
            self.leave()
            self._phase = self._tracer.start_span(phase, trace.set_span_in_context(self._attempt, Context()))
            self._entered = phase

    def became(self, what: str, code: str) -> None:
        """What became of the job (`attempt.run.run`), and the code of the problem if there was one."""
        self._attempt.set_attribute("tilewright.job.became", what)
        if what not in DONE:
            self._attempt.set_status(Status(StatusCode.ERROR, code or what))

    def leave(self) -> None:
        """The process of the job has ended."""
        if self._phase is not None:
            self._phase.end()
            self._phase = None
