from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from worker.lease.wakeup import Stop, Wakeup


def test_a_ring_is_seen_by_whoever_listens() -> None:
    wakeup = Wakeup()
    wakeup.ring("cancel")
    assert os.read(wakeup.fileno(), 10) == b"!"
    assert wakeup.reasons == {"cancel"}
    wakeup.close()


def test_a_ring_after_the_end_writes_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor's number may be another file's by then: a blob's, or the database's."""
    written: list[bytes] = []

    def noted(descriptor: int, data: bytes) -> int:
        written.append(data)
        return write(descriptor, data)

    write = os.write
    wakeup = Wakeup()
    monkeypatch.setattr("worker.lease.wakeup.os", SimpleNamespace(write=noted, close=os.close))
    wakeup.ring("cancel")
    assert written == [b"!"]
    wakeup.close()
    wakeup.ring("lost")
    assert written == [b"!"]
    assert wakeup.reasons == {"cancel", "lost"}


def test_a_bell_that_is_attended_after_the_request_rings_at_once() -> None:
    stop, wakeup = Stop(), Wakeup()
    stop.request()
    stop.attend(wakeup)
    assert wakeup.reasons == {"stop"}
    assert stop.wait(0)
    wakeup.close()
