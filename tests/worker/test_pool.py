from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any

from worker.pool import OneThread


class Hub:
    """Notes what is to be called when a descriptor can be read."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
        self.readers[descriptor] = callback


def test_the_end_of_a_task_turns_the_loop_once() -> None:
    hub, pool, done = Hub(), OneThread(1), []
    pool.start()
    pool.register_with_event_loop(hub)
    ((descriptor, drain),) = hub.readers.items()
    assert not _readable(descriptor, 0.0)
    pool.apply_async(lambda *_: done.append(1), (1,))
    assert _readable(descriptor, 60.0)
    assert done == [1]
    drain()
    assert not _readable(descriptor, 0.0)
    drain()  # a turn for another reason finds nothing, and does not wait
    pool.stop()


def _readable(descriptor: Any, within_s: float) -> bool:
    return bool(select.select([descriptor], [], [], within_s)[0])
