"""One supervised process: started in a group of its own, started again when it dies, stopped as a group."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 20.0
"""A process that lived this long is trusted again: its next death starts with the shortest pause."""
_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1


@dataclass
class Supervised:
    """A command that shall run for as long as `up` does. Its output is appended to `log`."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    deaths: int = 0
    _started: float = field(default=0.0, repr=False)
    _not_before: float = field(default=0.0, repr=False)

    def start(self) -> None:
        """Start it. On Linux the kernel kills it when this process dies by any means; call from the main thread."""
        parent = os.getpid()
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=lambda: _die_with(parent),
            )
        self._started = time.monotonic()

    def mend(self) -> bool:
        """Start it again if it died and its pause is over; True when a death was noticed."""
        now = time.monotonic()
        if self.process is not None and self._dead():
            self._end_group()
            self.deaths = 1 if now - self._started > STEADY_S else self.deaths + 1
            self._not_before = now + min(FIRST_PAUSE_S * 2 ** (self.deaths - 1), LONGEST_PAUSE_S)
            self.process = None
            return True
        if self.process is None and now >= self._not_before:
            self.start()
        return False

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        if self.process is not None:
            self.process.terminate()

    def stop(self, patience_s: float) -> None:
        """Wait this long after `ask_to_stop`, then kill whatever is left of the group."""
        if self.process is None:
            return
        end = time.monotonic() + patience_s
        while not self._dead() and time.monotonic() < end:
            time.sleep(_POLL_S)
        self._end_group()
        self.process = None

    def log_tail(self, lines: int = 15) -> str:
        """The last lines that it printed."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""

    def _dead(self) -> bool:
        """Whether it has ended; it stays a zombie, so that its id, the group's, cannot become another's."""
        assert self.process is not None
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # who forked this process's children too may have waited for all of them
            return True

    def _end_group(self) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


_libc = ctypes.CDLL(None)


def _die_with(parent: int) -> None:
    if sys.platform.startswith("linux"):
        _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
