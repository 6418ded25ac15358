"""A server of uvicorn in a thread of a test."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import uvicorn

from tests.servers import GUARD_S


@contextlib.contextmanager
def answering(config: uvicorn.Config) -> Iterator[None]:
    """It answers until the context ends."""
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            threading.Event().wait(0.01)
        yield
    finally:
        server.should_exit = True
        thread.join(GUARD_S)
