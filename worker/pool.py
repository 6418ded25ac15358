"""Celery's pool of a worker: one thread, in which a message waits until the round that it asked for is over.

The main thread is free meanwhile: it answers `ping`, `inspect` and `shutdown`, and sends heartbeats. Celery's loop asks
for the next message when it turns, and it turns by itself once a second; a task that ends turns it at once.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from celery.concurrency.thread import TaskPool


class OneThread(TaskPool):  # type: ignore[misc] # Celery ships no types
    """`threads` that turn Celery's loop at the end of each task."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def on_apply(self, *args: Any, **named: Any) -> Any:
        """Have one task done in the thread."""
        result = super().on_apply(*args, **named)
        result.f.add_done_callback(self._turn)
        return result

    def register_with_event_loop(self, hub: Any) -> None:
        """Called with each new loop, of which there is one for each connection to the broker."""
        hub.add_reader(self._reader, self._drain)

    def _turn(self, _: Any) -> None:
        with contextlib.suppress(BlockingIOError):  # full: the loop is about to turn
            os.write(self._writer, b"!")

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)
