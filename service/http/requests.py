"""One id for each request: bound to its log lines and audit entries, and sent back as `X-Request-Id`."""

from __future__ import annotations

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.db.models import new_id
from service.jobs.audit import Asking, asking


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

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        client = scope.get("client")
        address = str(client[0]) if client else ""
        asked = asking.set(Asking(request_id, address, scope["method"], scope["path"]))
        try:
            with structlog.contextvars.bound_contextvars(request=request_id):
                await self.app(scope, receive, send_with_id)
        finally:
            asking.reset(asked)
