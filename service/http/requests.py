"""What stands on every answer: one id for each request, bound to its log lines, and what the gate adds."""

from __future__ import annotations

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.db.models import new_id

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

        with structlog.contextvars.bound_contextvars(request=request_id):
            await self.app(scope, receive, send_with_id)
