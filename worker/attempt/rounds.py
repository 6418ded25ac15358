"""The one thread that runs jobs: it makes a round through the queues when a doorbell asks for it, and by itself.

It looks into the database every few seconds, and when the database tells of new jobs, whatever becomes of the broker:
Celery's loop and its timers stand still while it has no connection. Celery keeps the main thread, where signals are
handled.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from service.db.arrivals import Arrivals
from service.logs import logger
from service.threads import lasting
from worker.attempt.context import WorkerContext

Task = Callable[[WorkerContext, str], int]
"""What a round through a queue does; how many jobs ran."""

log = logger(__name__)


@dataclass
class _Asked:
    """A round that somebody waits for."""

    task: Task
    queue: str
    over: threading.Event = field(default_factory=threading.Event)
    ran: int = 0


class Rounds:
    """One round at a time, from `start` to `stop`: as asked for, and `look` every `every_s` seconds or on arrivals."""

    def __init__(self, context: WorkerContext, look: Task, every_s: float, arrivals: Arrivals) -> None:
        self._context, self._look, self._every_s, self._arrivals = context, look, every_s, arrivals
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._asked: deque[_Asked] = deque()
        self._ended = threading.Event()
        self._thread = lasting("rounds", self._make_all, lambda: context.stop.requested)

    def start(self) -> None:
        """Make the first round, and go on."""
        self._thread.start()

    def make(self, task: Task, queue: str) -> int:
        """Have a round made, and wait until it is over or rounds have ended; how many jobs ran in it.

        While it waits in the thread of Celery's pool no further message is taken, so that another worker is rung by
        that.
        """
        asked = _Asked(task, queue)
        self._asked.append(asked)
        with contextlib.suppress(BlockingIOError):  # full: the thread is awake
            os.write(self._writer, b"!")
        if not self._ended.is_set():  # else nobody may be left who lets it go
            asked.over.wait()
        return asked.ran

    @property
    def waiting(self) -> int:
        """How many rounds are asked for and not begun."""
        return len(self._asked)

    def stop(self) -> None:
        """Ask the context to stop, which gives back the job under way, and wait until that is done."""
        self._context.stop.request()
        self._thread.join()

    def _make_all(self) -> None:
        while not self._context.stop.requested:
            if self._asked:
                asked = self._asked.popleft()
                try:
                    asked.ran = self._make(asked.task, asked.queue)
                finally:
                    asked.over.set()
            else:
                self._make(self._look, self._context.queues[0])
            self._pause()
        self._ended.set()
        while self._asked:
            self._asked.popleft().over.set()

    def _make(self, task: Task, queue: str) -> int:
        try:
            return task(self._context, queue)
        except Exception:
            log.exception("looking for jobs failed")
            return 0

    def _pause(self) -> None:
        """Until somebody asks, the worker goes down, jobs have come, or it is time to look."""
        ours = [self._reader, self._context.stop.fileno()]
        end = time.monotonic() + (0.0 if self._asked else self._every_s)
        while (left_s := end - time.monotonic()) > 0:
            descriptors = [*ours, *self._arrivals.descriptors()]
            ready, *_ = select.select(descriptors, [], [], min(left_s, self._arrivals.every_s))
            if not set(ready).isdisjoint(ours) or self._arrivals.came():
                break
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)
