"""Every path is there twice: below `/v1`, which stays what it is when there is another version, and without it."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

V1 = "/v1"
SERVERS = [
    {"url": V1, "description": "This version."},
    {"url": "/", "description": "The newest version, which is this one."},
]


class Versioned:
    """ASGI middleware: to what is within, the prefix is a part of the root path."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http":
            root = scope.get("root_path", "")
            if scope["path"].removeprefix(root).startswith(f"{V1}/"):
                scope["root_path"] = root + V1
        await self.app(scope, receive, send)
