"""What stands on every answer: an id of the request, and what the gate adds.

The id is bound to the request's log lines and audit entries, and so is the trace that the caller names in
`traceparent` (W3C Trace Context, level 1); the jobs of the request have it too, or the span of the request where one
is recorded.
"""

from __future__ import annotations

import re

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import traces
from service.db.models import new_id
from service.jobs.accounts.audit import Asking, asking

REQUEST = "tilewright.request"
"""Under which a request's scope has its id."""
ADDED = "tilewright.added"
"""Under which a request's scope has further headers of its answer, as pairs of bytes."""

TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
"""Of version 00; what is not of this form is passed over, as the recommendation says."""

NO_SNIFFING = (b"x-content-type-options", b"nosniff")


class RequestIds:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = str(new_id())
        scope[REQUEST] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [header for header in message.get("headers", ()) if header[0].lower() != NO_SNIFFING[0]]
                added = scope.get(ADDED, ())
                message["headers"] = [*given, NO_SNIFFING, (b"x-request-id", request_id.encode()), *added]
            await send(message)

        client = scope.get("client")
        address = str(client[0]) if client else ""
        trace = TRACEPARENT.fullmatch(traces.here() or Headers(scope=scope).get("traceparent", ""))
        traceparent = None if trace is None else trace[0]
        asked = asking.set(Asking(request_id, address, scope["method"], scope["path"], traceparent=traceparent))
        traced = {} if trace is None else {"trace": trace[1]}
        bound = structlog.contextvars.bind_contextvars(request=request_id, **traced)
        try:
            await self.app(scope, receive, send_with_id)
        finally:
            structlog.contextvars.reset_contextvars(**bound)
            asking.reset(asked)
