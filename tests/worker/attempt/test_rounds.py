from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.servers import GUARD_S
from tests.worker.quiet import Quiet
from worker.attempt.context import WorkerContext
from worker.attempt.rounds import Rounds

SELDOM_S = 600.0


class Task:
    """Notes what it is called with, in which thread, and whether two ever ran at once."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self.threads: set[int] = set()
        self.at_once = self.most_at_once = 0

    def __call__(self, context: WorkerContext, queue: str) -> int:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.threads.add(threading.get_ident())
        self.queues.append(queue)
        self.at_once -= 1
        return 1


@pytest.fixture
def rounds_of(context: WorkerContext) -> Iterator[Callable[..., Rounds]]:
    """Rounds that have begun; stopped at the end of the test."""
    begun: list[Rounds] = []

    def begin(task: Callable[[WorkerContext, str], int], every_s: float, arrivals: Quiet | None = None) -> Rounds:
        begun.append(Rounds(context, task, every_s, arrivals or Quiet()))
        begun[-1].start()
        return begun[-1]

    yield begin
    for rounds in begun:
        rounds.stop()


def test_it_looks_by_itself_again_and_again(rounds_of: Callable[..., Rounds], eventually: Callable[..., Any]) -> None:
    task = Task()
    rounds_of(task, 0.01)
    eventually(lambda: len(task.queues) > 3)
    assert set(task.queues) == {"cpu"}


def test_it_looks_when_jobs_have_come_and_not_for_those_of_others(
    rounds_of: Callable[..., Rounds], eventually: Callable[..., Any]
) -> None:
    task, arrivals = Task(), Quiet()
    rounds_of(task, SELDOM_S, arrivals)
    eventually(lambda: len(task.queues) == 1)
    for _ in range(3):
        arrivals.come(to_us=False)
    arrivals.come()
    eventually(lambda: len(task.queues) == 2)
    assert len(task.queues) == 2


def test_a_round_that_is_asked_for_is_over_when_the_call_returns(rounds_of: Callable[..., Rounds]) -> None:
    task = Task()
    rounds = rounds_of(task, SELDOM_S)
    rounds.make(task, "run:cpu")
    assert task.queues[-1] == "run:cpu"


def test_rounds_are_made_one_at_a_time_in_one_thread_that_is_not_the_askers(
    rounds_of: Callable[..., Rounds],
) -> None:
    task = Task()
    rounds = rounds_of(task, 0.001)

    def ask() -> None:
        for _ in range(20):
            rounds.make(task, "cpu")

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(task.queues) >= 80
    assert task.most_at_once == 1
    assert len(task.threads) == 1
    assert threading.get_ident() not in task.threads


def test_a_round_that_fails_does_not_end_the_others(
    rounds_of: Callable[..., Rounds], eventually: Callable[..., Any]
) -> None:
    failures: list[str] = []

    def fail(context: WorkerContext, queue: str) -> int:
        failures.append(queue)
        raise ZeroDivisionError

    rounds = rounds_of(fail, 0.01)
    rounds.make(fail, "cpu")
    before = len(failures)
    eventually(lambda: len(failures) > before)


def test_who_waits_for_a_round_is_let_go_when_the_worker_goes_down(
    rounds_of: Callable[..., Rounds], context: WorkerContext
) -> None:
    task = Task()
    rounds = rounds_of(task, 0.05)
    rounds.stop()
    rounds.make(task, "run:cpu")
    assert "run:cpu" not in task.queues
    assert context.stop.requested


def test_who_waits_behind_a_round_is_let_go_when_the_worker_goes_down_in_it(
    rounds_of: Callable[..., Rounds], context: WorkerContext, eventually: Callable[..., Any]
) -> None:
    under_way, asked = threading.Event(), threading.Event()

    def go_down(context: WorkerContext, queue: str) -> int:
        under_way.set()
        assert asked.wait(GUARD_S)
        context.stop.request()
        return 0

    rounds, task = rounds_of(go_down, SELDOM_S), Task()
    assert under_way.wait(GUARD_S)
    asker = threading.Thread(target=rounds.make, args=(task, "run:cpu"), daemon=True)
    asker.start()
    eventually(lambda: rounds.waiting)
    asked.set()
    asker.join(GUARD_S)
    assert not asker.is_alive(), "it waits for a round that nobody will make"
    assert not task.queues
