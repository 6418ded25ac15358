"""Read ahead: the next chunk is fetched by a thread while the caller works on the present one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator

DEPTH = 1
"""Chunks that wait for the caller; one more is in the thread's hands."""
LOOK_EVERY_S = 0.1
"""How often the thread, with a chunk that nobody takes, looks whether anyone still will."""


def ahead(chunks: Iterator[bytes]) -> Generator[bytes]:
    """The same chunks in the same order; what `chunks` raises is raised where its next chunk would have come.

    The thread starts with the first chunk asked for. When the generator is closed early, the thread ends after the
    chunk that it is fetching, and is not waited for.
    """
    waiting: queue.Queue[bytes | BaseException | None] = queue.Queue(DEPTH)
    stop = threading.Event()

    def give(found: bytes | BaseException | None) -> None:
        while not stop.is_set():
            try:
                return waiting.put(found, timeout=LOOK_EVERY_S)
            except queue.Full:
                continue

    def fetch() -> None:
        try:
            for chunk in chunks:
                give(chunk)
                if stop.is_set():
                    return
            give(None)
        except BaseException as error:
            give(error)

    threading.Thread(target=fetch, name="read-ahead", daemon=True).start()
    try:
        while (found := waiting.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        stop.set()
