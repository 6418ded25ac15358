from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from worker.lease.wakeup import Bell, Stop


def test_a_ring_is_seen_by_whoever_listens() -> None:
    bell = Bell()
    bell.ring("cancel")
    assert os.read(bell.fileno(), 10) == b"!"
    assert bell.reasons == {"cancel"}
    bell.close()


def test_a_ring_after_the_end_writes_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor's number may be another file's by then: a blob's, or the database's."""
    written: list[bytes] = []

    def noted(descriptor: int, data: bytes) -> int:
        written.append(data)
        return write(descriptor, data)

    write = os.write
    bell = Bell()
    monkeypatch.setattr("worker.lease.wakeup.os", SimpleNamespace(write=noted, close=os.close))
    bell.ring("cancel")
    assert written == [b"!"]
    bell.close()
    bell.ring("lost")
    assert written == [b"!"]
    assert bell.reasons == {"cancel", "lost"}


def test_a_bell_that_is_attended_after_the_request_rings_at_once() -> None:
    stop, bell = Stop(), Bell()
    stop.request()
    stop.attend(bell)
    assert bell.reasons == {"stop"}
    assert stop.wait(0)
    bell.close()
