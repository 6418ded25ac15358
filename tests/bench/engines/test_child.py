from __future__ import annotations

import threading

import pytest

from bench.engines import child
from bench.engines.child import LEAST, turn, waited_s


def test_a_turn_does_not_count_the_run_that_wakes_the_threads() -> None:
    runs: list[int] = []
    result = turn(lambda: runs.append(1), 0.0)
    assert len(result.seconds) == LEAST
    assert len(runs) == LEAST + 1


def test_a_turn_tells_how_long_its_threads_waited_for_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter((2.0, 2.5))
    monkeypatch.setattr(child, "waited_s", lambda: next(counts))
    assert turn(lambda: None, 0.0).waited == 0.5


def test_waiting_is_counted_for_all_threads_and_survives_their_end() -> None:
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    before = waited_s()
    stop.set()
    other.join()
    assert before >= 0
    assert waited_s() >= 0
