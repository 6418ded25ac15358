"""What stands on every answer: an id of the request, and what the gate adds.

The id is bound to the request's log lines and audit entries.
"""

from __future__ import annotations

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.db.models import new_id
from service.jobs.audit import Asking, asking

REQUEST = "tilewright.request"
"""Under which a request's scope has its id."""
ADDED = "tilewright.added"
"""Under which a request's scope has further headers of its answer, as pairs of bytes."""

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
        asked = asking.set(Asking(request_id, address, scope["method"], scope["path"]))
        bound = structlog.contextvars.bind_contextvars(request=request_id)
        try:
            await self.app(scope, receive, send_with_id)
        finally:
            structlog.contextvars.reset_contextvars(**bound)
            asking.reset(asked)
