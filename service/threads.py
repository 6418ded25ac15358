"""Threads and tasks that a process cannot do without: each goes on until it is asked to stop, or its process ends.

What they do waits by itself for a database or a broker that is away. Whatever else it raises is logged, and it begins
again after a pause; after `TRIES` times in a row the process ends, and whoever watches over it starts it anew.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator

from service.logs import logger

STATUS = 70
"""With which a process ends that has lost a thread: `EX_SOFTWARE` of sysexits.h."""
TRIES = 5
FIRST_PAUSE_S = 0.5
"""Each further pause is twice as long."""
STEADY_S = 60.0
"""What went on for so long is trusted again: its next failure counts as the first."""
_LOOK_EVERY_S = 0.05

log = logger(__name__)


def lasting(name: str, work: Callable[[], object], stopped: Callable[[], bool]) -> threading.Thread:
    """A thread, not started yet, in which `work` goes on until `stopped` says that it was asked to return."""
    return threading.Thread(target=_go_on, args=(name, work, stopped), name=name, daemon=True)


async def lasting_task(name: str, work: Callable[[], Awaitable[object]]) -> None:
    """The same as a coroutine of an event loop; it is over when `work` returns or is cancelled."""
    pauses = _pauses(name)
    while True:
        try:
            await work()
            return
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await asyncio.sleep(_pause(name, pauses, error))


def end_process(name: str, reason: str) -> None:
    """End this process at once: nothing that is under way in it is worth more than a start anew."""
    log.critical("a thread has ended, and this process with it", thread=name, reason=reason)
    os._exit(STATUS)


def _go_on(name: str, work: Callable[[], object], stopped: Callable[[], bool]) -> None:
    pauses = _pauses(name)
    while True:
        try:
            work()
        except BaseException as error:
            until = time.monotonic() + _pause(name, pauses, error)
            while not stopped() and time.monotonic() < until:
                time.sleep(_LOOK_EVERY_S)
        else:
            if not stopped():
                end_process(name, "it returned, and nobody had asked it to")
        if stopped():
            return


def _pause(name: str, pauses: Iterator[float], error: BaseException) -> float:
    """Seconds until the next try. What is no `Exception` was meant to end the thread."""
    pause = next(pauses, None) if isinstance(error, Exception) else None
    if pause is None:
        end_process(name, repr(error))
        return 0.0
    log.error("a thread failed, and begins again", thread=name, again_in_s=pause, exc_info=error)
    return pause


def _pauses(name: str) -> Iterator[float]:
    """One for each failure, as long as there are to be further tries."""
    failures, began = 0, time.monotonic()
    while True:
        now = time.monotonic()
        failures = 1 if now - began > STEADY_S else failures + 1
        if failures == TRIES:
            return
        pause = FIRST_PAUSE_S * 2 ** (failures - 1)
        began = now + pause
        yield pause
