from __future__ import annotations

import os

import pytest

from worker.bell import Bell, Stop


def test_a_ring_is_seen_by_whoever_listens() -> None:
    bell = Bell()
    bell.ring("cancel")
    assert os.read(bell.fileno(), 10) == b"!"
    assert bell.reasons == {"cancel"}
    bell.close()


def test_a_ring_after_the_end_writes_to_nobody() -> None:
    """The descriptor's number may be another file's by then: a blob's, or the database's."""
    bell = Bell()
    bell.close()
    reader, writer = os.pipe()
    assert bell.fileno() in (reader, writer), "the number was used again"
    os.set_blocking(reader, False)
    bell.ring("lost")
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    os.close(reader)
    os.close(writer)


def test_a_bell_that_is_attended_after_the_request_rings_at_once() -> None:
    stop, bell = Stop(), Bell()
    stop.request()
    stop.attend(bell)
    assert bell.reasons == {"stop"}
    assert stop.wait(0)
    bell.close()
