from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from service.blobs import ahead as subject
from service.blobs.ahead import ahead
from service.errors import StorageUnavailable


def pieces(count: int) -> list[bytes]:
    return [bytes([number]) for number in range(count)]


def ended() -> bool:
    """Waits for the threads of this test; a thread that never ends fails it."""
    for thread in threading.enumerate():
        if thread.name == "read-ahead":
            thread.join(120)
            return not thread.is_alive()
    return True


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_the_chunks_come_whole_and_in_order(count: int) -> None:
    assert list(ahead(iter(pieces(count)))) == pieces(count)
    assert ended()


def test_an_error_comes_where_the_next_chunk_would_have() -> None:
    def broken() -> Iterator[bytes]:
        yield b"first"
        raise StorageUnavailable("the disk is gone")

    chunks = ahead(broken())
    assert next(chunks) == b"first"
    with pytest.raises(StorageUnavailable, match="disk"):
        next(chunks)
    assert ended()


def test_closing_early_ends_the_thread_and_closes_the_source() -> None:
    closed = threading.Event()
    taken: list[bytes] = []

    def endless() -> Iterator[bytes]:
        try:
            while True:
                taken.append(b"x")
                yield b"x"
        finally:
            closed.set()

    chunks = ahead(endless())
    assert next(chunks) == b"x"
    chunks.close()
    assert ended()
    assert closed.wait(120)
    assert len(taken) <= subject.DEPTH + 3
