"""What wakes the thread that attends a job: reasons rung from other threads and from signal handlers."""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
import time
from typing import Literal

Reason = Literal["stop", "cancel", "lost"]


class Wakeup:
    """A set of reasons and a descriptor that turns readable when one is added. Never un-rung; thread-safe.

    The lock is re-entrant and is held for a moment only, so that a signal handler may ring. It keeps a late ring from
    writing to what has got the descriptor's number after `close`.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._reasons: set[Reason] = set()
        self._finish_asked_at = math.inf
        self._open = True
        self._lock = threading.RLock()

    def ring(self, reason: Reason) -> None:
        """Add a reason; may be called from a signal handler, and after `close`."""
        self._reasons.add(reason)
        with self._lock, contextlib.suppress(BlockingIOError):  # full: whoever listens is awake
            if self._open:
                os.write(self._writer, b"!")

    def ask_to_finish(self) -> None:
        """Note that the owner wants the best found so far: no reason to stop the job, but to watch that it ends."""
        self._finish_asked_at = min(self._finish_asked_at, time.monotonic())

    @property
    def finish_asked_at(self) -> float:
        """The monotonic clock at the first `ask_to_finish`; infinite before."""
        return self._finish_asked_at

    @property
    def reasons(self) -> frozenset[Reason]:
        """All that was rung so far."""
        return frozenset(self._reasons)

    def fileno(self) -> int:
        """For `selectors`."""
        return self._reader

    def close(self) -> None:
        """Free the descriptors."""
        with self._lock:
            self._open = False
            os.close(self._reader)
            os.close(self._writer)


class Stop:
    """Whether this worker is going down, and the wakeup of the job it attends, if any.

    No `threading.Event`: its lock is not re-entrant, and `request` runs in a signal handler.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._requested = False
        self._wakeup: Wakeup | None = None

    def attend(self, wakeup: Wakeup | None) -> None:
        """Name the wakeup that `request` rings; None when no job runs."""
        self._wakeup = wakeup
        if wakeup is not None and self._requested:
            wakeup.ring("stop")

    def request(self) -> None:
        """Go down; may be called from a signal handler, more than once."""
        self._requested = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, b"!")
        if (wakeup := self._wakeup) is not None:
            wakeup.ring("stop")

    @property
    def requested(self) -> bool:
        """True from the first request on."""
        return self._requested

    def fileno(self) -> int:
        """For `select`: readable from the first request on."""
        return self._reader

    def wait(self, seconds: float) -> bool:
        """Sleep, but not past a request; True when there was one."""
        select.select([self._reader], [], [], seconds)
        return self._requested
